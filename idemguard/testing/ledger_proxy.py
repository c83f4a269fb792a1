"""A ledger in front of another one, to watch and to disturb its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..clock import Deadline
from ..ledger import Entry, Ledger, Page
from ..record import Record, State

R = TypeVar("R")

_ENDS = {
    State.COMPLETED: "complete",
    State.RELEASED: "release",
    State.FAILED: "fail",
    State.SWEPT: "bar",
}

#: What a call can be for.
PURPOSES = frozenset(("claim", "takeover", "step", *_ENDS.values(), "read", "remove", "scan"))


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a ledger.

    Attributes:
        purpose: one of `PURPOSES`.
        names: what it concerns.
        deadline: by when it must have answered.
        record: what is to be written, for a write.
        expected: what is to be replaced, for a replace.
    """

    purpose: str
    names: Sequence[str] = ()
    deadline: Deadline | None = None
    record: Record | None = None
    expected: Entry | None = None

    def won(self, answer: object) -> bool:
        """Whether this is a write and `answer` says that it stands."""
        return (
            self.record is not None and isinstance(answer, Entry) and answer.record == self.record
        )


class LedgerProxy(Ledger):
    """Every call of the ledger behind it goes through `around`, which subclasses override."""

    def __init__(self, ledger: Ledger) -> None:
        self.behind = ledger
        self.removal_delay = ledger.removal_delay
        self.capacity = ledger.capacity

    def around(self, call: Call, carry_out: Callable[[], R]) -> R:
        """Carry the call out, or not."""
        return carry_out()

    def create(self, name: str, record: Record, *, deadline: Deadline | None = None) -> Entry:
        call = Call(_purpose(record, None), [name], deadline, record)
        return self.around(call, lambda: self.behind.create(name, record, deadline=deadline))

    def read(self, name: str, *, deadline: Deadline | None = None) -> Entry | None:
        call = Call("read", [name], deadline)
        return self.around(call, lambda: self.behind.read(name, deadline=deadline))

    def replace(
        self, expected: Entry, record: Record, *, deadline: Deadline | None = None
    ) -> Entry | None:
        call = Call(_purpose(record, expected), [expected.name], deadline, record, expected)
        return self.around(call, lambda: self.behind.replace(expected, record, deadline=deadline))

    def remove(
        self, barred: Sequence[Entry], *, deadline: Deadline | None = None
    ) -> frozenset[str]:
        call = Call("remove", [entry.name for entry in barred], deadline)
        return self.around(call, lambda: self.behind.remove(barred, deadline=deadline))

    def scan(
        self, under: str = "", *, deadline: Deadline | None = None, start: str | None = None
    ) -> Iterator[Page]:
        yield from self.around(
            Call("scan", (), deadline),
            lambda: self.behind.scan(under, deadline=deadline, start=start),
        )

    def read_many(
        self, names: Sequence[str], *, deadline: Deadline | None = None
    ) -> dict[str, Entry]:
        call = Call("read", names, deadline)
        return self.around(call, lambda: self.behind.read_many(names, deadline=deadline))

    def fits(self, record: Record) -> bool:
        return self.behind.fits(record)


def _purpose(record: Record, expected: Entry | None) -> str:
    if record.state in _ENDS:
        return _ENDS[record.state]
    if expected is None:
        return "claim"
    return "step" if expected.record.token == record.token else "takeover"
