"""The state machine: what does the record that was met mean, and what may be written next?

No I/O and no clock: ages are given. Drawn in `docs/explanation/lifecycle.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from .record import Key, Record, State

#: Lambda's longest timeout (https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html),
#: in seconds. Without a context to ask, a holder may be at work for this long.
LONGEST_LEASE = 900.0

#: Seconds for which a sweeper's bar keeps everybody else out.
SWEEP_LEASE = 180.0


class Meaning(Enum):
    """What a record that stands under our key's name means for this delivery."""

    REPLAY = "replay"
    FAILED = "failed"
    BUSY = "busy"
    MISMATCH = "mismatch"
    TAKE_OVER = "take over"


class Ending(Enum):
    """What a holder's unsuccessful write to its own record comes to."""

    DONE = "done"
    AGAIN = "again"
    LOST = "lost"


def judge(record: Record, age: float, key: Key) -> Meaning:
    """What a record of this age means to a delivery with this key.

    A payload mismatch is found wherever the record still speaks for the key: completed, failed, in
    flight, and also released or abandoned, since steps of the earlier payload may have been done.
    """
    state = record.state
    if state is State.VACANT:
        return Meaning.TAKE_OVER
    if state is State.UNKNOWN:
        return Meaning.BUSY if age < max(record.lease, LONGEST_LEASE) else Meaning.TAKE_OVER
    if state is State.SWEPT:
        return Meaning.BUSY if age < record.lease else Meaning.TAKE_OVER
    ended = state in (State.COMPLETED, State.FAILED)
    if age >= (record.retention if ended else record.horizon):
        return Meaning.TAKE_OVER
    if key.fingerprint is not None and record.fingerprint not in (None, key.fingerprint):
        return Meaning.MISMATCH
    if ended:
        return Meaning.REPLAY if state is State.COMPLETED else Meaning.FAILED
    if state is State.CLAIMED and age < record.lease:
        return Meaning.BUSY
    return Meaning.TAKE_OVER


@dataclass(frozen=True, slots=True)
class Terms:
    """What a claim is asked for: seconds of lease and retention, and this machine's idea of a fence."""

    token: str
    lease: float
    retention: float
    fence: int


def first_claim(key: Key, terms: Terms) -> Record:
    """The record that claims a free name."""
    return Record(
        State.CLAIMED,
        token=terms.token,
        lease=terms.lease,
        retention=terms.retention,
        fence=terms.fence,
        fingerprint=key.fingerprint,
    )


def next_claim(met: Record, age: float, key: Key, terms: Terms) -> Record:
    """The record that takes over from `met`; goes on from its steps while they still speak for the key."""
    goes_on = met.state in (State.CLAIMED, State.RELEASED) and age < met.horizon
    return Record(
        State.CLAIMED,
        token=terms.token,
        lease=terms.lease,
        retention=terms.retention,
        attempt=met.attempt + 1 if goes_on else 1,
        # The fence rises whatever this machine's clock says.
        fence=max(terms.fence, met.fence + 1),
        fingerprint=key.fingerprint or (met.fingerprint if goes_on else None),
        steps=met.steps if goes_on else {},
    )


def widest_successor(record: Record) -> Record:
    """A claim that goes on from `record`, and takes up as much room as one ever can.

    A record that is full of steps must leave room for it: a claim that does not fit can never be
    made, by any delivery.
    """
    longest = 1e9 / 3
    return replace(
        record,
        state=State.CLAIMED,
        lease=longest,
        retention=longest,
        attempt=10**6,
        fence=10**15,
        fingerprint=record.fingerprint or "0" * 32,
    )


def after_refusal(wanted: Record, met: Record, held_for: float) -> Ending:
    """What to do when a holder's write of `wanted` did not win and `met` stands there instead."""
    if met == wanted:
        return Ending.DONE
    if met.token == wanted.token:
        # An ended record of our own token is the end: another thread of this attempt got there first.
        return Ending.AGAIN if met.state is State.CLAIMED else Ending.LOST
    if held_for < wanted.lease:
        if met.state in (State.UNKNOWN, State.VACANT):
            return Ending.AGAIN
        if wanted.state is State.RELEASED:
            # Before the lease ends others can claim what was released, and nothing else: it was, and
            # the answer that said so got lost.
            return Ending.DONE
    return Ending.LOST


def may_write(record: Record, held_for: float) -> bool:
    """Whether a holder may still write: past the horizon a sweeper may be deleting its name."""
    return held_for < record.horizon


def may_be_swept(record: Record, age: float) -> bool:
    """Whether nobody may act on this record any more, so that a sweeper may bar and remove it.

    An ended record, once its horizon is over; a claim, once its horizon has passed since its lease
    ended; a sweeper's bar, once it has lapsed. Where the holder cannot be told, the longest lease
    stands in for what is not known.
    """
    if record.state is State.SWEPT:
        return age >= record.lease
    if record.state is State.CLAIMED:
        return age >= record.lease + record.horizon
    if record.state is State.VACANT:
        return age >= LONGEST_LEASE
    if record.state is State.UNKNOWN:
        return age >= 2 * max(record.lease, LONGEST_LEASE)
    return age >= record.horizon


def bar(met: Record, token: str) -> Record:
    """The record that keeps claimers out while a sweeper removes `met`; one that lapses holds nothing."""
    # A claimer that takes over a lapsed bar must still find the fence to go on from.
    return Record(State.SWEPT, token=token, lease=SWEEP_LEASE, fence=met.fence)
