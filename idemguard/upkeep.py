"""What the person on call does with records: look at them, count them, unstick one by hand."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .clock import Deadline
from .errors import InvalidOption, UnreadableRecordError
from .ledger import Entry, Ledger, Listed
from .record import State

#: Writes a second that Parameter Store takes in an account and Region unless more is asked for.
DEFAULT_WRITES = 3.0

# Upper ends of the age classes of statistics, in seconds.
_AGES = (
    ("under a minute", 60.0),
    ("under an hour", 3600.0),
    ("under a day", 24 * 3600.0),
    ("under a week", 7 * 24 * 3600.0),
    ("older", float("inf")),
)
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Found:
    """Entries that were read, names that hold no legible record, and the calls that it took."""

    entries: Mapping[str, Entry]
    illegible: frozenset[str]
    calls: int


def read_legible(
    ledger: Ledger, names: Sequence[str], *, deadline: Deadline | None = None
) -> Found:
    """Read a batch of names, some of which may hold other people's parameters."""
    try:
        return Found(ledger.read_many(names, deadline=deadline), frozenset(), 1)
    except UnreadableRecordError:
        pass
    entries: dict[str, Entry] = {}
    illegible: set[str] = set()
    for name in names:
        try:
            entry = ledger.read(name, deadline=deadline)
        except UnreadableRecordError:
            illegible.add(name)
        else:
            if entry is not None:
                entries[name] = entry
    return Found(entries, frozenset(illegible), 1 + len(names))


@dataclass(frozen=True, slots=True)
class Line:
    """One name of a listing.

    Attributes:
        state: None where it holds no legible record.
        expires_in: seconds until its horizon is over; negative once it is.
    """

    name: str
    state: State | None
    age: float
    expires_in: float | None

    @property
    def operation(self) -> str:
        """The operation, as it stands in the name; empty if the name is not a record's."""
        parts = self.name.rsplit("/", 2)
        return parts[1] if len(parts) == 3 else ""


def lines(ledger: Ledger, under: str = "") -> Iterator[Line]:
    """Every name below the path `under`, with what the store lists, or else with what is read."""
    for page in ledger.scan(under.strip("/")):
        unlisted = [item.name for item in page.items if item.state is None]
        found = read_legible(ledger, unlisted) if unlisted else None
        for item in page.items:
            yield _line(item, found.entries.get(item.name) if found else None)


def names_of(ledger: Ledger, digest: str) -> Iterator[str]:
    """The names of the records with that key digest, which is all that logs tell of a key."""
    for page in ledger.scan(""):
        for item in page.items:
            if item.name.endswith(f"/{digest}"):
                yield item.name


def _line(item: Listed, entry: Entry | None) -> Line:
    state, keep = item.state, item.keep
    if entry is not None:
        state, keep = entry.record.state, entry.record.horizon
    return Line(item.name, state, item.age, None if keep is None else keep - item.age)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a ledger holds.

    Attributes:
        records: names that were listed, other people's under the same path included.
        states, operations, ages: how many of each; ages are classes of time since the last write.
        expired: past their horizon, so a sweep would look at them.
        written_last_hour: last written within an hour.
        capacity, head_room: as in a sweep's report.
    """

    records: int
    states: Mapping[str, int]
    operations: Mapping[str, int]
    ages: Mapping[str, int]
    expired: int
    written_last_hour: int
    capacity: int | None
    head_room: int | None

    @property
    def per_second(self) -> float:
        """Records written a second, over the last hour."""
        return self.written_last_hour / 3600

    @property
    def share_of_quota(self) -> float | None:
        """The part of the default write quota that takes, at two writes a record; None without one."""
        return None if self.capacity is None else self.per_second * 2 / DEFAULT_WRITES

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            **asdict(self),
            "per_second": self.per_second,
            "share_of_quota": self.share_of_quota,
        }


def statistics(ledger: Ledger, listed: Iterator[Line], *, whole: bool) -> Statistics:
    """Count `listed`; `whole` tells that it is the whole ledger, so that head-room can be told."""
    states: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    ages: Counter[str] = Counter()
    records = expired = recent = 0
    for line in listed:
        records += 1
        states[line.state.name.lower() if line.state else "not a record"] += 1
        operations[line.operation or "(none)"] += 1
        ages[next(name for name, end in _AGES if line.age < end)] += 1
        expired += line.expires_in is not None and line.expires_in <= 0
        recent += line.age < 3600
    capacity = ledger.capacity
    return Statistics(
        records=records,
        states=dict(states.most_common()),
        operations=dict(operations.most_common()),
        ages={name: ages[name] for name, _ in _AGES if ages[name]},
        expired=expired,
        written_last_hour=recent,
        capacity=capacity,
        head_room=max(0, capacity - records) if capacity and whole else None,
    )


def release_by_hand(ledger: Ledger, met: Entry, reason: str) -> bool:
    """End somebody's claim, so that the next delivery runs the work; False if it has changed since.

    The record gets a token of its own: the holder, should it still be at work, can write no more
    and meets a `LeaseLostError`. Kept steps stay, and the reason as far as there is room.

    Raises:
        InvalidOption: there is no claim to release, or no reason given.
    """
    if met.record.state is not State.CLAIMED:
        raise InvalidOption(
            f"release: the record is {met.record.state.name.lower()}; only a claim can be released"
        )
    reason = " ".join(reason.split())
    if not reason:
        raise InvalidOption("reason: say why, for whoever looks at the record later")
    released = met.record.ended(
        State.RELEASED, token=secrets.token_hex(16), reason=reason[:_LONGEST_REASON]
    )
    if not ledger.fits(released):
        # A record full of steps: those are worth more than the reason.
        released = released.ended(State.RELEASED, reason="")
    now = ledger.read(met.name)
    if now is None or now.record != met.record:
        return False
    standing = ledger.replace(now, released)
    return standing is not None and standing.record == released
