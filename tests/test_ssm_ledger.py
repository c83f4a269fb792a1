"""The ticket rule on Parameter Store: who holds a name, whatever happens to the calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from idemguard import InFlightError, Outcome
from idemguard.ledgers.ssm import SSMLedger
from idemguard.record import State
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.ssm_faults import Fault
from idemguard.testing.strict_ssm import StrictSSM
from tests.ssm_world import LEASE, RETENTION, WorkFailed, World, claimed, fail

#: An answer that is lost, then sent again by this package, or by the SDK below it.
LOST = pytest.mark.parametrize(
    "lost", [Fault.lost_response(), Fault.lost_response(resent=True)], ids=["ours", "the SDK's"]
)


@pytest.fixture
def world() -> World:
    return World()


# An own write whose answer was lost is known by its token.


@LOST
def test_a_create_whose_answer_was_lost_is_won(world: World, lost: Fault) -> None:
    world.store.inject("PutParameter", lost)
    assert world.deliver().outcome is Outcome.EXECUTED
    assert world.effects == [1]
    assert world.versions() == [State.CLAIMED, State.COMPLETED]


@LOST
def test_a_takeover_whose_answer_was_lost_is_won(world: World, lost: Fault) -> None:
    world.create(claimed("dead"))
    world.clock.advance(LEASE + 2)
    world.store.inject("PutParameter", lost, after=1)
    execution = world.deliver()
    assert (execution.outcome, execution.attempt) == (Outcome.EXECUTED, 2)
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED
    assert world.effects == [1]


@LOST
def test_a_completion_whose_answer_was_lost_is_done(world: World, lost: Fault) -> None:
    world.store.inject("PutParameter", lost, after=1)
    assert world.deliver().outcome is Outcome.EXECUTED
    # Written twice: the second version does not count.
    assert world.versions() == [State.CLAIMED, State.COMPLETED, State.COMPLETED]
    again = world.deliver()
    assert (again.outcome, again.result) == (Outcome.SKIPPED_COMPLETED, 1)


@LOST
def test_a_release_whose_answer_was_lost_is_done(world: World, lost: Fault) -> None:
    world.store.inject("PutParameter", lost, after=1)
    with pytest.raises(WorkFailed):
        world.deliver(fail)
    execution = world.deliver()
    assert (execution.outcome, execution.attempt) == (Outcome.EXECUTED, 2)


def test_a_bare_record_of_another_token_is_not_taken_for_ones_own(world: World) -> None:
    world.create(claimed("somebody"))
    world.store.inject("PutParameter", Fault.lost_response(resent=True))
    with pytest.raises(InFlightError):
        world.deliver()
    assert world.effects == []


# Entries that do not count.


def test_readers_skip_entries_that_do_not_count(world: World) -> None:
    late = world.create(claimed("a"))
    successor = claimed("b")
    won = world.ledger.replace(late, successor)
    assert won is not None
    for _ in range(5):
        world.ledger.replace(late, late.record.ended(State.COMPLETED))
    assert world.versions() == [State.CLAIMED] * 2 + [State.COMPLETED] * 5
    assert world.read().record == successor
    assert world.ledger.read_many([world.name])[world.name].record == successor


def test_a_holder_completes_over_entries_that_do_not_count(world: World) -> None:
    late = world.create(claimed("dead"))
    world.clock.advance(LEASE + 2)

    def work() -> str:
        for _ in range(3):
            world.ledger.replace(late, late.record.ended(State.RELEASED))
        return "done"

    world.deliver(work)
    again = world.deliver()
    assert (again.outcome, again.result) == (Outcome.SKIPPED_COMPLETED, "done")


def test_an_entry_pushed_out_of_the_history_is_unknown_and_blocks_until_its_lease_is_over(
    world: World,
) -> None:
    late = world.create(claimed("a"))
    done = claimed("b").ended(State.COMPLETED)
    assert world.ledger.replace(late, done) is not None
    for _ in range(100):
        world.ledger.replace(late, late.record.ended(State.RELEASED))
    assert world.read().record.state is State.UNKNOWN
    # Nobody can tell whose it is: as long as the longest lease, somebody may be at work.
    for waited in (0, 890):
        world.clock.advance(waited)
        with pytest.raises(InFlightError):
            world.deliver()
    world.clock.advance(20)
    assert world.deliver().outcome is Outcome.EXECUTED
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED


def test_an_unknown_entry_blocks_for_the_longest_lease_that_its_writers_asked_for(
    world: World,
) -> None:
    late = world.create(claimed("a", lease=5000.0))
    assert world.ledger.replace(late, claimed("b")) is not None
    for _ in range(100):
        world.ledger.replace(late, late.record.ended(State.RELEASED))
    world.clock.advance(4990)
    with pytest.raises(InFlightError):
        world.deliver()
    world.clock.advance(20)
    assert world.deliver().outcome is Outcome.EXECUTED


def test_a_name_whose_only_entry_does_not_count_is_vacant(world: World) -> None:
    late = world.create(claimed("a"))
    world.store.delete_parameter(Name=world.full)
    world.clock.advance(31)
    # An overwrite that was meant for the old life of the name makes a first version of a new one.
    found = world.ledger.replace(late, late.record.ended(State.COMPLETED))
    assert found is not None
    assert found.record.state is State.VACANT
    assert world.deliver().outcome is Outcome.EXECUTED


# The window.


@pytest.mark.parametrize(("delay", "wins"), [(0, True), (20, True), (27, True), (32, False)])
def test_a_takeover_that_lands_long_after_it_was_decided_does_not_count(
    world: World, delay: float, wins: bool
) -> None:
    dead = world.create(claimed("dead"))
    world.clock.advance(LEASE + 2)
    world.store.inject("PutParameter", Fault.slow(delay))
    taker = claimed("taker")
    found = world.ledger.replace(dead, taker)
    assert found is not None
    assert found.record == world.read().record == (taker if wins else dead.record)


def test_a_write_meant_for_a_names_old_life_does_not_count_in_its_new_one(world: World) -> None:
    released = claimed("a").ended(State.RELEASED)
    seen = world.create(released)
    world.store.delete_parameter(Name=world.full)
    world.clock.advance(31)
    fresh = claimed("b")
    assert world.create(fresh).record == fresh
    # It has the number that it expects: only the time tells the lives apart.
    found = world.ledger.replace(seen, claimed("c"))
    assert world.versions() == [State.CLAIMED, State.CLAIMED]
    assert found is not None
    assert found.record == fresh


@pytest.mark.parametrize("passed", [LEASE - 5, LEASE + 5, RETENTION - 5])
def test_a_completion_counts_however_long_the_work_took(world: World, passed: float) -> None:
    def work() -> str:
        world.clock.advance(passed)
        return "late"

    world.deliver(work)
    again = world.deliver()
    assert (again.outcome, again.result) == (Outcome.SKIPPED_COMPLETED, "late")
    assert world.versions() == [State.CLAIMED, State.COMPLETED], "it counts at the first attempt"


@pytest.mark.parametrize("wrong", [-3600.0, 3600.0])
def test_the_wall_clock_of_the_machine_decides_nothing(wrong: float) -> None:
    store_clock = FrozenClock()
    world = World(StrictSSM(store_clock))
    world.clock = FrozenClock(wall=store_clock.wall() + wrong)
    world.ledger = SSMLedger(world.store, clock=world.clock)

    def both_advance(seconds: float) -> None:
        store_clock.advance(seconds)
        world.clock.advance(seconds)

    world.create(claimed("dead"))
    both_advance(LEASE - 5)
    with pytest.raises(InFlightError):
        world.deliver()
    both_advance(10)
    assert world.deliver().outcome is Outcome.EXECUTED
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED


# Walks, stale reads and contention.


def test_a_walk_that_a_new_life_of_the_name_got_into_starts_over(world: World) -> None:
    late = world.create(claimed("a"))
    world.ledger.replace(late, claimed("b"))
    world.ledger.replace(late, late.record.ended(State.RELEASED))
    fresh = claimed("c").ended(State.RELEASED)

    def between(operation: str, request: Mapping[str, Any]) -> None:
        if request.get("Name") == f"{world.full}:2":
            world.store.before_call = None
            world.store.delete_parameter(Name=world.full)
            world.clock.advance(31)
            first = world.create(claimed("c"))
            world.ledger.replace(first, fresh)

    world.store.before_call = between
    entry = world.read()
    assert entry.record == fresh
    assert entry.age < 2
    # Judged by the old life's numbers, the entry could not be expected.
    taker = claimed("d")
    won = world.ledger.replace(entry, taker)
    assert won is not None
    assert won.record == taker


def test_a_stale_read_can_only_make_a_delivery_come_again(world: World) -> None:
    world.deliver()
    # As of before the completion.
    world.store.stale_next(world.full)
    with pytest.raises(InFlightError):
        world.deliver()
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED
    assert world.effects == [1]


@pytest.mark.parametrize("times", [1, 3, 7])
def test_a_name_that_exists_but_is_not_found_is_never_free(world: World, times: int) -> None:
    world.create(claimed("somebody"))
    world.store.stale_next(world.full, times=times)
    with pytest.raises(InFlightError):
        world.deliver()
    assert world.effects == []


def test_a_store_whose_reads_stay_stale_makes_a_delivery_wait_for_later() -> None:
    clock = FrozenClock()
    world = World(StrictSSM(clock, stale_reads=lambda name: True))
    world.create(claimed("somebody"))
    with pytest.raises(InFlightError):
        world.deliver()
    assert world.effects == []


def test_too_many_updates_at_a_create_is_tried_again(world: World) -> None:
    world.store.inject("PutParameter", Fault.too_many_updates())
    assert world.deliver().outcome is Outcome.EXECUTED


def test_too_many_updates_at_a_takeover_is_decided_again(world: World) -> None:
    world.create(claimed("dead"))
    world.clock.advance(LEASE + 2)
    world.store.inject("PutParameter", Fault.too_many_updates(), times=2, after=1)
    assert world.deliver().outcome is Outcome.EXECUTED
    assert world.effects == [1]


def test_too_many_updates_at_the_completion_is_tried_again(world: World) -> None:
    world.store.inject("PutParameter", Fault.too_many_updates(), times=3, after=1)
    world.deliver()
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED


@pytest.mark.parametrize("dead", [True, False])
def test_too_many_updates_without_end_is_in_flight(world: World, dead: bool) -> None:
    if dead:
        world.create(claimed("dead"))
        world.clock.advance(LEASE + 2)
    world.store.inject("PutParameter", Fault.too_many_updates(), times=1000)
    with pytest.raises(InFlightError):
        world.deliver()
    assert world.effects == []


# Nothing but a sweep deletes.


def test_claims_completions_releases_and_takeovers_delete_nothing(world: World) -> None:
    with pytest.raises(WorkFailed):
        world.deliver(fail)
    world.guard().claim("k")
    world.clock.advance(LEASE + 2)
    world.deliver()
    world.deliver()
    assert world.versions() == [
        State.CLAIMED,
        State.RELEASED,
        State.CLAIMED,
        State.CLAIMED,
        State.COMPLETED,
    ]
    assert world.count("DeleteParameter") == world.count("DeleteParameters") == 0


def test_a_released_key_can_be_claimed_at_once(world: World) -> None:
    with pytest.raises(WorkFailed):
        world.deliver(fail)
    before = world.clock.monotonic()
    assert world.deliver().outcome is Outcome.EXECUTED
    assert world.clock.monotonic() == before, "nobody has to be waited for"


def test_a_name_that_was_just_deleted_is_in_flight_for_half_a_minute(world: World) -> None:
    world.deliver()
    world.store.delete_parameter(Name=world.full)
    with pytest.raises(InFlightError):
        world.deliver()
    world.clock.advance(31)
    assert world.deliver().outcome is Outcome.EXECUTED


@pytest.mark.parametrize("lost", [Fault.lost_response(), Fault.server_error(), Fault.throttle()])
def test_a_delete_is_never_sent_twice(world: World, lost: Fault) -> None:
    bar = world.create(claimed("sweeper", lease=180.0).ended(State.SWEPT))
    world.clock.advance(world.ledger.removal_delay)
    world.store.inject("DeleteParameters", lost)
    assert world.ledger.remove([bar]) == frozenset()
    assert world.count("DeleteParameters") == 1


def test_a_bar_that_is_nearly_over_is_not_deleted(world: World) -> None:
    bar = world.create(claimed("sweeper", lease=180.0).ended(State.SWEPT))
    world.clock.advance(125)
    assert world.ledger.remove([bar]) == frozenset()
    assert world.count("DeleteParameters") == 0


def test_a_barred_name_is_in_flight_until_the_bar_is_over(world: World) -> None:
    world.create(claimed("sweeper", lease=180.0).ended(State.SWEPT))
    world.clock.advance(175)
    with pytest.raises(InFlightError):
        world.deliver()
    world.clock.advance(10)
    assert world.deliver().outcome is Outcome.EXECUTED
