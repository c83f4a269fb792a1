"""One delivery after another, and beside another: what runs, what is replayed, what is refused."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from idemguard import (
    Event,
    Execution,
    Guard,
    Happening,
    Hook,
    InFlightError,
    LeaseLostError,
    LedgerMisconfigured,
    LedgerUnavailable,
    MissingKeyError,
    Outcome,
    PayloadMismatchError,
    PermanentFailureError,
    ReentrantCallError,
    current_claim,
    idempotent,
    step,
)
from idemguard.cache import forget
from idemguard.claim import Claim
from idemguard.ledgers.memory import MemoryLedger
from idemguard.record import State
from tests.worlds import World


class Watching(Hook):
    def __init__(self) -> None:
        self.seen: list[Happening] = []

    def observe(self, event: Event) -> None:
        self.seen.append(event.happening)


def test_the_same_event_twice_has_one_effect_and_one_answer(world: World) -> None:
    effects: list[str] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any], context: object) -> dict[str, int]:
        effects.append(event["id"])
        return {"number": len(effects)}

    first = handler({"id": "a"}, world.context())
    warm = handler({"id": "a"}, world.context())
    forget()
    cold = handler({"id": "a"}, world.context())

    assert first == warm == cold == {"number": 1}
    assert effects == ["a"]
    assert handler({"id": "b"}, world.context()) == {"number": 2}


def test_a_delivery_beside_another_runs_nothing_and_is_told_to_come_again(world: World) -> None:
    effects: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any], context: object) -> int:
        effects.append(1)
        inside.set()
        assert go_on.wait(10)
        return len(effects)

    results: list[int] = []
    first = threading.Thread(target=lambda: results.append(handler({"id": 1}, world.context())))
    first.start()
    assert inside.wait(10)

    with pytest.raises(InFlightError) as refused:
        handler({"id": 1}, world.context())
    go_on.set()
    first.join()

    assert refused.value.retryable
    assert refused.value.retry_after == pytest.approx(30.5)
    assert (results, effects) == ([1], [1])


def test_waiting_gives_the_first_ones_result(world: World) -> None:
    effects: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    def work(event: dict[str, Any]) -> int:
        effects.append(1)
        inside.set()
        assert go_on.wait(10)
        return 42

    handler = idempotent(key="id", ledger=world.ledger, on_in_flight="wait", wait_timeout=20)(work)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(handler({"id": 1})))]
    threads[0].start()
    assert inside.wait(10)
    threads += [threading.Thread(target=lambda: results.append(handler({"id": 1})))]
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()

    assert (results, effects) == ([42, 42], [1])


def test_waiting_ends_before_the_time_left_does(world: World) -> None:
    handler = _busy_handler(world, on_in_flight="wait", wait_timeout=600)
    before = world.clock.monotonic()

    with pytest.raises(InFlightError):
        handler({"id": 1}, world.context(5))

    assert 3 < world.clock.monotonic() - before < 5


def test_waiting_ends_at_its_own_limit(world: World) -> None:
    handler = _busy_handler(world, on_in_flight="wait", wait_timeout=2)
    before = world.clock.monotonic()

    with pytest.raises(InFlightError):
        handler({"id": 1}, world.context(60))

    assert world.clock.monotonic() - before <= 2


def test_async_waiting_ends_as_blocking_waiting_does(world: World) -> None:
    guard = Guard(
        ledger=world.ledger, clock=world.clock, operation="w", lease=3, on_in_flight="wait"
    )
    assert isinstance(guard.claim("k"), Claim)
    before = world.clock.monotonic()

    async def work() -> str:
        return "done"

    async def deliver(seconds: float) -> Execution[str]:
        return await guard.run_exactly_once_async("k", work, context=world.context(seconds))

    with pytest.raises(InFlightError):
        asyncio.run(deliver(2))
    assert 0 < world.clock.monotonic() - before < 2
    assert asyncio.run(deliver(60)).attempt == 2
    assert asyncio.run(deliver(60)).outcome is Outcome.SKIPPED_COMPLETED


def test_waiting_takes_over_a_claim_whose_lease_ends_meanwhile(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="work", lease=3)
    assert isinstance(guard.claim("k"), Claim)

    waiting = Guard(
        ledger=world.ledger, clock=world.clock, operation="work", lease=3, on_in_flight="wait"
    )

    assert waiting.run_exactly_once("k", lambda: "done").outcome is Outcome.EXECUTED


def test_skipping_answers_with_nothing_and_says_so(world: World) -> None:
    handler = _busy_handler(world, on_in_flight="skip")

    assert handler({"id": 1}, world.context()) is None
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="busy", on_in_flight="skip")
    assert guard.run_exactly_once(1, lambda: 1).outcome is Outcome.SKIPPED_IN_FLIGHT


def _busy_handler(world: World, **options: Any) -> Any:
    """A handler whose event 1 is in flight elsewhere for a long time."""
    Guard(ledger=world.ledger, clock=world.clock, operation="busy", lease=900).claim(1)

    def handler(event: dict[str, Any], context: object) -> str:
        raise AssertionError("must not be run")

    return idempotent(
        key="id", ledger=world.ledger, clock=world.clock, operation="busy", **options
    )(handler)


def test_a_failure_is_released_and_the_next_delivery_tries_again(world: World) -> None:
    attempts: list[int] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any]) -> int:
        attempts.append(current_claim().attempt)
        if len(attempts) < 3:
            raise ConnectionError("try again")
        return len(attempts)

    for _ in range(2):
        with pytest.raises(ConnectionError, match="try again"):
            handler({"id": 1})

    assert handler({"id": 1}) == 3
    assert handler({"id": 1}) == 3
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("stop", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_ends_the_work_releases_the_claim(world: World, stop: BaseException) -> None:
    stops: list[BaseException] = [stop]

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, permanent=BaseException)
    def handler(event: dict[str, Any]) -> str:
        if stops:
            raise stops.pop()
        return "done"

    with pytest.raises(type(stop)) as raised:
        handler({"id": 1})

    assert raised.value is stop
    assert handler({"id": 1}) == "done"


class OutOfStock(ValueError):
    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"{item}: {left} left")
        self.item = item
        self.left = left


def test_a_permanent_failure_is_raised_again_without_a_run(world: World) -> None:
    runs: list[int] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, permanent=ValueError)
    def handler(event: dict[str, Any]) -> None:
        runs.append(1)
        raise OutOfStock("A-1", 2)

    for _ in range(3):
        with pytest.raises(OutOfStock, match="A-1: 2 left") as raised:
            handler({"id": 1})
        assert (raised.value.item, raised.value.left) == ("A-1", 2)
        forget()

    assert runs == [1]


def test_a_permanent_failure_that_cannot_be_rebuilt_is_still_a_failure(world: World) -> None:
    class Unkept(ValueError):
        pass

    def fail(event: dict[str, Any]) -> None:
        raise Unkept(object())

    handler = idempotent(
        key="id", ledger=world.ledger, clock=world.clock, permanent=(Unkept,), operation="fail"
    )(fail)

    with pytest.raises(Unkept):
        handler({"id": 1})
    with pytest.raises(PermanentFailureError) as again:
        handler({"id": 1})
    assert again.value.error_type == f"{__name__}:{Unkept.__qualname__}"
    assert not again.value.retryable


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Unannotated(Exception):
    def add_note(self, note: str) -> None:
        raise RuntimeError("takes no notes")


class BrokenAtTheEnd(MemoryLedger):
    """A ledger of the user's own that claims and then raises what no ledger should."""

    def replace(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("secret payload")


@pytest.mark.parametrize("error", [Frozen(7), Unannotated(), StopIteration(7)])
@pytest.mark.parametrize("hooks", [[], [Watching()]])
@pytest.mark.parametrize("ledger", [MemoryLedger, BrokenAtTheEnd])
def test_the_works_own_exception_leaves_unchanged_whatever_it_is(
    error: BaseException, hooks: list[Hook], ledger: type[MemoryLedger]
) -> None:
    guard = Guard(ledger=ledger(), hooks=hooks, permanent=Frozen)

    def work() -> None:
        step("fails", raising)

    def raising() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        guard.run_exactly_once("k", work)
    assert raised.value is error
    if isinstance(error, Frozen) and ledger is MemoryLedger:
        with pytest.raises(Frozen) as again:
            guard.run_exactly_once("k", work)
        assert again.value == error


def test_async_works_own_exception_leaves_unchanged_too(world: World) -> None:
    error = Frozen(7)

    @idempotent(key="id", ledger=world.ledger, hooks=[Watching()])
    async def handler(event: dict[str, Any]) -> None:
        async def raising() -> None:
            raise error

        await step("fails", raising)

    with pytest.raises(Frozen) as raised:
        asyncio.run(handler({"id": 1}))
    assert raised.value is error


def test_whatever_a_ledger_raises_when_the_work_is_done_the_result_is_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = Guard(ledger=BrokenAtTheEnd())
    assert guard.run_exactly_once("k", lambda: "done").result == "done"
    assert "RuntimeError" in caplog.text
    assert "secret payload" not in caplog.text


@pytest.mark.parametrize("local_cache", [True, False])
def test_what_answers_a_duplicate_is_never_taken_for_a_ledger_that_fails(
    world: World, local_cache: bool
) -> None:
    runs: list[str] = []

    def unanswered(event: dict[str, Any]) -> None:
        raise LedgerUnavailable("of some other work")

    guard = Guard(ledger=world.ledger, on_ledger_error="run", local_cache=local_cache)

    @guard.idempotent(key="id", permanent=LedgerMisconfigured)
    def failing(event: dict[str, Any]) -> None:
        runs.append("failing")
        raise LedgerMisconfigured("of some inner work")

    @guard.idempotent(key="id", result="omit", on_duplicate=unanswered)
    def omitted(event: dict[str, Any]) -> None:
        runs.append("omitted")

    for _ in range(3):
        with pytest.raises(LedgerMisconfigured, match="inner work"):
            failing({"id": 1})
    omitted({"id": 1})
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match="some other work"):
            omitted({"id": 1})
    assert runs == ["failing", "omitted"]


def test_a_refusal_of_inner_work_that_will_pass_is_no_permanent_failure(world: World) -> None:
    inner = _busy_handler(world)

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, permanent=Exception)
    def outer(event: dict[str, Any], context: object) -> str:
        return str(inner(event, context))

    with pytest.raises(InFlightError):
        outer({"id": 1}, world.context())

    assert any("outer" in name and _state(world, name) is State.RELEASED for name in world.names)


def _state(world: World, name: str) -> State:
    entry = world.ledger.read(name)
    assert entry is not None
    return entry.record.state


def test_a_handler_that_changes_its_event_keeps_its_one_record(world: World) -> None:
    runs: list[str] = []

    @idempotent(
        key="id", fingerprint="amount", ledger=world.ledger, clock=world.clock, local_cache=False
    )
    def handler(event: dict[str, Any], context: object) -> str:
        event["id"] = event["id"].strip().upper()
        event["amount"] = 0
        event["done"] = True
        runs.append(event["id"])
        return str(event["id"])

    assert handler({"id": " a1 ", "amount": 5}, world.context()) == "A1"
    assert handler({"id": " a1 ", "amount": 5}, world.context()) == "A1"
    assert (len(runs), len(world.names)) == (1, 1)


def test_functions_with_one_key_on_one_ledger_keep_their_own_records_and_settings(
    world: World,
) -> None:
    runs: list[str] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, retention=60)
    def inner(event: dict[str, Any]) -> str:
        runs.append("in")
        return "in"

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, retention=3600)
    def outer(event: dict[str, Any], context: object) -> str:
        runs.append("out")
        return "out+" + inner(event)

    assert [outer({"id": 1}, world.context()) for _ in range(2)] == ["out+in"] * 2
    assert inner({"id": 1}) == "in"
    assert runs == ["out", "in"]
    assert len(world.names) == 2

    world.clock.advance(61)
    assert outer({"id": 1}, world.context()) == "out+in"
    assert inner({"id": 1}) == "in"
    assert runs == ["out", "in", "in"]


def test_an_explicit_operation_survives_a_move(world: World) -> None:
    def before(event: dict[str, Any]) -> str:
        return "before"

    def after(event: dict[str, Any]) -> str:
        return "after"

    options: Any = {"ledger": world.ledger, "clock": world.clock, "operation": "charge"}
    assert idempotent(key="id", **options)(before)({"id": 1}) == "before"
    assert idempotent(key="id", **options)(after)({"id": 1}) == "before"


def test_namespaces_keep_the_same_work_of_two_applications_apart(world: World) -> None:
    def work(event: dict[str, Any]) -> str:
        return str(event["who"])

    def decorated(namespace: str) -> Any:
        return idempotent(
            key="id", ledger=world.ledger, clock=world.clock, namespace=namespace, operation="w"
        )(work)

    assert decorated("shop")({"id": 1, "who": "shop"}) == "shop"
    assert decorated("crm")({"id": 1, "who": "crm"}) == "crm"
    assert sorted(name.split("/")[0] for name in world.names) == ["crm", "shop"]


def test_work_that_calls_itself_with_its_own_key_is_told_at_once(world: World) -> None:
    @idempotent(key="id", ledger=world.ledger, clock=world.clock, on_in_flight="wait")
    def handler(event: dict[str, Any], depth: int = 0) -> str:
        if event["id"] == 1 and depth == 0:
            handler({"id": 2}, 1)
        return str(handler({"id": 1}, depth + 1))

    before = world.clock.monotonic()
    with pytest.raises(ReentrantCallError):
        handler({"id": 1})
    assert world.clock.monotonic() - before < 1


def test_one_function_may_be_guarded_on_two_ledgers_while_it_moves(world: World) -> None:
    runs: list[int] = []
    old, new = (
        Guard(ledger=ledger, local_cache=False) for ledger in (world.ledger, MemoryLedger())
    )

    @old.idempotent(key="id")
    @new.idempotent(key="id")
    def handler(event: dict[str, Any]) -> int:
        runs.append(1)
        return len(runs)

    assert [handler({"id": 1}), handler({"id": 1})] == [1, 1]


def test_a_task_left_behind_has_no_time_limit_of_the_work_that_began_it(world: World) -> None:
    leases: list[float] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def inner(event: dict[str, Any]) -> None:
        leases.append(current_claim().lease)

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def outer(event: dict[str, Any], context: object) -> Any:
        left_behind.append(contextvars.copy_context())

    left_behind: list[contextvars.Context] = []
    outer({"id": 1}, world.context(5))
    world.clock.advance(60)  # The next invocation of the same sandbox.
    left_behind[0].run(inner, {"id": 2})
    assert leases == [900]


def test_a_lease_follows_the_context_without_being_registered(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="work")
    guard.claim("k", context=world.context(3))

    world.clock.advance(1)
    with pytest.raises(InFlightError):
        guard.run_exactly_once("k", lambda: 1, context=world.context(3))
    world.clock.advance(3)
    assert guard.run_exactly_once("k", lambda: 1, context=world.context(3)).attempt == 2


def test_work_inside_work_inherits_the_context_for_its_lease(world: World) -> None:
    leases: list[float] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def inner(event: dict[str, Any]) -> None:
        leases.append(current_claim().lease)

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def outer(event: dict[str, Any], context: object) -> None:
        leases.append(current_claim().lease)
        world.clock.advance(4)
        inner(event)

    outer({"id": 1}, world.context(10))

    assert leases == [pytest.approx(10.5), pytest.approx(6.5)]


def test_without_a_context_a_lease_is_a_quarter_of_an_hour(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock)
    claim = guard.claim("k")

    assert isinstance(claim, Claim)
    assert claim.lease == 900
    world.clock.advance(899)
    with pytest.raises(InFlightError):
        guard.claim("k")
    world.clock.advance(2)
    assert isinstance(guard.claim("k"), Claim)


def test_a_fixed_lease_may_outlast_the_function(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, lease=3600)
    guard.claim("k", context=world.context(3))

    world.clock.advance(3000)
    with pytest.raises(InFlightError):
        guard.claim("k", context=world.context(3))


@pytest.mark.parametrize("late", ["returns", "raises"])
def test_a_late_holder_leaves_its_successors_record_alone(
    world: World, late: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="w", lease=5, hooks=[])
    mine = guard.claim("k")
    assert isinstance(mine, Claim)
    world.clock.advance(6)
    assert guard.run_exactly_once("k", lambda: "successor").attempt == 2

    if late == "returns":
        guard.complete(mine, "late")
    else:
        guard.release(mine, ConnectionError("late"))

    forget()
    again = guard.run_exactly_once("k", lambda: "third")
    assert (again.outcome, again.result) == (Outcome.SKIPPED_COMPLETED, "successor")
    assert LeaseLostError.__name__ in caplog.text


def test_a_late_holder_whose_key_nobody_took_still_counts(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, lease=5)
    claim = guard.claim("k")
    assert isinstance(claim, Claim)
    world.clock.advance(60)

    guard.complete(claim, "late")

    forget()
    assert guard.run_exactly_once("k", lambda: "again").result == "late"


def test_a_refused_duplicate_changes_nothing(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="w")
    claim = guard.claim("k", payload="one")
    before = world.record

    with pytest.raises(InFlightError):
        guard.run_exactly_once("k", lambda: 1, payload="one")
    with pytest.raises(PayloadMismatchError):
        guard.run_exactly_once("k", lambda: 1, payload="two")

    assert world.record == before
    assert isinstance(claim, Claim)
    guard.complete(claim, 7)
    assert guard.run_exactly_once("k", lambda: 8, payload="one").result == 7


def test_a_payload_mismatch_is_refused_on_every_path(world: World, event: Any) -> None:
    runs: list[str] = []

    @idempotent(
        key='headers."Idempotency-Key"'
        ' && [requestContext.authorizer.claims.sub, path, headers."Idempotency-Key"]',
        fingerprint="http_body(@)",
        ledger=world.ledger,
        clock=world.clock,
        retention=600,
    )
    def handler(event: dict[str, Any], context: object) -> str:
        runs.append(event["body"])
        if len(runs) == 1:
            with ThreadPoolExecutor(1) as elsewhere, pytest.raises(PayloadMismatchError):
                elsewhere.submit(handler, other(), world.context()).result()  # in flight
            raise ConnectionError
        return "done"

    def other() -> dict[str, Any]:
        return dict(event("apigw_rest_v1_same_key_other_body"))

    with pytest.raises(ConnectionError):
        handler(event("apigw_rest_v1"), world.context())
    with pytest.raises(PayloadMismatchError):  # released
        handler(other(), world.context())
    assert handler(event("apigw_rest_v1"), world.context()) == "done"
    with pytest.raises(PayloadMismatchError):  # in the local cache
        handler(other(), world.context())
    forget()
    with pytest.raises(PayloadMismatchError):  # completed
        handler(other(), world.context())
    assert handler(event("apigw_rest_v1_same_key_reordered_body"), world.context()) == "done"
    assert len(runs) == 2

    world.clock.advance(601)
    assert handler(other(), world.context()) == "done"  # expired
    assert len(runs) == 3


def test_an_abandoned_claim_of_another_payload_is_a_mismatch_too(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, lease=5)
    guard.claim("k", payload={"amount": 1})
    world.clock.advance(6)

    with pytest.raises(PayloadMismatchError):
        guard.claim("k", payload={"amount": 2})
    assert isinstance(guard.claim("k", payload={"amount": 1.0}), Claim)


def test_after_its_retention_a_key_runs_again(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, retention=60, operation="w")

    assert guard.run_exactly_once("k", lambda: 1).result == 1
    world.clock.advance(59)
    assert guard.run_exactly_once("k", lambda: 2).result == 1
    world.clock.advance(2)
    assert guard.run_exactly_once("k", lambda: 3) == Execution(
        Outcome.EXECUTED, 3, "w", guard.key("k").digest, attempt=1
    )


def test_an_event_without_a_key_is_refused_before_the_work(world: World, event: Any) -> None:
    runs: list[Any] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any]) -> str:
        runs.append(event.get("id"))
        return repr(event.get("id"))

    answers: list[str] = []
    for payload in event("direct_invoke_payloads_falsy_keys"):
        try:
            answers.append(handler(payload))
        except MissingKeyError:
            answers.append("missing")

    assert answers == [
        "0", "False", "missing", "missing", "missing", "'0'", "'false'", "missing", "missing",
        "'null'",
    ]  # fmt: skip
    assert len(world.names) == 5


def test_running_without_a_key_is_an_explicit_choice_that_warns(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Watching()
    runs: list[int] = []

    @idempotent(key="id", ledger=world.ledger, on_missing_key="run", hooks=[watching])
    def handler(event: dict[str, Any]) -> int:
        runs.append(current_claim().attempt)
        return len(runs)

    assert [handler({}), handler({})] == [1, 2]
    assert runs == [0, 0]
    assert world.names == []
    assert "unguarded" in caplog.text
    assert watching.seen == [Happening.MISSING_KEY, Happening.UNGUARDED] * 2


def test_the_primitives_make_the_same_cycle_by_hand(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="by hand")

    claim = guard.claim("k")
    assert isinstance(claim, Claim)
    guard.release(claim)
    again = guard.claim("k")
    assert isinstance(again, Claim)
    assert (claim.attempt, again.attempt) == (1, 2)
    assert again.fencing_token > claim.fencing_token
    guard.complete(again, {"n": 1})

    answer = guard.claim("k")
    assert isinstance(answer, Execution)
    assert (answer.outcome, answer.result) == (Outcome.SKIPPED_COMPLETED, {"n": 1})


@pytest.mark.parametrize("permanent", [Exception, BaseException])
def test_a_release_by_hand_is_never_for_good(world: World, permanent: Any) -> None:
    guard = Guard(ledger=world.ledger, permanent=permanent)
    claim = guard.claim("k")
    assert isinstance(claim, Claim)
    guard.release(claim)
    again = guard.claim("k")
    assert isinstance(again, Claim)

    guard.release(again, ValueError("for good"))
    with pytest.raises(ValueError, match="for good"):
        guard.claim("k")


def test_a_claim_let_run_unguarded_is_ended_by_hand_like_any_other() -> None:
    class Unreachable(MemoryLedger):
        def create(self, *args: Any, **kwargs: Any) -> Any:
            raise LedgerUnavailable("for now")

    guard = Guard(ledger=Unreachable(), on_ledger_error="run")
    for _ in range(2):
        claim = guard.claim("k")
        assert isinstance(claim, Claim)
        assert claim.attempt == 0
        guard.complete(claim, 1)
        guard.release(claim)


@pytest.mark.parametrize("value", [None, "", b"", [], {}, (), [None, 1], ("tenant", None)])
def test_a_key_by_hand_follows_the_same_rule_as_one_of_a_callable(world: World, value: Any) -> None:
    watching = Watching()
    guard = Guard(ledger=world.ledger, hooks=[watching])

    with pytest.raises(MissingKeyError):
        idempotent(key=lambda event: value, ledger=world.ledger)(lambda event: 1)({})
    with pytest.raises(MissingKeyError):
        guard.run_exactly_once(value, lambda: 1)
    with pytest.raises(MissingKeyError):
        guard.key(value)
    open_ = Guard(ledger=world.ledger, on_missing_key="run")
    assert [open_.run_exactly_once(value, lambda: 1).attempt for _ in range(2)] == [0, 0]
    assert watching.seen == [Happening.MISSING_KEY]
    assert world.names == []


def test_a_fencing_token_rises_though_the_next_machines_clock_is_behind(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, lease=5)
    first = guard.claim("k")
    world.clock.advance(6)
    behind = type(world.clock)(wall=1_000_000.0)
    second = Guard(ledger=world.ledger, clock=behind, lease=5).claim("k")

    assert isinstance(first, Claim)
    assert isinstance(second, Claim)
    assert second.fencing_token > first.fencing_token


def test_what_a_hook_raises_never_breaks_the_work(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Hook):
        def around(self, phase: Any, details: Any) -> Any:
            raise RuntimeError("secret payload")

        def observe(self, event: Event) -> None:
            raise RuntimeError("secret payload")

    @idempotent(key="id", ledger=world.ledger, hooks=[Broken()])
    def handler(event: dict[str, Any]) -> int:
        return 1

    with caplog.at_level(logging.INFO):
        assert [handler({"id": 1}), handler({"id": 1})] == [1, 1]
    assert "Broken" in caplog.text
    assert "secret payload" not in caplog.text


def test_decisions_are_told_to_hooks_without_key_or_payload(world: World) -> None:
    events: list[Event] = []

    class Keeping(Hook):
        def observe(self, event: Event) -> None:
            events.append(event)

    @idempotent(key="id", ledger=world.ledger, hooks=[Keeping()], local_cache=False)
    def handler(event: dict[str, Any]) -> str:
        if event.get("fail"):
            raise ValueError("the-payload")
        return "the-result"

    with pytest.raises(ValueError, match="the-payload"):
        handler({"id": "the-raw-key", "fail": True})
    handler({"id": "the-raw-key"})
    handler({"id": "the-raw-key"})

    assert [event.happening for event in events] == [
        Happening.WORK_FAILED,
        Happening.EXECUTED,
        Happening.REPLAYED,
    ]
    assert [event.outcome for event in events] == [
        None,
        Outcome.EXECUTED,
        Outcome.SKIPPED_COMPLETED,
    ]
    for secret in ("the-raw-key", "the-payload", "the-result"):
        assert secret not in repr(events)
        assert secret not in repr(world.names)
