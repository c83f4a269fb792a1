"""Contending for a key: create, meet, judge, take over or wait, until it is won or somebody has it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from .clock import Clock, Deadline
from .codec import Codec
from .ledger import Entry, Ledger
from .lifecycle import LONGEST_LEASE, Meaning, Terms, first_claim, judge, next_claim
from .outcome import Hooks
from .record import Key, Record, State

#: Seconds that a lease outlives the time left in the context.
LEASE_MARGIN = 0.5
_DEFAULT_WAIT = 30.0
_TAKEOVERS = 8


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for every delivery of one decorated function, resolved once."""

    ledger: Ledger
    namespace: str
    codec: Codec
    hooks: Hooks
    clock: Clock
    retention: float
    lease: float | None
    wait: float | None
    cached: bool
    on_in_flight: str
    on_missing_key: str
    on_ledger_error: str
    on_complete_error: str
    store_result: bool
    permanent: tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Contest:
    """How it went: won when there is no `meaning`; else what the entry that was met means.

    Attributes:
        entry: our own claim, or the entry that was met.
        meaning: None, or why the work must not be run.
        took_over: the record that our claim replaced, if any.
        pause: where the key is in flight and there is time to wait: seconds until the next look.
    """

    entry: Entry
    meaning: Meaning | None
    took_over: Record | None = None
    pause: float | None = None


class Bid:
    """One delivery's bid for a key: what marks its claim, and how long it waits for another's result.

    Args:
        setup: the function's configuration.
        limit: when the Lambda function will be stopped, if known; tells the lease.
        deadline: by when the ledger must have answered.
        redelivered: look before writing, since the event says that it came before.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        limit: Deadline | None,
        deadline: Deadline | None,
        redelivered: bool,
    ) -> None:
        self.limit = limit
        self.deadline = deadline
        self.look_first = redelivered
        # The operating system's randomness, at claim time: forks and restored snapshots of one
        # process must not share a token.
        self.token = secrets.token_hex(16)
        self._clock = setup.clock
        longest = setup.wait
        if longest is None and deadline is None:
            longest = _DEFAULT_WAIT
        until = Deadline.after(self._clock, longest) if longest is not None else None
        bounds = [bound for bound in (until, deadline) if bound is not None]
        self._until = min(bounds, key=lambda bound: bound.at)
        self._next = 0.1

    def pause(self) -> float | None:
        """Seconds to wait before the next look, more each time; None when there is no time for it."""
        pause = self._next * 0.5 + self._clock.jitter(self._next * 0.5)
        if pause >= self._until.remaining():
            return None
        self._next = min(self._next * 1.6, 2.0)
        self.look_first = True
        return pause


def contend(setup: Setup, key: Key, name: str, bid: Bid) -> Contest:
    """Try to win a key, once; with a `pause` in the answer, wait and call again with the same bid.

    Args:
        setup: the function's configuration.
        key: the identity contended for.
        name: its record's name.
        bid: of this delivery.
    """
    ledger, deadline = setup.ledger, bid.deadline
    takeovers = 0
    met: Record | None = None
    entry = ledger.read(name, deadline=deadline) if bid.look_first else None
    while True:
        if entry is None:
            met = None
            wanted = first_claim(key, _terms(setup, bid))
            entry = ledger.create(name, wanted, deadline=deadline)
        # By token and not by value: an earlier write of ours may have landed late.
        if entry.record.token == bid.token and entry.record.state is State.CLAIMED:
            return Contest(entry, None, met)
        meaning = judge(entry.record, entry.age, key)
        if meaning is Meaning.BUSY and setup.on_in_flight == "wait":
            return Contest(entry, meaning, pause=bid.pause())
        if meaning is Meaning.TAKE_OVER and takeovers < _TAKEOVERS:
            takeovers += 1
            met = entry.record
            wanted = next_claim(met, entry.age, key, _terms(setup, bid))
            entry = ledger.replace(entry, wanted, deadline=deadline)
        else:
            # Taken over by others each time that we tried: as good as in flight.
            return Contest(entry, Meaning.BUSY if meaning is Meaning.TAKE_OVER else meaning)


def lease_of(setup: Setup, limit: Deadline | None) -> float:
    """Seconds for which a claim made now holds."""
    if setup.lease is not None:
        return setup.lease
    if limit is None:
        return LONGEST_LEASE
    return round(max(0.0, limit.remaining()) + LEASE_MARGIN, 3)


def _terms(setup: Setup, bid: Bid) -> Terms:
    fence = int(setup.clock.wall() * 1000)
    return Terms(bid.token, lease_of(setup, bid.limit), setup.retention, fence)
