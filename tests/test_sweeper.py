"""A sweep removes what nobody may act on any more, and never a claim."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest

from idemguard import (
    Guard,
    InFlightError,
    InvalidOption,
    LedgerMisconfigured,
    LedgerUnavailable,
    Outcome,
)
from idemguard.ledger import Ledger
from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.lifecycle import LONGEST_LEASE, SWEEP_LEASE, bar, may_be_swept
from idemguard.options import ledger_in_place
from idemguard.record import Record, State
from idemguard.sweeper import Sweeper, SweepReport, handler
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.ssm_faults import Fault
from idemguard.testing.strict_ssm import StrictSSM
from tests.ssm_world import LEASE, RETENTION, World, claimed

WRITES = {"PutParameter", "DeleteParameter", "DeleteParameters"}
EXPIRED = RETENTION + LEASE + 10


class Shelf:
    """A ledger on the strict fake with some records in it."""

    def __init__(self, **ssm: Any) -> None:
        self.clock = FrozenClock()
        settings: dict[str, Any] = {"empty_pages": True, **ssm}
        self.ssm = StrictSSM(self.clock, **settings)
        self.ledger = SSMLedger(self.ssm, clock=self.clock)

    def fill(
        self,
        count: int,
        state: State = State.COMPLETED,
        path: str = "ns/op",
        *,
        every: float = 0.0,
    ) -> list[str]:
        names = [f"{path}/{state.value}{number:039x}" for number in range(count)]
        for name in names:
            record = Record(state, f"token of {name}", lease=LEASE, retention=RETENTION)
            self.ledger.create(name, record)
            self.clock.advance(every)
        return names

    def age(self, seconds: float = EXPIRED) -> None:
        self.clock.advance(seconds)
        self.ssm.calls.clear()

    def sweep(self, **arguments: Any) -> SweepReport:
        settings: dict[str, Any] = {"dry_run": False, **arguments}
        report = Sweeper(self.ledger, clock=self.clock).sweep(**settings)
        counted = (
            report.kept + report.swept + report.gone_already + report.unreadable + report.backlog
        )
        assert counted == report.scanned
        return report

    def count(self, *operations: str) -> int:
        return sum(call[0] in operations for call in self.ssm.calls)

    @property
    def names(self) -> list[str]:
        return [item.name for page in self.ledger.scan() for item in page.items]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


# What may be swept.


@pytest.mark.parametrize(
    ("state", "until"),
    [
        (State.COMPLETED, 100.0),
        (State.FAILED, 100.0),
        (State.RELEASED, 100.0),
        # Its lease of 10 s, and then the horizon.
        (State.CLAIMED, 110.0),
        (State.SWEPT, 10.0),
        (State.VACANT, LONGEST_LEASE),
        (State.UNKNOWN, 2 * LONGEST_LEASE),
    ],
)
def test_a_record_may_be_swept_once_nobody_may_act_on_it(state: State, until: float) -> None:
    record = Record(state, "t", lease=10.0, retention=100.0)
    assert not may_be_swept(record, until - 1)
    assert may_be_swept(record, until)


def test_a_lease_longer_than_the_retention_keeps_a_record() -> None:
    record = Record(State.COMPLETED, "t", lease=500.0, retention=100.0)
    assert not may_be_swept(record, 499)
    assert may_be_swept(record, 500)
    assert not may_be_swept(record.ended(State.CLAIMED), 999)


def test_a_lapsed_bar_leaves_the_fence_to_go_on_from(shelf: Shelf) -> None:
    [name] = shelf.fill(1)
    entry = shelf.ledger.read(name)
    assert entry is not None
    barred = shelf.ledger.replace(entry, bar(entry.record.ended(State.COMPLETED, fence=7), "b"))
    assert barred is not None
    assert (barred.record.state, barred.record.fence) == (State.SWEPT, 7)
    assert barred.record.lease == barred.record.horizon == SWEEP_LEASE


def test_expired_records_go_and_all_others_stay(shelf: Shelf) -> None:
    for state in (State.COMPLETED, State.FAILED, State.RELEASED, State.CLAIMED):
        shelf.fill(13, state)
    shelf.age()
    fresh = shelf.fill(7, path="ns/fresh")
    report = shelf.sweep()
    assert shelf.names == fresh
    assert (report.swept, report.kept, report.backlog) == (52, 7, 0)
    assert report.done
    assert report.stopped == ""


def test_a_claim_stays_for_its_horizon_after_its_lease(shelf: Shelf) -> None:
    names = shelf.fill(3, State.CLAIMED)
    shelf.age(RETENTION + LEASE - 5)
    report = shelf.sweep()
    assert shelf.names == names
    assert (report.kept, report.swept) == (3, 0)


def test_a_dry_run_writes_nothing_and_tells_what_a_sweep_would_remove(shelf: Shelf) -> None:
    names = shelf.fill(23)
    shelf.age()
    shelf.fill(4, path="ns/fresh")
    shelf.ssm.calls.clear()
    report = shelf.sweep(dry_run=True)
    assert shelf.count(*WRITES) == 0
    assert (report.dry_run, report.backlog, report.kept, report.swept) == (True, 23, 4, 0)
    assert set(names) < set(shelf.names)
    assert shelf.sweep().swept == 23


def test_by_default_a_sweep_is_a_dry_run(shelf: Shelf) -> None:
    shelf.fill(1)
    shelf.age()
    assert Sweeper(shelf.ledger, clock=shelf.clock).sweep().dry_run
    assert shelf.count(*WRITES) == 0


def test_only_names_below_the_path_are_swept(shelf: Shelf) -> None:
    shelf.fill(3, path="orders/op")
    others = shelf.fill(3, path="orders2/op")
    shelf.age()
    report = shelf.sweep(under="orders/")
    assert shelf.names == others
    assert report.head_room is None


# R21: many records, at a rate, on a store that behaves at its worst.


def test_twelve_thousand_expired_records_are_swept_at_the_rate_with_few_calls() -> None:
    shelf = Shelf(
        standard_limit=12_000, write_quota=3, read_quota=40, delete_quota=5, list_quota=10
    )
    names = shelf.fill(12_000, every=0.4)
    shelf.age()
    gone_before_read, gone_before_delete = names[5000], names[7000]
    seen: Counter[str] = Counter()

    def others(operation: str, request: Mapping[str, Any]) -> None:
        seen[operation] += 1
        for name, stage in ((gone_before_read, "GetParameters"), (gone_before_delete, "Delete")):
            full = f"/idempotency/{name}"
            if operation.startswith(stage) and full in request.get("Names", ()) and not seen[name]:
                seen[name] += 1
                shelf.ssm.delete_parameter(Name=full)

    shelf.ssm.before_call = others
    standing: list[int] = []
    began = shelf.clock.monotonic()
    report = shelf.sweep(progress=lambda sofar: standing.append(sofar.barred))
    took = shelf.clock.monotonic() - began

    assert shelf.names == []
    assert (report.scanned, report.swept, report.gone_already) == (12_000, 11_999, 1)
    assert (report.backlog, report.barred, report.done) == (0, 0, True)
    calls = sum(seen[operation] for operation in seen if operation[0].isupper()) - 2
    assert report.calls <= calls <= 1.4 * 12_000
    assert report.calls_per_record <= 1.4
    # The rate decides, not the 60 seconds for which each bar stands.
    assert 12_000 / 1.5 <= took <= 12_000 / 1.5 + 120
    assert max(len(call) - 1 for call in shelf.ssm.calls if call[0] == "DeleteParameters") == 10
    # Bounded by rate and delay, whatever the number of records.
    assert max(standing) <= 1.5 * 90


def test_calls_grow_linearly() -> None:
    calls = []
    for count in (200, 400):
        shelf = Shelf()
        shelf.fill(count)
        shelf.age()
        report = shelf.sweep()
        assert report.calls == len(shelf.ssm.calls)
        calls.append(report.calls)
    assert calls[1] <= 2 * calls[0]


@pytest.mark.parametrize("rate", [0.05, 0.4, 1.5, 9.0])
def test_no_second_sees_more_writes_than_the_rate_and_every_bar_counts(rate: float) -> None:
    shelf = Shelf()
    shelf.fill(25)
    shelf.age()
    moments: list[float] = []

    def note(operation: str, request: Mapping[str, Any]) -> None:
        if operation == "PutParameter":
            moments.append(shelf.clock.monotonic())

    shelf.ssm.before_call = note
    assert shelf.sweep(rate=rate).swept == 25
    assert len(moments) == 25
    gaps = [after - before for before, after in pairwise(moments)]
    assert min(gaps) >= 1 / rate - 1e-6


def test_at_a_high_rate_the_bars_that_stand_are_bounded() -> None:
    shelf = Shelf()
    shelf.fill(2500)
    shelf.age()
    standing: list[int] = []
    report = shelf.sweep(rate=1000.0, progress=lambda sofar: standing.append(sofar.barred))
    assert report.swept == 2500
    assert max(standing) <= 1000


def test_a_store_that_throttles_now_and_then_is_swept_all_the_same() -> None:
    shelf = Shelf()
    shelf.fill(40)
    shelf.age()
    for operation in ("DescribeParameters", "GetParameters", "PutParameter"):
        shelf.ssm.inject(operation, Fault.throttle(), times=3, after=1)
    assert shelf.sweep().swept == 40


def test_a_store_that_throttles_without_end_ends_the_sweep_and_what_was_barred_is_removed() -> None:
    shelf = Shelf()
    shelf.fill(40)
    shelf.age()
    shelf.ssm.inject("PutParameter", Fault.throttle(), times=10_000, after=25)
    report = shelf.sweep()
    assert "PutParameter" in report.stopped
    assert (report.swept, report.backlog, report.barred) == (25, 15, 0)
    assert not report.done


def test_a_store_that_cannot_be_listed_is_an_error() -> None:
    shelf = Shelf()
    shelf.ssm.inject("DescribeParameters", Fault.throttle(), times=10_000)
    with pytest.raises(LedgerUnavailable):
        shelf.sweep()


# Time.


def test_a_sweep_ends_in_time_with_its_bars_removed_and_the_next_ones_do_the_rest() -> None:
    shelf = Shelf()
    shelf.fill(500)
    shelf.age()
    resume, swept, runs = None, 0, 0
    while True:
        began = shelf.clock.monotonic()
        report = shelf.sweep(time_limit=120, resume=resume)
        assert shelf.clock.monotonic() - began <= 120
        assert report.barred == 0
        assert report.swept == shelf.count("PutParameter") - swept
        swept, resume, runs = swept + report.swept, report.resume, runs + 1
        if report.done:
            break
        assert report.stopped == "its time is up"
    # 55 of the 120 seconds are for barring, at 1.5 a second.
    assert (swept, shelf.names) == (500, [])
    assert runs == 6 + 1


def test_a_bar_that_is_due_too_late_is_left_to_the_next_sweep() -> None:
    shelf = Shelf()
    shelf.fill(200)
    shelf.age()
    shelf.ssm.inject("PutParameter", Fault.slow(20), after=80)
    began = shelf.clock.monotonic()
    report = shelf.sweep(time_limit=120)
    assert shelf.clock.monotonic() - began <= 120
    assert report.stopped == "its time is up"
    assert 0 < report.barred < 11
    assert report.swept >= 70


def test_a_read_that_has_grown_old_is_read_again_before_its_bar(shelf: Shelf) -> None:
    shelf.fill(10)
    shelf.age()
    # A bar counts only if it lands within 30 seconds of the read that it rests on.
    for after in (1, 4):
        shelf.ssm.inject("PutParameter", Fault.slow(22), after=after)
    assert shelf.sweep().swept == 10
    assert shelf.count("PutParameter") == 10


def test_a_resumed_sweep_does_not_list_again_what_it_has_seen() -> None:
    shelf = Shelf(empty_pages=False)
    shelf.fill(200, path="a/fresh")
    shelf.age()
    shelf.fill(200, path="a/fresher")
    shelf.ssm.calls.clear()
    pages: list[str | None] = []
    shelf.sweep(dry_run=True, progress=lambda sofar: pages.append(sofar.resume))
    report = shelf.sweep(resume=pages[-1])
    assert report.scanned == 50
    assert report.head_room is None


def test_a_cursor_that_the_store_knows_no_more_starts_anew(shelf: Shelf) -> None:
    shelf.fill(3)
    shelf.age()
    assert shelf.sweep(resume="not a token").swept == 3


def test_a_lambda_context_limits_the_sweep() -> None:
    world = World()
    for number in range(300):
        world.ledger.create(f"ns/op/{number:040x}", claimed("t").ended(State.COMPLETED))
    world.clock.advance(EXPIRED)

    class Lambda:
        def __init__(self) -> None:
            self.ends = world.clock.monotonic() + 100

        def get_remaining_time_in_millis(self) -> int:
            return round((self.ends - world.clock.monotonic()) * 1000)

    context = Lambda()
    report = Sweeper(world.ledger, clock=world.clock).sweep(dry_run=False, context=context)
    assert context.get_remaining_time_in_millis() > 0
    assert 0 < report.swept < 300
    assert report.barred == 0


def test_too_little_time_to_remove_anything_is_refused(shelf: Shelf) -> None:
    with pytest.raises(InvalidOption, match="time_limit"):
        shelf.sweep(time_limit=60)
    assert shelf.ssm.calls == []
    assert shelf.sweep(time_limit=60, dry_run=True).done


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_none_is_refused(shelf: Shelf, rate: float) -> None:
    with pytest.raises(InvalidOption, match="rate"):
        shelf.sweep(rate=rate)


def test_bars_of_a_sweep_that_died_are_swept_once_they_lapse(shelf: Shelf) -> None:
    names = shelf.fill(15)
    shelf.age()

    class Killed(BaseException):
        pass

    def kill(operation: str, request: Mapping[str, Any]) -> None:
        if operation == "DeleteParameters":
            raise Killed

    shelf.ssm.before_call = kill
    with pytest.raises(Killed):
        shelf.sweep()
    shelf.ssm.before_call = None
    assert shelf.names == names
    assert shelf.sweep().kept == 15
    shelf.clock.advance(SWEEP_LEASE)
    assert shelf.sweep().swept == 15


# Other people's parameters, odd records, missing permissions.


def test_parameters_that_are_no_records_are_counted_and_left_alone(shelf: Shelf) -> None:
    shelf.fill(25)
    for number in range(3):
        shelf.ssm.put_parameter(
            Name=f"/idempotency/ns/op/{number}-config", Value="host=db", Type="String"
        )
    newer = '{"f":99,"x":"d","t":"t"}'
    told = "idemguard: completed, kept 60 s"
    shelf.ssm.put_parameter(
        Name="/idempotency/ns/op/newer", Value=newer, Type="String", Description=told
    )
    shelf.age()
    report = shelf.sweep()
    assert (report.unreadable, report.swept, report.backlog) == (4, 25, 0)
    assert len(shelf.names) == 4
    assert all(call[0] != "PutParameter" or "config" not in call[1] for call in shelf.ssm.calls)


def test_a_record_that_the_store_refuses_to_change_does_not_end_the_sweep(shelf: Shelf) -> None:
    names = shelf.fill(20)
    full = f"/idempotency/{names[4]}"
    there = shelf.ssm.get_parameter(Name=full)["Parameter"]["Value"]
    shelf.clock.advance(1)
    shelf.ssm.put_parameter(
        Name=full,
        Value=there,
        Type="String",
        Overwrite=True,
        Tier="Advanced",
        Description="idemguard: completed, kept 60 s",
    )
    shelf.age()
    report = shelf.sweep()
    assert (report.swept, report.refused, report.backlog) == (19, 1, 1)
    assert "tier" in report.refusal
    assert shelf.names == [names[4]]


@pytest.mark.parametrize("action", ["DescribeParameters", "GetParameters", "PutParameter"])
def test_a_missing_permission_is_an_error_that_names_it(shelf: Shelf, action: str) -> None:
    shelf.fill(20)
    shelf.age()
    shelf.ssm.inject(action, Fault.denied(), times=10_000)
    with pytest.raises(LedgerMisconfigured, match=f"ssm:{action}"):
        shelf.sweep()
    assert shelf.count("PutParameter") <= 10
    assert shelf.count("DeleteParameters") == 0


def test_a_missing_permission_to_delete_is_an_error_that_names_it(shelf: Shelf) -> None:
    shelf.fill(20)
    shelf.age()
    shelf.ssm.inject("DeleteParameters", Fault.denied(), times=10_000)
    with pytest.raises(LedgerMisconfigured, match="ssm:DeleteParameters"):
        shelf.sweep()


def test_a_delete_whose_answer_is_lost_is_not_sent_again(shelf: Shelf) -> None:
    shelf.fill(10)
    shelf.age()
    shelf.ssm.inject("DeleteParameters", Fault.lost_response())
    report = shelf.sweep()
    assert shelf.count("DeleteParameters") == 1
    assert report.barred == report.backlog == 10
    assert shelf.names == []


# Races: a claim is never lost, at whichever stage of the sweep it comes.


def swept_meanwhile(world: World, stage: str, rival: Callable[[], object]) -> SweepReport:
    """Sweep, and let `rival` act once right before the sweep's first call of that kind."""

    def at(operation: str, request: Mapping[str, Any]) -> None:
        if operation == stage:
            world.store.before_call = None
            rival()

    world.store.before_call = at
    return Sweeper(world.ledger, clock=world.clock).sweep(dry_run=False)


@pytest.fixture
def world() -> World:
    """One key, done once, and expired."""
    world = World()
    world.deliver()
    world.clock.advance(EXPIRED)
    return world


@pytest.mark.parametrize("stage", ["DescribeParameters", "GetParameters", "PutParameter"])
@pytest.mark.parametrize("completes", [True, False])
def test_a_claim_that_comes_before_the_bar_is_left_alone(
    world: World, stage: str, completes: bool
) -> None:
    if completes:
        report = swept_meanwhile(world, stage, world.deliver)
        assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED
    else:
        report = swept_meanwhile(world, stage, lambda: world.guard().claim("k"))
        assert world.read().record.state is State.CLAIMED
    assert world.effects == [1] * (1 + completes)
    assert (report.swept, report.kept, report.barred) == (0, 1, 0)


def test_a_claim_that_comes_while_the_bar_stands_is_told_to_come_later(world: World) -> None:
    def rival() -> None:
        with pytest.raises(InFlightError):
            world.deliver()

    assert swept_meanwhile(world, "DeleteParameters", rival).swept == 1
    # AWS does not give a deleted name away for 30 seconds.
    with pytest.raises(InFlightError):
        world.deliver()
    world.clock.advance(31)
    assert world.deliver().outcome is Outcome.EXECUTED
    assert world.effects == [1, 1]


@pytest.mark.parametrize("passed", [0.0, 65.0, 100.0, 200.0])
def test_a_claim_decided_before_the_bar_and_landing_after_it_wins_nothing(
    world: World, passed: float
) -> None:
    """The taker has read the expired record; then come the bar and perhaps the delete; then its write."""

    def sweep_in_between(operation: str, request: Mapping[str, Any]) -> None:
        if operation == "PutParameter" and request["Overwrite"]:
            world.store.before_call = None
            if passed:
                Sweeper(world.ledger, clock=world.clock).sweep(dry_run=False)
                world.clock.advance(passed - 60)
            else:
                entry = world.read()
                world.ledger.replace(entry, bar(entry.record, "sweeper"))

    world.store.before_call = sweep_in_between
    try:
        world.deliver()
    except InFlightError:
        world.clock.advance(SWEEP_LEASE + LONGEST_LEASE)
        world.deliver()
    assert world.effects == [1, 1]
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED


def test_a_bar_that_lands_late_does_not_count(world: World) -> None:
    world.store.inject("PutParameter", Fault.slow(40))
    report = Sweeper(world.ledger, clock=world.clock).sweep(dry_run=False)
    assert report.swept == 0
    assert world.count("DeleteParameters") == 0
    assert world.deliver().outcome is Outcome.EXECUTED


def test_a_bar_that_lapsed_before_its_delete_is_not_deleted(world: World) -> None:
    def rival() -> None:
        world.clock.advance(SWEEP_LEASE)
        world.deliver()

    # The second look comes after the rival has taken over the lapsed bar.
    reads = 0

    def at_second_read(operation: str, request: Mapping[str, Any]) -> None:
        nonlocal reads
        reads += operation == "GetParameters"
        if reads == 2:
            world.store.before_call = None
            rival()

    world.store.before_call = at_second_read
    report = Sweeper(world.ledger, clock=world.clock).sweep(dry_run=False)
    assert (report.swept, report.barred) == (0, 1)
    assert world.count("DeleteParameters") == 0
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED
    assert world.effects == [1, 1]


def test_two_sweeps_at_once_remove_each_record_once() -> None:
    shelf = Shelf()
    names = shelf.fill(30)
    shelf.age()
    second: list[SweepReport] = []

    def other_sweep(operation: str, request: Mapping[str, Any]) -> None:
        if operation == "PutParameter" and request["Name"].endswith(names[15]):
            shelf.ssm.before_call = None
            second.append(shelf.sweep())

    shelf.ssm.before_call = other_sweep
    first = shelf.sweep()
    assert shelf.names == []
    assert second[0].swept + first.swept == 30
    assert first.swept > 0
    assert second[0].swept > 0


# Every ledger.


def test_a_ledger_in_memory_is_swept_at_once() -> None:
    clock = FrozenClock()
    ledger = MemoryLedger(clock)
    guard = Guard(ledger=ledger, retention=100, clock=clock, operation="work", local_cache=False)
    for number in range(120):
        guard.run_exactly_once(number, lambda: None)
    clock.advance(901)
    guard.run_exactly_once("fresh", lambda: None)
    began = clock.monotonic()
    report = Sweeper(ledger, clock=clock).sweep(dry_run=False, rate=100)
    assert clock.monotonic() - began < 2
    assert (report.swept, report.kept, report.capacity) == (120, 1, None)
    assert guard.run_exactly_once("fresh", lambda: None).outcome is Outcome.SKIPPED_COMPLETED
    assert guard.run_exactly_once(5, lambda: None).outcome is Outcome.EXECUTED


def test_a_listing_in_memory_goes_on_where_it_stopped_whatever_was_removed() -> None:
    ledger: Ledger = MemoryLedger()
    for number in range(120):
        ledger.create(f"ns/op/{number:03}", claimed("t"))
    first, *_ = ledger.scan()
    for item in first.items:
        entry = ledger.read(item.name)
        assert entry is not None
        ledger.remove([entry])
    rest = [item.name for page in ledger.scan(start=first.cursor) for item in page.items]
    assert rest == [f"ns/op/{number:03}" for number in range(50, 120)]


# The report, the metrics and the Lambda function.


def test_the_report_is_json_and_tells_head_room_and_how_much_comes_in(shelf: Shelf) -> None:
    shelf.fill(10)
    shelf.age(3 * 24 * 3600)
    shelf.fill(4, path="ns/fresh")
    report = shelf.sweep()
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()
    assert (report.capacity, report.head_room) == (10_000, 9_996)
    assert report.written_last_day == 4


class Metrics:
    def __init__(self) -> None:
        self.counted: dict[str, float] = {}

    def add_metric(self, *, name: str, unit: str, value: float) -> None:
        self.counted[name] = value


def test_a_sweep_is_counted_on_metrics(shelf: Shelf) -> None:
    shelf.fill(8)
    shelf.age()
    metrics = Metrics()
    Sweeper(shelf.ledger, metrics=metrics, clock=shelf.clock).sweep()
    assert metrics.counted == {
        "IdempotencySwept": 0,
        "IdempotencySweepBacklog": 8,
        "IdempotencyRecords": 8,
        "IdempotencyHeadRoom": 9992,
    }


class LongContext:
    def get_remaining_time_in_millis(self) -> int:
        return 900_000


def test_the_lambda_function_is_a_dry_run_unless_its_event_says_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = MemoryLedger(clock := FrozenClock())
    ledger.create("ns/op/k", claimed("t").ended(State.COMPLETED))
    clock.advance(EXPIRED)
    schedule = {"detail-type": "Scheduled Event", "source": "aws.events", "detail": {}}
    with ledger_in_place(ledger):
        answer = handler(schedule, LongContext())
        assert (answer["dry_run"], answer["backlog"]) == (True, 1)
        assert json.loads(capsys.readouterr().out) == {"idemguard_sweep": answer}
        assert handler({"under": "others", "dry_run": False}, LongContext())["scanned"] == 0
        assert handler({"dry_run": False, "rate": 50}, LongContext())["swept"] == 1


@pytest.mark.parametrize(
    "event", [{"dry_run": "false"}, {"dry_run": None}, {"rate": "fast"}, {"under": 1}]
)
def test_the_lambda_function_refuses_an_event_of_wrong_types(event: dict[str, Any]) -> None:
    with ledger_in_place(MemoryLedger()), pytest.raises(InvalidOption):
        handler(event, LongContext())


def test_the_lambda_function_counts_on_powertools_metrics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "tests")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "sweeper")
    with ledger_in_place(MemoryLedger()):
        handler({}, LongContext())
    told = capsys.readouterr().out.splitlines()
    counted = next(json.loads(line) for line in told if "_aws" in line)
    assert counted["IdempotencySweepBacklog"] == [0.0]
