"""What the checks of the ledger contract are made of."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from ..clock import Deadline
from ..errors import LedgerUnavailable
from ..ledger import Entry, Ledger, Listed
from ..lifecycle import SWEEP_LEASE
from ..record import Record, State

T = TypeVar("T")

# A replace may lose although nothing changed; one that loses so often is broken.
_TRIES = 5
# Seconds in which a call with half a second left has surely ended, on any machine.
_HANGING = 30.0


def new_name() -> str:
    """A name that nobody has used."""
    return f"contract/op/{secrets.token_hex(20)}"


def new_claim() -> Record:
    """A claim with a token of its own."""
    return Record(State.CLAIMED, secrets.token_hex(16), lease=60.0, retention=3600.0, fence=1)


def new_bar() -> Record:
    """A sweeper's bar with a token of its own."""
    return Record(State.SWEPT, secrets.token_hex(16), lease=SWEEP_LEASE)


def _holding(result: object) -> Record:
    return replace(new_claim(), state=State.COMPLETED, token="t" * 32, result=result)


def read(ledger: Ledger, name: str) -> Entry:
    """The entry that must stand under `name`."""
    entry = ledger.read(name)
    assert entry is not None, f"{name} was written and is not there"
    assert entry.name == name
    return entry


def insist(ledger: Ledger, expected: Entry, record: Record) -> Entry:
    """Replace until it is won, or something else stands."""
    entry = expected
    for _ in range(_TRIES):
        found = ledger.replace(entry, record)
        assert found is not None, "an entry that nobody removed is gone"
        if found.record == record or found.record != expected.record:
            return found
        entry = found
    raise AssertionError("a replace over what stands keeps losing")


def win(ledger: Ledger, expected: Entry, record: Record) -> Entry:
    """Replace what stands, which must succeed."""
    entry = insist(ledger, expected, record)
    assert entry.record == record, "a replace over what stands must win"
    return entry


def exactly(one: Record, other: Record) -> bool:
    """Equal, and 1, 1.0 and true told apart."""
    parts = [json.dumps([r.result, r.error, dict(r.steps)], sort_keys=True) for r in (one, other)]
    return one == other and parts[0] == parts[1]


def largest(ledger: Ledger, unit: str) -> Record:
    """The record with the longest run of `unit` that fits, up to a length that is long enough."""
    low, high = 0, 40_000
    if ledger.fits(_holding(unit * high)):
        return _holding(unit * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ledger.fits(_holding(unit * middle)) else (low, middle)
    return _holding(unit * low)


def scanned(ledger: Ledger, under: str) -> list[Listed]:
    """Everything below a path."""
    return [item for page in ledger.scan(under) for item in page.items]


def names_of(items: Sequence[Listed]) -> list[str]:
    """The names listed, in order."""
    return sorted(item.name for item in items)


def every_call(
    ledger: Ledger, entry: Entry, deadline: Callable[[], Deadline]
) -> list[Callable[[], object]]:
    """Each of the ledger's methods, with a deadline that is set when it is called."""
    return [
        lambda: ledger.create(new_name(), new_claim(), deadline=deadline()),
        lambda: ledger.read(entry.name, deadline=deadline()),
        lambda: ledger.read_many([entry.name], deadline=deadline()),
        lambda: list(ledger.scan("contract", deadline=deadline())),
        lambda: ledger.remove([replace(entry, record=new_bar())], deadline=deadline()),
        lambda: ledger.replace(entry, new_claim(), deadline=deadline()),
    ]


def ended(call: Callable[[], object]) -> object:
    """What a call answered, None for LedgerUnavailable; fails if it hangs or raises otherwise."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append([call()])
        except LedgerUnavailable:
            answers.append(None)
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_HANGING)
    assert answers, "a call went on long after its deadline"
    if isinstance(answers[0], Exception):
        raise AssertionError("out of time must be LedgerUnavailable") from answers[0]
    return answers[0]


def race(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The answers of calls that threads make at the same moment."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait(_HANGING)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def one_won(wanted: Sequence[Record], seen: Sequence[Record], standing: Record) -> None:
    """Check a race by what each racer wanted and was shown, and by what stands now."""
    winners = [mine for mine, shown in zip(wanted, seen, strict=True) if shown == mine]
    assert len(winners) == 1, f"{len(winners)} of {len(wanted)} believe that they won"
    assert standing == winners[0], "the winner's record does not stand"
    assert all(shown == standing for shown in seen), "a loser was not shown the winner's record"
