"""The test kit shows a handler what it would meet: duplicates, overlap, kills and a failing ledger."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

import idemguard.testing as kit
from idemguard import Guard, InFlightError, InvalidOption, Ledger, effect_key, idempotent, step
from idemguard.clock import Clock
from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.options import ledger_in_place
from idemguard.testing import (
    CrashReport,
    Deliveries,
    Effects,
    FakeLambdaContext,
    Fault,
    FaultyLedger,
    FrozenClock,
    LedgerContract,
    LedgerFault,
    StrictSSM,
    capture_outcomes,
    deliver,
    deliver_concurrently,
    deliver_with_crashes,
)

Handler = Callable[..., Any]

EVENT: dict[str, Any] = {"id": "order-1", "lines": [1, 2]}
EXECUTED, REPLAYED, IN_FLIGHT = "EXECUTED", "SKIPPED_COMPLETED", "SKIPPED_IN_FLIGHT"


@pytest.fixture
def effects() -> Effects:
    return Effects()


def on_ssm(clock: Clock) -> Ledger:
    return SSMLedger(StrictSSM(clock), clock=clock)


LEDGERS = pytest.mark.parametrize("ledger", [MemoryLedger, on_ssm], ids=["memory", "ssm"])


def simple(effects: Effects, **options: Any) -> Handler:
    """A handler with one effect and no steps."""

    @idempotent(key="id", **options)
    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        effects.record("mail", event["id"])
        return {"order": event["id"]}

    return handler


def careful(effects: Effects) -> Handler:
    """A handler whose every effect is in a step of its own and carries an effect key."""

    def charge() -> str:
        effects.record("charge", key=effect_key("charge"))
        return "payment"

    def mail(payment: str) -> None:
        effects.record("mail", payment, key=effect_key("mail"))

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> str:
        payment = step("charge", charge)
        step("mail", mail, payment)
        return payment

    return handler


class Mailer:
    """A module's client with a method, a static method and a coroutine, for a watch to look at."""

    sent = 0

    def send(self, to: str, *, token: str = "") -> str:
        Mailer.sent += 1
        return f"sent to {to}"

    @classmethod
    def count(cls, host: str) -> str:
        return f"{cls.__name__} {host}"

    @staticmethod
    def ping(host: str) -> str:
        return host

    async def send_later(self, to: str) -> str:
        return f"later to {to}"


mailer = Mailer()


@pytest.fixture
def shop() -> Iterator[types.ModuleType]:
    """A module of a user's, with a client in it."""
    module = types.ModuleType("a_users_shop")
    module.mailer = mailer  # type: ignore[attr-defined]
    module.Mailer = Mailer  # type: ignore[attr-defined]
    module.number = 7  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, a_users_shop=module):
        yield module


# deliver


def test_an_event_is_delivered_as_often_as_asked(effects: Effects) -> None:
    deliveries = deliver(simple(effects), EVENT, times=3, effects=effects)
    assert deliveries.outcomes == [EXECUTED, REPLAYED, REPLAYED]
    assert deliveries.results == [{"order": "order-1"}] * 3
    assert deliveries.errors == [None] * 3
    assert deliveries.executed == 1
    assert deliveries.counts == {"mail": 1}
    assert [each.attempt for each in deliveries] == [1, 0, 0]


def test_the_records_of_a_batch_are_counted_by_key(effects: Effects) -> None:
    @idempotent(key="id", on_in_flight="skip")
    def one(record: dict[str, Any]) -> None:
        effects.record("mail")

    def batch(event: Any, context: Any) -> None:
        for record in event:
            one(record)

    event = [{"id": "a"}, {"id": "b"}, {"id": "a"}]
    deliveries = deliver(batch, event, effects=effects)
    assert deliveries.executed == 1
    assert sorted(deliveries.executions.values()) == [1, 1]
    assert deliveries[0].settled == {EXECUTED: 2, REPLAYED: 1}
    assert len(deliveries[1].keys) == 2
    assert str(deliveries[0]) == "EXECUTED x2, SKIPPED_COMPLETED x1"
    assert "EXECUTED x2, SKIPPED_COMPLETED x1" in deliveries.table()
    assert deliver_concurrently(batch, event, effects=effects).executed == 1


def test_a_key_that_is_executed_twice_is_counted_twice(effects: Effects) -> None:
    clock = FrozenClock()

    @idempotent(key="id", retention=60, clock=clock)
    def work(event: dict[str, Any]) -> None:
        effects.record("mail")

    def handler(event: dict[str, Any], context: Any) -> None:
        clock.advance(24 * 3600)
        work(event)

    assert deliver(handler, EVENT, ledger=MemoryLedger(clock)).executed == 2


def test_an_unguarded_handler_repeats_its_effects(effects: Effects) -> None:
    deliveries = deliver(lambda event, context: effects.record("mail"), EVENT, effects=effects)
    assert deliveries.outcomes == [None, None]
    assert deliveries.counts == {"mail": 2}
    assert repr(deliveries) == "<not guarded, not guarded; effects: mail 2>"


def test_each_delivery_gets_a_copy_of_the_event_and_a_context_of_its_own() -> None:
    seen: list[tuple[Any, FakeLambdaContext]] = []

    def handler(event: dict[str, Any], context: FakeLambdaContext) -> None:
        assert event == EVENT
        event["lines"].clear()
        assert 29_000 < context.get_remaining_time_in_millis() <= 30_000
        seen.append((event, context))

    deliver(handler, EVENT)
    assert EVENT["lines"] == [1, 2]
    assert seen[0][1].aws_request_id != seen[1][1].aws_request_id


def test_a_context_of_ones_own_goes_to_every_delivery() -> None:
    clock = FrozenClock()
    own = FakeLambdaContext(3, clock)
    clock.advance(2)
    left: list[int] = []
    deliver(
        lambda event, context: left.append(context.get_remaining_time_in_millis()),
        EVENT,
        context=own,
    )
    assert left == [1000, 1000]


def test_a_record_handler_gets_the_event_alone() -> None:
    @idempotent(key="id")
    def handle(record: dict[str, Any]) -> str:
        return str(record["id"])

    assert deliver(handle, EVENT).results == ["order-1", "order-1"]


def test_what_a_handler_raises_is_in_the_result_and_the_next_delivery_tries_again() -> None:
    failures = [OSError("no route to host")]

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> str:
        if failures:
            raise failures[0]
        return "done"

    failure = failures[0]
    deliveries = deliver(handler, EVENT, times=1)
    assert deliveries[0].raised is failure
    assert (deliveries[0].outcome, deliveries[0].error) == (None, "OSError")
    assert "OSError: no route to host" in str(deliveries)
    del failures[0]
    ledger = MemoryLedger()
    failures.append(failure)
    deliver(handler, EVENT, times=1, ledger=ledger)
    del failures[0]
    again = deliver(handler, EVENT, times=1, ledger=ledger)
    assert (again[0].outcome, again[0].attempt) == (EXECUTED, 2)


@pytest.mark.parametrize("signal", [KeyboardInterrupt, pytest.fail.Exception])
def test_signals_that_are_not_the_handlers_end_the_test(signal: type[BaseException]) -> None:
    def handler(event: Any, context: Any) -> None:
        raise signal("stop")

    with pytest.raises(signal):
        deliver(handler, EVENT)


def test_a_warm_container_answers_from_its_cache_and_a_cold_one_asks_the_ledger() -> None:
    def calls(*, warm: bool) -> list[str]:
        ledger = FaultyLedger(MemoryLedger())
        deliver(simple(Effects(), local_cache=True), EVENT, ledger=ledger, warm=warm)
        return ledger.calls

    assert calls(warm=True) == ["claim", "complete"]
    assert calls(warm=False) == ["claim", "complete", "claim"]


def test_deliveries_use_the_ledger_that_is_in_place_and_else_a_new_one(effects: Effects) -> None:
    handler = simple(effects)
    assert deliver(handler, EVENT, times=1).executed == 1
    assert deliver(handler, EVENT, times=1).executed == 1
    with ledger_in_place(MemoryLedger()):
        assert deliver(handler, EVENT, times=1).executed == 1
        assert deliver(handler, EVENT, times=1).executed == 0
        assert deliver_concurrently(handler, EVENT).executed == 0


def test_a_guards_own_ledger_object_is_kept(effects: Effects) -> None:
    handler = simple(effects, ledger=MemoryLedger())
    assert deliver(handler, EVENT, times=1).executed == 1
    assert deliver(handler, EVENT, times=1).executed == 0


def test_an_async_handler_is_awaited_also_from_within_an_async_test() -> None:
    @idempotent(key="id")
    async def handler(event: dict[str, Any], context: Any) -> str:
        await asyncio.sleep(0)
        return "done"

    async def an_async_test() -> Deliveries:
        return deliver(handler, EVENT)

    for deliveries in (deliver(handler, EVENT), asyncio.run(an_async_test())):
        assert deliveries.outcomes == [EXECUTED, REPLAYED]
        assert deliveries.results == ["done", "done"]


def test_of_a_batch_the_delivery_executed_if_any_record_did() -> None:
    @idempotent(key="id")
    def handle(record: dict[str, Any]) -> None: ...

    def handler(event: list[dict[str, Any]], context: Any) -> None:
        for record in event:
            handle(record)

    assert deliver(handler, [{"id": 1}, {"id": 1}]).outcomes == [EXECUTED, REPLAYED]


def test_deliveries_print_as_a_table(effects: Effects) -> None:
    deliveries = deliver(simple(effects), EVENT, effects=effects)
    assert str(deliveries).splitlines() == [
        "delivery  outcome            attempt  result",
        "1         EXECUTED           1        {'order': 'order-1'}",
        "2         SKIPPED_COMPLETED  -        {'order': 'order-1'}",
        "effects: mail 1",
    ]
    assert repr(deliveries) == "<EXECUTED, SKIPPED_COMPLETED; effects: mail 1>"


# deliver_concurrently


def test_overlapping_deliveries_meet_the_claim_of_the_first(effects: Effects) -> None:
    for _ in range(20):
        deliveries = deliver_concurrently(simple(effects), EVENT, workers=4, effects=effects)
        assert deliveries.outcomes == [EXECUTED, IN_FLIGHT, IN_FLIGHT, IN_FLIGHT]
        assert deliveries.errors == [None] + ["InFlightError"] * 3
        assert deliveries.counts == {"mail": 1}


def test_overlapping_deliveries_that_wait_get_the_first_ones_result(effects: Effects) -> None:
    # They are shown the claim and wait; would the first one wait for their end, they gave up.
    handler = simple(effects, on_in_flight="wait", wait_timeout=5)
    deliveries = deliver_concurrently(handler, EVENT, 3, effects=effects, patience=60)
    assert deliveries.outcomes == [EXECUTED, REPLAYED, REPLAYED]
    assert deliveries.results == [{"order": "order-1"}] * 3


def test_overlapping_deliveries_of_an_async_handler(effects: Effects) -> None:
    @idempotent(key="id")
    async def handler(event: dict[str, Any], context: Any) -> None:
        await asyncio.sleep(0)
        effects.record("mail")

    deliveries = deliver_concurrently(handler, EVENT, effects=effects)
    assert deliveries.outcomes == [EXECUTED, IN_FLIGHT]
    assert deliveries.counts == {"mail": 1}


def test_overlapping_deliveries_on_parameter_store(effects: Effects) -> None:
    deliveries = deliver_concurrently(simple(effects), EVENT, ledger=on_ssm(FrozenClock()))
    assert deliveries.outcomes == [EXECUTED, IN_FLIGHT]


def test_a_key_that_differs_by_delivery_lets_overlapping_ones_run_twice(effects: Effects) -> None:
    @idempotent(key=lambda event: str(id(event)))
    def handler(event: dict[str, Any], context: Any) -> None:
        effects.record("mail")

    deliveries = deliver_concurrently(handler, EVENT, effects=effects)
    assert deliveries.outcomes == [EXECUTED, EXECUTED]
    assert deliveries.counts == {"mail": 2}


def test_a_process_that_is_killed_takes_all_its_workers_with_it(effects: Effects) -> None:
    ledger = FaultyLedger(MemoryLedger())
    ledger.inject(LedgerFault.crash(), on="complete")
    deliveries = deliver_concurrently(simple(effects), EVENT, ledger=ledger, effects=effects)
    assert deliveries.errors[0] == "Crash"
    again = deliver_concurrently(simple(effects), {"id": "order-2"}, ledger=ledger)
    assert again.outcomes == [EXECUTED, IN_FLIGHT]


def test_without_a_hold_one_of_them_runs_all_the_same(effects: Effects) -> None:
    deliveries = deliver_concurrently(simple(effects), EVENT, 4, effects=effects, hold=False)
    assert deliveries.executed == 1
    assert deliveries.counts == {"mail": 1}


# deliver_with_crashes


@LEDGERS
def test_a_careful_handler_does_everything_once_wherever_it_is_killed(
    ledger: Callable[[Clock], Ledger], effects: Effects
) -> None:
    report = deliver_with_crashes(careful(effects), EVENT, effects=effects, ledger=ledger)
    report.assert_once()
    assert all(run.answered for run in report)
    assert {run.result for run in report} == {"payment"}


def test_it_is_killed_at_every_place_there_is(effects: Effects) -> None:
    report = deliver_with_crashes(careful(effects), EVENT, effects=effects)
    assert list(report.counts) == [
        "before the claim is written",
        "after the claim is written",
        "as the work begins",
        "as step 'charge' begins",
        "after effect 'charge'",
        "as step 'charge' ends",
        "before step 'charge' is kept",
        "after step 'charge' is kept",
        "as step 'mail' begins",
        "after effect 'mail'",
        "as step 'mail' ends",
        "before step 'mail' is kept",
        "after step 'mail' is kept",
        "as the work ends",
        "before the completion is written",
        "after the completion is written",
    ]
    assert all(run.deliveries[0].error == "Crash" for run in report)
    assert [run.deliveries[1].outcome for run in report] == [EXECUTED] * 15 + [REPLAYED]
    called_twice = {run.killed for run in report if run.calls["charge"] == 2}
    assert called_twice == {
        "after effect 'charge'",
        "as step 'charge' ends",
        "before step 'charge' is kept",
    }


@LEDGERS
def test_a_hidden_second_effect_is_caught_and_the_message_says_where(
    ledger: Callable[[Clock], Ledger], effects: Effects
) -> None:
    def charge() -> None:
        effects.record("charge", key=effect_key("charge"))

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        effects.record("audit")
        step("charge", charge)

    report = deliver_with_crashes(handler, EVENT, effects=effects, ledger=ledger)
    report.assert_once("charge")
    with pytest.raises(AssertionError) as caught:
        report.assert_once(allow_open=True)
    text = str(caught.value)
    assert text.startswith("'audit' was done 2 times, not once, when the attempt was killed\n")
    assert "\n    as step 'charge' begins\n" in text
    assert "\n    after step 'charge' is kept\n" in text
    assert "give it a step of its own" in text
    assert "after effect 'audit'" not in text
    assert "'charge' was done" not in text
    with pytest.raises(AssertionError, match=r"    after effect 'audit' \*\n"):
        report.assert_once("audit")


def test_an_effect_nobody_recorded_is_caught_by_a_watch(
    effects: Effects, shop: types.ModuleType
) -> None:
    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        shop.mailer.send("a@example.com")
        step("book", lambda: None)

    with effects.watch("a_users_shop.mailer.send", returns=None):
        report = deliver_with_crashes(handler, EVENT, effects=effects)
    with pytest.raises(AssertionError, match="'send' was done 2 times, not once"):
        report.assert_once(allow_open=True)


def test_a_step_without_an_effect_key_is_open_only_until_it_is_kept(effects: Effects) -> None:
    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        step("mail", lambda: effects.record("mail"))
        step("book", lambda: None)

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    report.assert_once(allow_open=True)
    with pytest.raises(AssertionError) as caught:
        report.assert_once()
    places = [line for line in str(caught.value).splitlines() if line.startswith("    ")]
    assert places == [
        "    after effect 'mail' *",
        "    as step 'mail' ends *",
        "    before step 'mail' is kept *",
    ]
    assert "* Between an effect and the note of it" in str(caught.value)
    assert "step of its own" not in str(caught.value)


def test_two_effects_in_one_step_leave_the_first_one_to_be_repeated(effects: Effects) -> None:
    def both() -> None:
        effects.record("charge")
        effects.record("mail")

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        step("both", both)

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    report.assert_once("mail", allow_open=True)
    with pytest.raises(AssertionError, match="after effect 'mail'\n"):
        report.assert_once("charge", allow_open=True)


def test_steps_side_by_side_are_open_each_for_itself(effects: Effects) -> None:
    async def do(name: str) -> None:
        effects.record(name)
        await asyncio.sleep(0.001)

    @idempotent(key="id")
    async def handler(event: dict[str, Any], context: Any) -> None:
        await asyncio.gather(step("a", do, "charge"), step("b", do, "mail"))

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    assert report.worst().counts == {"charge": 2, "mail": 2}
    report.assert_once(allow_open=True)


def test_what_was_done_before_other_guarded_work_is_not_open(effects: Effects) -> None:
    @idempotent(key="id")
    def inner(event: dict[str, Any]) -> None: ...

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        effects.record("mail")
        inner(event)

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    with pytest.raises(AssertionError, match="after the claim is written"):
        report.assert_once(allow_open=True)


def test_an_effect_that_a_step_has_kept_does_not_excuse_another_of_its_name(
    effects: Effects,
) -> None:
    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        effects.record("mail")
        step("mail", lambda: effects.record("mail"))

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    with pytest.raises(AssertionError, match="after step 'mail' is kept\n"):
        report.assert_once(allow_open=True)


def test_a_key_that_is_new_in_each_attempt_protects_nothing(effects: Effects) -> None:
    numbers = iter(range(1000))

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        effects.record("charge", key=f"random-{next(numbers)}")

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    with pytest.raises(AssertionError, match="'charge' was done 2 times, not once"):
        report.assert_once()


def test_an_effect_that_gets_lost_is_caught(effects: Effects) -> None:
    noted: set[str] = set()

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        if event["id"] in noted:
            return
        noted.add(event["id"])
        step("nothing", lambda: None)
        effects.record("mail")

    report = deliver_with_crashes(handler, EVENT, effects=effects, reset=noted.clear)
    with pytest.raises(
        AssertionError, match=r"'mail' was done 0 times, not once(.|\n)*lost effect"
    ):
        report.assert_once(allow_open=True)


def test_once_means_as_often_as_without_a_crash(effects: Effects) -> None:
    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        for line in event["lines"]:
            name = f"line-{line}"
            step(name, effects.record, "row", key=effect_key(name))

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    assert {run.counts["row"] for run in report} == {2}
    assert "after effect 'row' (2)" in report.counts
    report.assert_once()


def test_what_unwinds_after_the_kill_reaches_neither_ledger_nor_effects(effects: Effects) -> None:
    def handler(event: dict[str, Any], context: Any) -> str:
        try:
            return guarded(event)
        except BaseException:
            return "went on"

    @idempotent(key="id")
    def guarded(event: dict[str, Any]) -> str:
        try:
            step("charge", lambda: effects.record("charge", key="a"))
        except BaseException:
            effects.record("alarm")
        finally:
            effects.record("farewell", key="b")
        return "done"

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    report.assert_once()
    assert all(run.calls["alarm"] == 0 for run in report)
    assert all(run.deliveries[0].error == "Crash" for run in report)
    assert all(run.deliveries[0].result is None for run in report)
    seen = {each["happening"] for run in report for each in run.deliveries[0].happenings}
    assert "work failed" not in seen
    assert {run.result for run in report} == {"done"}


def test_an_async_handler_is_killed_at_every_place_too(effects: Effects) -> None:
    async def charge() -> None:
        await asyncio.sleep(0)
        effects.record("charge", key=effect_key("charge"))

    @idempotent(key="id")
    async def handler(event: dict[str, Any], context: Any) -> str:
        await step("charge", charge)
        return "done"

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    report.assert_once()
    assert {run.result for run in report} == {"done"}
    assert "as step 'charge' ends" in report.counts


def test_the_worst_run_is_the_one_farthest_from_once(effects: Effects) -> None:
    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        effects.record("mail")
        effects.record("charge")

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    assert report.worst().counts == {"mail": 2, "charge": 2}
    assert report.worst().killed == "after effect 'charge'"
    assert "worst: after effect 'charge': charge 2, mail 2" in repr(report)


def test_a_report_prints_as_a_table(effects: Effects) -> None:
    report = deliver_with_crashes(simple(effects), EVENT, effects=effects)
    assert str(report).splitlines() == [
        "killed                            then               effects",
        "never                                                mail 1",
        "before the claim is written       EXECUTED           mail 1",
        "after the claim is written        EXECUTED           mail 1",
        "as the work begins                EXECUTED           mail 1",
        "after effect 'mail'               EXECUTED           mail 2",
        "as the work ends                  EXECUTED           mail 2",
        "before the completion is written  EXECUTED           mail 2",
        "after the completion is written   SKIPPED_COMPLETED  mail 1",
    ]


def test_an_event_that_is_never_answered_is_a_complaint(effects: Effects) -> None:
    stuck: list[int] = []

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        if stuck:
            raise OSError("stuck")
        stuck.append(1)
        effects.record("mail", key="k")

    report = deliver_with_crashes(
        handler, EVENT, effects=effects, reset=stuck.clear, redeliveries=2
    )
    run = report.worst()
    assert not run.answered
    assert len(run.deliveries) == 3
    with pytest.raises(AssertionError, match="never answered when the attempt was killed"):
        report.assert_once()


def test_a_handler_that_fails_by_itself_raises_its_own_error(effects: Effects) -> None:
    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        raise OSError("as always")

    with pytest.raises(OSError, match="as always"):
        deliver_with_crashes(handler, EVENT, effects=effects)


@pytest.mark.parametrize("options", [{"ledger": MemoryLedger()}, None], ids=["own", "unguarded"])
def test_a_handler_that_uses_no_ledger_of_the_test_is_refused(
    options: dict[str, Any] | None, effects: Effects
) -> None:
    def unguarded(event: Any, context: Any) -> None: ...

    handler = unguarded if options is None else simple(effects, **options)
    with pytest.raises(InvalidOption, match="claimed nothing on the ledger of this test"):
        deliver_with_crashes(handler, EVENT)


def test_a_handler_that_remembers_earlier_runs_is_told_to_reset_them(effects: Effects) -> None:
    seen: set[str] = set()

    @idempotent(key="id")
    def handler(event: dict[str, Any], context: Any) -> None:
        if event["id"] not in seen:
            seen.add(event["id"])
            effects.record("mail", key="k")

    with pytest.raises(InvalidOption, match="reset: the handler went another way"):
        deliver_with_crashes(handler, EVENT, effects=effects)
    deliver_with_crashes(handler, EVENT, effects=effects, reset=seen.clear)


def test_once_cannot_be_asserted_of_what_was_not_recorded(effects: Effects) -> None:
    nothing: CrashReport = deliver_with_crashes(simple(Effects()), EVENT, effects=effects)
    with pytest.raises(AssertionError, match="no effect was recorded: pass effects="):
        nothing.assert_once()
    report = deliver_with_crashes(simple(effects), EVENT, effects=effects)
    with pytest.raises(AssertionError, match=r"no effect 'mali' .* recorded were: mail"):
        report.assert_once("mali")


def test_an_answer_that_tells_an_in_flight_duplicate_to_come_back_is_not_the_end(
    effects: Effects,
) -> None:
    place_order = simple(effects)

    def handler(event: dict[str, Any], context: Any) -> int:
        try:
            place_order(event, context)
        except InFlightError:
            return 409
        return 201

    report = deliver_with_crashes(handler, EVENT, effects=effects)
    assert {run.result for run in report} == {201}
    # Where the test cannot move the ledger's time, the lease of the killed attempt never ends.
    report = deliver_with_crashes(handler, EVENT, effects=effects, ledger=lambda _: MemoryLedger())
    assert [run.answered for run in report] == [True, *[False] * 5, True]


# Effects


def test_effects_are_counted_by_call_by_key_and_by_arguments(effects: Effects) -> None:
    effects.record("charge", 10, key="a")
    effects.record("charge", 10, key="a")
    effects.record("charge", 20, key="b")
    effects.record("mail", to="x", subject="y")
    effects.record("mail", subject="y", to="x")
    assert effects.calls == {"charge": 3, "mail": 2}
    assert effects.counts == {"charge": 2, "mail": 2}
    assert effects.distinct == {"charge": 2, "mail": 1}
    assert repr(effects) == "Effects(charge 2 (3 calls), mail 2)"
    assert [each.name for each in effects.made] == ["charge"] * 3 + ["mail"] * 2
    effects.clear()
    assert effects.counts == {}
    assert repr(effects) == "Effects(none)"


def test_a_wrapped_function_is_counted_when_it_has_returned(effects: Effects) -> None:
    def charge(cents: int, *, token: str) -> int:
        """Charge a card."""
        if cents < 0:
            raise OSError("declined")
        return cents

    wrapped = effects.wrap("charge", charge, key=lambda cents, token: token)
    assert wrapped(5, token="t") == wrapped(5, token="t") == 5
    with pytest.raises(OSError, match="declined"):
        wrapped(-1, token="u")
    assert (effects.calls, effects.counts) == ({"charge": 2}, {"charge": 1})
    assert wrapped.__doc__ == "Charge a card."


def test_a_wrapped_coroutine_is_counted_when_it_was_awaited(effects: Effects) -> None:
    wrapped = effects.wrap("mail", mailer.send_later)
    work = wrapped("a")
    assert effects.calls == {}
    assert asyncio.run(work) == "later to a"
    assert effects.calls == {"mail": 1}


@pytest.mark.usefixtures("shop")
def test_a_watch_counts_and_calls_the_real_thing_and_leaves_it_as_it_was(effects: Effects) -> None:
    before = Mailer.sent
    with (
        effects.watch("a_users_shop.mailer.send", key=lambda to, token: token),
        effects.watch("a_users_shop.Mailer.ping", name="network"),
        effects.watch("a_users_shop.Mailer.count"),
    ):
        assert mailer.send("a", token="t") == mailer.send("a", token="t") == "sent to a"
        assert Mailer.ping("b") == mailer.ping("b") == "b"
        assert Mailer.count("c") == "Mailer c"
    assert Mailer.sent == before + 2
    assert effects.calls == {"send": 2, "network": 2, "count": 1}
    assert effects.counts == {"send": 1, "network": 2, "count": 1}
    mailer.send("a")
    Mailer.ping("b")
    assert effects.calls == {"send": 2, "network": 2, "count": 1}
    assert "send" not in vars(mailer)


@pytest.mark.usefixtures("shop")
def test_a_watch_on_a_class_counts_the_methods_of_all_its_objects(effects: Effects) -> None:
    with effects.watch("a_users_shop.Mailer.send"):
        assert Mailer().send("a") == "sent to a"
    assert effects.calls == {"send": 1}


@pytest.mark.usefixtures("shop")
def test_a_watch_can_answer_in_the_place_of_the_real_thing(effects: Effects) -> None:
    before = Mailer.sent
    with (
        effects.watch("a_users_shop.mailer.send", returns={"MessageId": "m"}),
        effects.watch("a_users_shop.mailer.send_later", returns=None),
    ):
        answer: Any = mailer.send("a")
        later: Any = asyncio.run(mailer.send_later("a"))
    assert (answer, later) == ({"MessageId": "m"}, None)
    assert Mailer.sent == before
    assert effects.calls == {"send": 1, "send_later": 1}


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("a_users_shop.mailer.post", AttributeError),
        ("no_such_module.send", ImportError),
        ("send", ImportError),
        ("a_users_shop.number", TypeError),
    ],
)
def test_a_watch_of_nothing_says_so(target: str, error: type[Exception], effects: Effects) -> None:
    with pytest.raises(error), effects.watch(target):
        pass


# capture_outcomes


def test_what_happens_is_captured_as_plain_dicts(effects: Effects) -> None:
    handler = simple(effects, operation="order", namespace="shop")
    with ledger_in_place(MemoryLedger()), capture_outcomes() as captured:
        handler(EVENT, FakeLambdaContext())
        handler(EVENT, FakeLambdaContext())
    assert [each["outcome"] for each in captured] == [EXECUTED, REPLAYED]
    assert captured[0] == {
        "happening": "executed",
        "outcome": EXECUTED,
        "operation": "order",
        "key_digest": Guard(operation="order").key("order-1").digest,
        "namespace": "shop",
        "attempt": 1,
        "error": None,
    }
    with ledger_in_place(MemoryLedger()):
        handler(EVENT, FakeLambdaContext())
    assert len(captured) == 2


# Faults


def outcomes_under(
    fault: LedgerFault, on: str, times: int = 1, deliveries: int = 2
) -> tuple[list[str], int]:
    """How deliveries end when a fault hits the first of them, and how often the work was done."""
    clock, effects = FrozenClock(), Effects()
    ledger = FaultyLedger(MemoryLedger(clock), clock=clock)
    ledger.inject(fault, on=on, times=times)
    ends = deliver(simple(effects), EVENT, deliveries, ledger=ledger, effects=effects)
    return [str(each) for each in ends], ends.counts["mail"]


BUSY = f"{IN_FLIGHT} InFlightError"


@pytest.mark.parametrize(
    ("fault", "on", "ends", "done"),
    [
        (LedgerFault.throttle(), "claim", ["LedgerUnavailable", EXECUTED], 1),
        (LedgerFault.throttle(), "complete", [EXECUTED, BUSY], 1),
        (LedgerFault.lost_response(), "claim", ["LedgerUnavailable", BUSY], 0),
        (LedgerFault.lost_response(), "complete", [EXECUTED, REPLAYED], 1),
        (LedgerFault.slow(3), "claim", [EXECUTED, REPLAYED], 1),
        (LedgerFault.slow(40), "claim", ["LedgerUnavailable", BUSY], 0),
        (LedgerFault.slow(40), "complete", [EXECUTED, REPLAYED], 1),
        (LedgerFault.denied(), "claim", ["LedgerMisconfigured", EXECUTED], 1),
        (LedgerFault.denied(), "complete", [EXECUTED, BUSY], 1),
        (LedgerFault.full(), "claim", ["LedgerFull", EXECUTED], 1),
        (LedgerFault.crash(), "claim", ["Crash", EXECUTED], 1),
        (LedgerFault.crash(applied=True), "claim", ["Crash", BUSY], 0),
        (LedgerFault.crash(), "complete", ["Crash", BUSY], 1),
        (LedgerFault.crash(applied=True), "complete", ["Crash", REPLAYED], 1),
    ],
)
def test_a_ledgers_faults_and_what_becomes_of_two_deliveries(
    fault: LedgerFault, on: str, ends: list[str], done: int
) -> None:
    assert outcomes_under(fault, on) == (ends, done)


def test_a_slow_call_takes_its_time_on_the_clock_and_no_longer_than_its_deadline() -> None:
    clock = FrozenClock()
    ledger = FaultyLedger(MemoryLedger(clock), clock=clock)
    handler = simple(Effects(), clock=clock)
    began = clock.monotonic()
    ledger.inject(LedgerFault.slow(3))
    deliver(handler, EVENT, 1, ledger=ledger, context=FakeLambdaContext(30, clock))
    assert clock.monotonic() - began == 3
    ledger.inject(LedgerFault.slow(100))
    deliver(handler, EVENT, 1, ledger=ledger, context=FakeLambdaContext(30, clock))
    assert 32 < clock.monotonic() - began <= 33


def test_faults_hit_the_calls_they_were_meant_for() -> None:
    ledger = FaultyLedger(MemoryLedger())
    ledger.inject(LedgerFault.throttle(), on="claim", after=1, times=2)
    ends = deliver(simple(Effects()), EVENT, 4, ledger=ledger)
    assert ends.errors == [None, "LedgerUnavailable", "LedgerUnavailable", None]
    assert ledger.calls == ["claim", "complete", "claim", "claim", "claim"]


@pytest.mark.parametrize("wrong", [{"on": "put"}, {"times": 0}, {"after": -1}])
def test_a_senseless_fault_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|no call is for 'put'"):
        FaultyLedger(MemoryLedger()).inject(LedgerFault.throttle(), **wrong)


def test_after_a_crash_nothing_reaches_the_ledger_until_it_is_restarted() -> None:
    ledger = FaultyLedger(MemoryLedger())
    guard = Guard(ledger=ledger, local_cache=False)
    ledger.inject(LedgerFault.crash(), on="claim")
    for _ in range(2):
        with pytest.raises(kit.Crash, match="before the call took effect"):
            guard.run_exactly_once("k", lambda: 1)
    assert next(iter(ledger.behind.scan())).items == []
    ledger.restart()
    assert guard.run_exactly_once("k", lambda: 1).result == 1


class TestFaultyLedger(LedgerContract):
    """With no fault injected, the proxy is a ledger like any other."""

    @pytest.fixture(autouse=True)
    def _time(self) -> None:
        self.clock = self.frozen = FrozenClock()

    def make_ledger(self) -> Ledger:
        return FaultyLedger(MemoryLedger(self.frozen))

    def advance(self, seconds: float) -> None:
        self.frozen.advance(seconds)


# The names


def test_every_public_name_is_there_and_typed_where_it_comes_from() -> None:
    for name in kit.__all__:
        assert getattr(kit, name).__name__ == name
    assert dir(kit) == kit.__all__
    assert Fault.throttle().code == "ThrottlingException"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kit.nothing  # pyright: ignore


def test_the_kit_loads_what_is_heavy_only_when_it_is_used() -> None:
    script = (
        "import sys, idemguard.testing as kit; kit.deliver_with_crashes; kit.Effects; "
        "heavy = {'boto3', 'botocore', 'pytest', 'moto', 'pydantic'} & set(sys.modules); "
        "assert not heavy, heavy; kit.StrictSSM; assert 'botocore' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
