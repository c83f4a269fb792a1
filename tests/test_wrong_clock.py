"""A machine whose clock is wrong by an hour changes nothing: the store's own time decides."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Protocol

import pytest

from idemguard import Claim, Guard, InFlightError, Outcome
from idemguard.clock import Clock
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.strict_ssm import StrictSSM
from tests.explorer import machines
from tests.explorer.priors import stale_claim
from tests.explorer.scenarios import SPACES, Scenario
from tests.explorer.search import Tally, exhaust

HOUR = 3600.0
LEASE = 60.0
RETENTION = 7200.0
SKEWS = (-HOUR, 0.0, HOUR)
#: Of the holder's machine, and of the duplicate's.
PAIRS = list(itertools.product(SKEWS, SKEWS))


class WrongClock(Clock):
    """Runs at the store's pace, and is `skew` seconds away from its time."""

    def __init__(self, store: FrozenClock, skew: float) -> None:
        self._store = store
        self.skew = skew

    def monotonic(self) -> float:
        return self._store.monotonic()

    def wall(self) -> float:
        return self._store.wall() + self.skew

    def sleep(self, seconds: float) -> None:
        self._store.sleep(seconds)

    def jitter(self, upto: float) -> float:
        return self._store.jitter(upto)


@pytest.fixture
def store() -> FrozenClock:
    return FrozenClock()


class Machine(Protocol):
    """Makes a guard on a machine whose clock is wrong by that many seconds."""

    def __call__(self, skew: float, *, lease: float | None = LEASE) -> Guard: ...


@pytest.fixture
def machine(store: FrozenClock) -> Machine:
    ssm = StrictSSM(store)

    def make(skew: float, *, lease: float | None = LEASE) -> Guard:
        clock = WrongClock(store, skew)
        return Guard(
            ledger=SSMLedger(ssm, clock=clock),
            clock=clock,
            operation="pay",
            lease=lease,
            retention=RETENTION,
            local_cache=False,
        )

    return make


@pytest.mark.parametrize(("holder", "taker"), PAIRS)
def test_a_dead_holder_is_taken_over_when_its_lease_ends_by_the_stores_time(
    store: FrozenClock, machine: Machine, holder: float, taker: float
) -> None:
    machine(holder).claim("k")
    store.advance(LEASE - 2)
    with pytest.raises(InFlightError):
        machine(taker).run_exactly_once("k", lambda: "taken over")
    store.advance(4)
    execution = machine(taker).run_exactly_once("k", lambda: "taken over")
    assert (execution.outcome, execution.attempt) == (Outcome.EXECUTED, 2)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_result_is_replayed_until_retention_ends_by_the_stores_time(
    store: FrozenClock, machine: Machine, first: float, second: float
) -> None:
    machine(first).run_exactly_once("k", lambda: "first")
    store.advance(RETENTION - 2)
    assert machine(second).run_exactly_once("k", lambda: "second").result == "first"
    store.advance(4)
    assert machine(second).run_exactly_once("k", lambda: "second").result == "second"


@pytest.mark.parametrize(("holder", "taker"), PAIRS)
def test_a_late_holder_loses_to_its_successor_whatever_the_clocks_say(
    store: FrozenClock, machine: Machine, holder: float, taker: float
) -> None:
    late, successor = machine(holder), machine(taker)
    claim = late.claim("k")
    assert isinstance(claim, Claim)
    store.advance(LEASE + 2)
    successor.run_exactly_once("k", lambda: "successor")
    late.complete(claim, "late")
    assert successor.run_exactly_once("k", lambda: "third").result == "successor"


@pytest.mark.parametrize("correction", [-HOUR, HOUR])
def test_a_clock_that_is_set_right_in_mid_work_loses_nothing(
    store: FrozenClock, machine: Machine, correction: float
) -> None:
    guard = machine(-correction)
    clock = guard.options.clock
    assert isinstance(clock, WrongClock)

    def work() -> str:
        clock.skew = 0.0
        store.advance(1)
        return "done"

    guard.run_exactly_once("k", work)
    assert machine(0.0).run_exactly_once("k", lambda: "again").result == "done"


@pytest.mark.parametrize("skew", SKEWS)
def test_the_lease_is_the_time_left_in_the_context(
    store: FrozenClock, machine: Machine, skew: float
) -> None:
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 30_000)
    machine(skew, lease=None).claim("k", context=context)
    store.advance(29)
    with pytest.raises(InFlightError):
        machine(-skew).run_exactly_once("k", lambda: None)
    store.advance(3)
    assert machine(-skew).run_exactly_once("k", lambda: 1).outcome is Outcome.EXECUTED


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("two deliveries, the holder died", prior=stale_claim),
        next(space for space in SPACES if space.name == "two deliveries, one fault"),
    ],
    ids=str,
)
def test_every_schedule_comes_to_the_same_with_right_and_wrong_clocks(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    def search(skew: float) -> Tally:
        # Odd machines are ahead by that much, even ones behind.
        monkeypatch.setattr(machines, "HOUR", skew)
        return exhaust(scenario)

    right, ahead, behind = (search(skew) for skew in (0.0, HOUR, -HOUR))
    assert right.complete
    assert right.schedules > 100
    assert not right.found
    assert right.outcomes == ahead.outcomes == behind.outcomes
