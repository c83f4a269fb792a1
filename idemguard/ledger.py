"""What a store must offer to be a ledger.

A ledger is a compare-and-set register per name, with the age of each entry told by the store's own
clock. `idemguard.testing.LedgerContract` checks an implementation against this page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .clock import Deadline
from .record import Record, State


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands under a name now.

    Attributes:
        name: ``NAMESPACE/OPERATION/DIGEST``; the ledger puts its own prefix in front.
        record: what is held.
        age: seconds since it was written, by the store's clock, rounded down where it is coarse.
        mark: what the ledger needs to recognise this very entry again; opaque to everybody else.
    """

    name: str
    record: Record
    age: float
    mark: object = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Listed:
    """One name met while scanning; what a store tells without reading the value.

    Attributes:
        age: seconds since the entry was written.
        state, keep: state and horizon (seconds) if the store lists them, else None: read the entry.
    """

    name: str
    age: float
    state: State | None = None
    keep: float | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some listed names, and where to go on; `cursor` is None after the last page."""

    items: Sequence[Listed]
    cursor: str | None


class Ledger(ABC):
    """A compare-and-set register per name. Holds no state of a call; safe to share among threads.

    Every method takes a `deadline` by which it must have answered or raised, back-off included;
    without one it decides for itself how long to try. All of them raise `LedgerUnavailable`,
    `LedgerMisconfigured`, `LedgerFull` or `UnreadableRecordError`, and nothing else.
    """

    #: Seconds that must pass between barring a record and removing it.
    removal_delay: float = 0.0

    #: How many records the store holds at most, with whatever else it holds; None where it has no limit.
    capacity: int | None = None

    @abstractmethod
    def create(self, name: str, record: Record, *, deadline: Deadline | None = None) -> Entry:
        """Write `record` if the name is free; return the entry that stands there afterwards.

        The write won if and only if the returned entry's record equals `record`; this holds too
        when the answer to the write was lost on the way.
        """

    @abstractmethod
    def read(self, name: str, *, deadline: Deadline | None = None) -> Entry | None:
        """The entry under `name`, or None when the name is free."""

    @abstractmethod
    def replace(
        self, expected: Entry, record: Record, *, deadline: Deadline | None = None
    ) -> Entry | None:
        """Write `record` if `expected` still stands; return what stands afterwards, None if nothing.

        As with `create`, it won if and only if the returned entry's record equals `record`. It may
        lose although nothing changed (somebody's write got in between and came to nothing): look at
        the entry and decide again.
        """

    @abstractmethod
    def remove(
        self, barred: Sequence[Entry], *, deadline: Deadline | None = None
    ) -> frozenset[str]:
        """Remove those entries that still stand; return the names that are gone.

        The entries must be in state SWEPT and have been written at least `removal_delay` ago.
        """

    @abstractmethod
    def scan(
        self, under: str = "", *, deadline: Deadline | None = None, start: str | None = None
    ) -> Iterator[Page]:
        """Page through the names below the path `under`, from a page's cursor on."""

    @abstractmethod
    def fits(self, record: Record) -> bool:
        """Whether the record is small enough to be written."""

    def read_many(
        self, names: Sequence[str], *, deadline: Deadline | None = None
    ) -> dict[str, Entry]:
        """The entries under those names that are not free; override where a store reads in batches."""
        entries = ((name, self.read(name, deadline=deadline)) for name in names)
        return {name: entry for name, entry in entries if entry is not None}
