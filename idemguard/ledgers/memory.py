"""A ledger in this process's memory: for tests, demonstrations and single-process jobs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..clock import SYSTEM_CLOCK, Clock, Deadline
from ..errors import LedgerMisconfigured
from ..ledger import Entry, Ledger, Listed, Page
from ..record import Record, from_text, to_text

_PAGE = 50


@dataclass(frozen=True, slots=True)
class _Slot:
    text: str
    written: float


class MemoryLedger(Ledger):
    """Compare-and-set under a lock. Records are held as text, so that a test sees what a store sees.

    Args:
        clock: tells the age of entries.
        max_bytes: refuse larger records, as a store would; None for no limit.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, max_bytes: int | None = None) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._slots: dict[str, _Slot] = {}

    def create(self, name: str, record: Record, *, deadline: Deadline | None = None) -> Entry:
        entry = self._swap(name, None, record)
        assert entry is not None, "a free name was just written"
        return entry

    def read(self, name: str, *, deadline: Deadline | None = None) -> Entry | None:
        with self._lock:
            slot = self._slots.get(name)
            return self._entry(name, slot) if slot else None

    def replace(
        self, expected: Entry, record: Record, *, deadline: Deadline | None = None
    ) -> Entry | None:
        return self._swap(expected.name, expected.mark, record)

    def remove(
        self, barred: Sequence[Entry], *, deadline: Deadline | None = None
    ) -> frozenset[str]:
        gone = set()
        with self._lock:
            for entry in barred:
                if self._slots.get(entry.name) in (None, entry.mark):
                    self._slots.pop(entry.name, None)
                    gone.add(entry.name)
        return frozenset(gone)

    def scan(
        self, under: str = "", *, deadline: Deadline | None = None, start: str | None = None
    ) -> Iterator[Page]:
        with self._lock:
            now = self._clock.monotonic()
            items = [
                Listed(name, now - slot.written)
                for name, slot in sorted(self._slots.items())
                if name.startswith(f"{under}/" if under else "") and name > (start or "")
            ]
        for at in range(0, max(len(items), 1), _PAGE):
            page = items[at : at + _PAGE]
            # By name and not by number: what was listed may be removed before the next page.
            yield Page(page, page[-1].name if at + _PAGE < len(items) else None)

    def fits(self, record: Record) -> bool:
        return self._max_bytes is None or len(to_text(record)) <= self._max_bytes

    def _swap(self, name: str, expected: object, record: Record) -> Entry | None:
        text = to_text(record)
        if self._max_bytes is not None and len(text) > self._max_bytes:
            raise LedgerMisconfigured(
                f"a record of {len(text)} bytes is larger than this ledger takes: raise max_bytes"
            )
        with self._lock:
            slot = self._slots.get(name)
            if slot is expected:
                slot = self._slots[name] = _Slot(text, self._clock.monotonic())
            return self._entry(name, slot) if slot else None

    def _entry(self, name: str, slot: _Slot) -> Entry:
        record, _ = from_text(slot.text)
        return Entry(name, record, max(0.0, self._clock.monotonic() - slot.written), slot)
