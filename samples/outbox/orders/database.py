"""A database by its DB-API driver (PEP 249): SQLite, PostgreSQL, MySQL, or any other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

# How the drivers want their placeholders: of the nth value, and the values' own form.
_MARKS: dict[str, Callable[[int], str]] = {
    "qmark": lambda n: "?",
    "format": lambda n: "%s",
    "numeric": lambda n: f":{n}",
    "named": lambda n: f":v{n}",
    "pyformat": lambda n: f"%(v{n})s",
}

TABLES = (
    "CREATE TABLE IF NOT EXISTS orders ("
    "order_id VARCHAR(64) PRIMARY KEY, amount_cents INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS outbox (effect_key VARCHAR(64) PRIMARY KEY, "
    "created VARCHAR(32) NOT NULL, kind VARCHAR(64) NOT NULL, subject VARCHAR(64) NOT NULL, "
    "payload TEXT NOT NULL, published INTEGER NOT NULL)",
)


class Transaction:
    """What is done in it is committed together or not at all."""

    def __init__(self, connection: Any, paramstyle: str) -> None:
        self._connection = connection
        self._mark = _MARKS[paramstyle]
        self._by_name = paramstyle in ("named", "pyformat")

    def execute(self, sql: str, *values: object, most: int = 100) -> list[tuple[Any, ...]]:
        """Run a statement, with `?` for each value whatever the driver's style.

        Gives its first rows, `most` of them: SQL has no one way to say it that all engines take.
        """
        first, *rest = sql.split("?")
        sql = first + "".join(self._mark(n) + part for n, part in enumerate(rest, start=1))
        with closing(self._connection.cursor()) as cursor:
            if self._by_name:
                cursor.execute(sql, {f"v{n}": value for n, value in enumerate(values, start=1)})
            else:
                cursor.execute(sql, values)
            return list(cursor.fetchmany(most)) if cursor.description else []


class Database:
    """Opens a connection per transaction, so that it outlives frozen sandboxes and failovers."""

    def __init__(self, driver: Any, **connect: Any) -> None:
        self._driver = driver
        self._connect = connect

    @classmethod
    def from_environment(cls) -> Database:
        """By DATABASE_DRIVER, a module, and DATABASE, what its `connect` takes, as JSON."""
        driver = os.environ.get("DATABASE_DRIVER", "sqlite3")
        connect = os.environ.get("DATABASE", '{"database": "orders.db"}')
        return cls(import_module(driver), **json.loads(connect))

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with closing(self._driver.connect(**self._connect)) as connection:
            try:
                yield Transaction(connection, self._driver.paramstyle)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def create_tables(self) -> None:
        with self.transaction() as transaction:
            for table in TABLES:
                transaction.execute(table)
