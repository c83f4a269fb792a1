"""Completed records of this process, so that a duplicate in the same container costs no call.

Bounded in number and time. An entry is trusted for a quarter of an hour at most: what an operator
does to a record is then seen by warm containers too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from .clock import Clock
from .ledger import Ledger
from .record import Record

_ENTRIES = 512
_TRUSTED = 900.0


@dataclass(frozen=True, slots=True)
class _Kept:
    record: Record
    age: float
    monotonic: float
    wall: float


class LocalCache:
    """Finished records by name, the least recently used dropped first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def get(self, name: str, clock: Clock) -> tuple[Record, float] | None:
        """A finished record and its age in seconds, unless it is too old to be trusted."""
        with self._lock:
            kept = self._kept.get(name)
            if kept is None:
                return None
            # A frozen sandbox's monotonic clock may stand still and its wall clock may be set: the
            # one that says that more time has passed is believed.
            passed = max(clock.monotonic() - kept.monotonic, clock.wall() - kept.wall, 0.0)
            if passed > _TRUSTED:
                del self._kept[name]
                return None
            self._kept.move_to_end(name)
        return kept.record, kept.age + passed

    def put(self, name: str, record: Record, age: float, clock: Clock) -> None:
        """Keep a finished record that was `age` seconds old just now."""
        kept = _Kept(record, age, clock.monotonic(), clock.wall())
        with self._lock:
            self._kept[name] = kept
            self._kept.move_to_end(name)
            if len(self._kept) > _ENTRIES:
                self._kept.popitem(last=False)


_caches: WeakKeyDictionary[Ledger, LocalCache] = WeakKeyDictionary()
_lock = threading.Lock()


def cache_of(ledger: Ledger) -> LocalCache:
    """The one cache of this process for a ledger."""
    cache = _caches.get(ledger)
    if cache is None:
        with _lock:
            cache = _caches.setdefault(ledger, LocalCache())
    return cache


def forget() -> None:
    """Empty every cache of this process, as a cold start does."""
    with _lock:
        _caches.clear()
