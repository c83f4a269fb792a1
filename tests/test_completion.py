"""Trouble with the ledger before the work, at its completion and at its release."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import pytest

from idemguard import (
    Guard,
    Happening,
    InFlightError,
    LedgerFull,
    LedgerMisconfigured,
    LedgerUnavailable,
    Outcome,
    current_claim,
    idempotent,
)
from idemguard.claim import Claim
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing.ssm_faults import ANY, Fault
from idemguard.testing.strict_ssm import StrictSSM
from tests.test_delivery import Watching
from tests.worlds import World, ssm_world

FOR_GOOD = 1000


@pytest.fixture
def ssm() -> World:
    return ssm_world()


def test_a_completion_that_is_throttled_is_tried_again(ssm: World) -> None:
    effects: list[int] = []

    @idempotent(key="id", ledger=ssm.ledger, clock=ssm.clock, local_cache=False)
    def handler(event: dict[str, Any], context: object) -> str:
        ssm.ssm.inject("PutParameter", Fault.throttle(), times=2)
        effects.append(1)
        return "done"

    assert [handler({"id": 1}, ssm.context()), handler({"id": 1}, ssm.context())] == ["done"] * 2
    assert effects == [1]


def test_a_completion_is_not_given_up_while_others_updates_are_under_way(ssm: World) -> None:
    watching = Watching()
    guard = Guard(ledger=ssm.ledger, clock=ssm.clock, hooks=[watching])

    def work() -> str:
        over = ssm.clock.monotonic() + 1

        def busy(operation: str, request: Any) -> None:
            if operation == "PutParameter" and ssm.clock.monotonic() < over:
                ssm.ssm.inject("PutParameter", Fault.too_many_updates())

        ssm.ssm.before_call = busy
        return "done"

    assert guard.run_exactly_once("k", work, context=ssm.context(30)).result == "done"
    assert watching.seen == [Happening.EXECUTED]


def test_a_completion_that_fails_for_good_is_loud_and_returns_the_result(
    ssm: World, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Watching()
    effects: list[int] = []

    @idempotent(key="id", ledger=ssm.ledger, clock=ssm.clock, hooks=[watching])
    def handler(event: dict[str, Any], context: object) -> str:
        if not effects:
            ssm.ssm.inject("PutParameter", Fault.denied(), times=1)
        effects.append(1)
        return "done"

    assert handler({"id": "raw-key"}, ssm.context(10)) == "done"
    assert Happening.COMPLETE_FAILED in watching.seen
    [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "ssm:PutParameter" in line.getMessage()
    assert "raw-key" not in line.getMessage()

    with pytest.raises(InFlightError):  # within the lease
        handler({"id": "raw-key"}, ssm.context(10))
    ssm.clock.advance(12)
    assert handler({"id": "raw-key"}, ssm.context(10)) == "done"
    assert effects == [1, 1]


def test_a_completion_that_fails_is_raised_where_that_was_asked_for(ssm: World) -> None:
    @idempotent(key="id", ledger=ssm.ledger, clock=ssm.clock, on_complete_error="raise")
    def handler(event: dict[str, Any]) -> str:
        ssm.ssm.inject("PutParameter", Fault.denied())
        return "done"

    with pytest.raises(LedgerMisconfigured, match="ssm:PutParameter") as raised:
        handler({"id": 1})
    assert raised.value.operation is not None


@pytest.mark.parametrize("fault", [Fault.denied(), Fault.throttle(), Fault.not_sent()], ids=str)
def test_a_release_that_fails_never_hides_the_works_own_error(ssm: World, fault: Fault) -> None:
    error = ValueError("the work's own")

    @idempotent(key="id", ledger=ssm.ledger, clock=ssm.clock)
    def handler(event: dict[str, Any], context: object) -> str:
        ssm.ssm.inject(ANY, fault, times=FOR_GOOD)
        raise error

    with pytest.raises(ValueError, match="the work's own") as raised:
        handler({"id": 1}, ssm.context(5))
    assert raised.value is error


@pytest.mark.parametrize("resent", [False, True], ids=["lost", "lost and sent again"])
@pytest.mark.parametrize("at", ["claim", "complete", "release"])
def test_a_lost_answer_changes_nothing(ssm: World, at: str, resent: bool) -> None:
    lost = Fault.lost_response(resent=resent)
    attempts: list[int] = []

    @idempotent(key="id", ledger=ssm.ledger, clock=ssm.clock, local_cache=False)
    def handler(event: dict[str, Any], context: object) -> str:
        attempts.append(current_claim().attempt)
        if at == "release" and len(attempts) == 1:
            ssm.ssm.inject("PutParameter", lost)
            raise ConnectionError("once")
        if at == "complete":
            ssm.ssm.inject("PutParameter", lost)
        return "done"

    if at == "claim":
        ssm.ssm.inject("PutParameter", lost)
    if at == "release":
        with pytest.raises(ConnectionError):
            handler({"id": 1}, ssm.context())
    assert [handler({"id": 1}, ssm.context()), handler({"id": 1}, ssm.context())] == ["done"] * 2
    assert attempts == ([1, 2] if at == "release" else [1])


def test_a_release_that_others_went_on_from_before_its_answer_came_is_no_lost_lease(
    ssm: World, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Watching()
    guard = Guard(ledger=ssm.ledger, clock=ssm.clock, local_cache=False, hooks=[watching])
    sent: list[str] = []

    def others(operation: str, request: Any) -> None:
        sent.append(operation)
        if sent.count("PutParameter") == 3:  # After the claim and the release: the release again.
            ssm.ssm.before_call = None
            assert guard.run_exactly_once("k", lambda: "done").attempt == 2

    ssm.ssm.inject("PutParameter", Fault.lost_response(), after=1)
    ssm.ssm.before_call = others
    error = ConnectionError("the work's own")
    with pytest.raises(ConnectionError) as raised:
        guard.run_exactly_once("k", lambda: _fail(error))

    assert raised.value is error
    assert not getattr(error, "__notes__", [])
    assert watching.seen == [Happening.WORK_FAILED, Happening.EXECUTED]
    assert not caplog.records
    assert guard.run_exactly_once("k", _never).result == "done"


def test_a_burst_of_throttling_at_the_claim_ends_within_the_time_left(ssm: World) -> None:
    runs: list[int] = []

    @idempotent(key="id", ledger=ssm.ledger, clock=ssm.clock)
    def handler(event: dict[str, Any], context: object) -> str:
        runs.append(1)
        return "done"

    ssm.ssm.inject("PutParameter", Fault.throttle(), times=6)
    before = ssm.clock.monotonic()
    assert handler({"id": 1}, ssm.context(4)) == "done"
    assert 0.2 < ssm.clock.monotonic() - before < 4

    ssm.ssm.inject("PutParameter", Fault.throttle(), times=FOR_GOOD)
    before = ssm.clock.monotonic()
    with pytest.raises(LedgerUnavailable) as refused:
        handler({"id": 2}, ssm.context(4))
    assert refused.value.retryable
    assert ssm.clock.monotonic() - before < 4
    assert runs == [1]


def test_a_full_account_is_told_with_advice_and_nothing_runs() -> None:
    world = ssm_world()
    ledger = SSMLedger(StrictSSM(world.clock, standard_limit=1), clock=world.clock)
    guard = Guard(ledger=ledger, clock=world.clock)

    guard.run_exactly_once("a", lambda: 1)
    with pytest.raises(LedgerFull, match="sweeper"):
        guard.run_exactly_once("b", _never)


def test_running_past_a_ledger_that_fails_is_an_explicit_choice(
    ssm: World, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Watching()
    ssm.ssm.inject("PutParameter", Fault.denied(), times=FOR_GOOD)

    @idempotent(key="id", ledger=ssm.ledger, on_ledger_error="run", hooks=[watching])
    def handler(event: dict[str, Any]) -> int:
        return current_claim().attempt

    assert handler({"id": 1}) == 0
    assert watching.seen == [Happening.LEDGER_ERROR, Happening.UNGUARDED]
    assert "unguarded" in caplog.text


def test_first_delivery_duplicate_and_retry_cost_the_calls_that_are_promised(ssm: World) -> None:
    fail: list[bool] = []

    @idempotent(key="messageId", ledger=ssm.ledger, clock=ssm.clock, local_cache=False)
    def process(record: dict[str, Any]) -> str:
        if fail:
            fail.pop()
            raise ConnectionError
        return "done"

    def calls(record: dict[str, Any]) -> list[str]:
        before = len(ssm.ssm.calls)
        with contextlib.suppress(ConnectionError):
            process(record)
        return [call[0] for call in ssm.ssm.calls[before:]]

    def message(number: int, count: int) -> dict[str, Any]:
        return {
            "messageId": str(number),
            "attributes": {"ApproximateReceiveCount": str(count)},
        }

    assert calls(message(1, 1)) == ["PutParameter", "PutParameter"]
    assert calls(message(1, 1)) == ["PutParameter", "GetParameter"]
    assert calls(message(1, 2)) == ["GetParameter"]
    fail.append(True)
    assert calls(message(2, 1)) == ["PutParameter", "PutParameter"]
    assert calls(message(2, 2)) == ["GetParameter", "PutParameter", "PutParameter"]


def test_a_duplicate_in_the_same_container_costs_no_call(ssm: World) -> None:
    guard = Guard(ledger=ssm.ledger, clock=ssm.clock)
    guard.run_exactly_once("k", lambda: 1)
    before = len(ssm.ssm.calls)

    assert guard.run_exactly_once("k", _never).outcome is Outcome.SKIPPED_COMPLETED
    assert len(ssm.ssm.calls) == before

    # However often it answers, memory is trusted for a quarter of an hour only.
    for _ in range(4):
        ssm.clock.advance(200)
        guard.run_exactly_once("k", _never)
    assert len(ssm.ssm.calls) == before
    ssm.clock.advance(200)
    guard.run_exactly_once("k", _never)
    assert len(ssm.ssm.calls) > before


def test_nothing_is_ever_deleted_by_a_delivery(ssm: World) -> None:
    guard = Guard(ledger=ssm.ledger, clock=ssm.clock, lease=5)
    first = guard.claim("k")
    ssm.clock.advance(6)
    second = guard.claim("k")
    assert isinstance(first, Claim)
    assert isinstance(second, Claim)
    guard.release(second)
    guard.complete(first, 1)

    assert not [call for call in ssm.ssm.calls if call[0].startswith("Delete")]


def _fail(error: Exception) -> None:
    raise error


def _never() -> Any:
    raise AssertionError("must not be run")
