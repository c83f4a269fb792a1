"""A ledger in an SQLite file, for several processes on one machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from idemguard import Ledger, LedgerUnavailable
from idemguard.clock import Deadline
from idemguard.ledger import Entry, Listed, Page
from idemguard.record import Record, from_text, to_text

# `written` is the database's own time. `id` is never used twice, so that an entry which was removed
# and written anew is told from the one that somebody read before.
_TABLE = """CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE NOT NULL,
    value TEXT NOT NULL,
    written REAL NOT NULL)"""
_NOW = "(julianday('now') - 2440587.5) * 86400.0"
_PAGE = 50


class SQLiteLedger(Ledger):
    def __init__(self, path: str) -> None:
        self._path = path
        with self._transaction(None) as db:
            db.execute(_TABLE)

    def create(self, name: str, record: Record, *, deadline: Deadline | None = None) -> Entry:
        with self._transaction(deadline) as db:
            db.execute(
                f"INSERT INTO records (name, value, written) VALUES (?, ?, {_NOW}) "
                "ON CONFLICT (name) DO NOTHING",
                (name, to_text(record)),
            )
            entry = _entry(db, name)
        assert entry is not None, "it was written by us or is somebody's"
        return entry

    def read(self, name: str, *, deadline: Deadline | None = None) -> Entry | None:
        with self._transaction(deadline) as db:
            return _entry(db, name)

    def replace(
        self, expected: Entry, record: Record, *, deadline: Deadline | None = None
    ) -> Entry | None:
        with self._transaction(deadline) as db:
            standing = _entry(db, expected.name)
            if standing is None or standing.mark != expected.mark:
                return standing
            db.execute(
                f"REPLACE INTO records (name, value, written) VALUES (?, ?, {_NOW})",
                (expected.name, to_text(record)),
            )
            return _entry(db, expected.name)

    def remove(
        self, barred: Sequence[Entry], *, deadline: Deadline | None = None
    ) -> frozenset[str]:
        with self._transaction(deadline) as db:
            for entry in barred:
                db.execute("DELETE FROM records WHERE id = ?", (entry.mark,))
            return frozenset(entry.name for entry in barred if _entry(db, entry.name) is None)

    def scan(
        self, under: str = "", *, deadline: Deadline | None = None, start: str | None = None
    ) -> Iterator[Page]:
        path, last = (f"{under}/" if under else ""), start or ""
        while True:
            with self._transaction(deadline) as db:
                rows = db.execute(
                    f"SELECT name, {_NOW} - written FROM records "
                    "WHERE name > ? AND substr(name, 1, ?) = ? ORDER BY name LIMIT ?",
                    (last, len(path), path, _PAGE),
                ).fetchall()
            full = len(rows) == _PAGE
            last = rows[-1][0] if rows else last
            yield Page([Listed(*row) for row in rows], last if full else None)
            if not full:
                return

    def fits(self, record: Record) -> bool:
        return len(to_text(record)) <= 100_000

    @contextmanager
    def _transaction(self, deadline: Deadline | None) -> Iterator[sqlite3.Connection]:
        patience = max(0.0, deadline.remaining()) if deadline else 10.0
        try:
            with closing(sqlite3.connect(self._path, timeout=patience)) as db, db:
                # At once, not at the first write: between reading and writing nobody else may write.
                db.execute("BEGIN IMMEDIATE")
                yield db
        except sqlite3.OperationalError as error:
            raise LedgerUnavailable(f"SQLite cannot be used now: {error}") from None


def _entry(db: sqlite3.Connection, name: str) -> Entry | None:
    row = db.execute(
        f"SELECT id, value, {_NOW} - written FROM records WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        return None
    mark, value, age = row
    return Entry(name, from_text(value)[0], max(0.0, age), mark)
