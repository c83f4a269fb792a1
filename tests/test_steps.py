"""Steps are done once across attempts, whatever ends an attempt."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from decimal import Decimal
from typing import Any

import pytest

from idemguard import (
    Guard,
    Happening,
    InvalidOption,
    LeaseLostError,
    LedgerError,
    ResultNotStoredError,
    StepError,
    UnsupportedResultError,
    current_claim,
    effect_key,
    idempotent,
    step,
)
from idemguard.ledgers.ssm import SSMLedger
from idemguard.record import State
from idemguard.testing.ssm_faults import Fault
from tests.test_delivery import Watching
from tests.worlds import World, ssm_world


def blob(size: int) -> str:
    """Text that does not get shorter by compressing it."""
    return base64.b85encode(os.urandom(size)).decode()[:size].replace("{", "a").replace("}", "b")


def contexts() -> Iterator[Context]:
    while True:
        yield copy_context()


def test_a_retry_goes_on_behind_the_steps_that_are_done(world: World) -> None:
    done: list[str] = []
    watching = Watching()

    def reserve(item: str) -> dict[str, str]:
        done.append(f"reserve {item}")
        return {"reservation": "r-1"}

    def charge(amount: Decimal) -> Decimal:
        done.append("charge")
        if done.count("charge") == 1:
            raise ConnectionError("no answer")
        return amount * 2

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, hooks=[watching])
    def order(event: dict[str, Any]) -> tuple[dict[str, str], Decimal]:
        reservation = step("reserve", reserve, event["item"])
        return reservation, step("charge", charge, amount=Decimal("1.10"))

    with pytest.raises(ConnectionError):
        order({"id": 1, "item": "A-1"})
    assert order({"id": 1, "item": "A-1"}) == ({"reservation": "r-1"}, Decimal("2.20"))
    assert done == ["reserve A-1", "charge", "charge"]
    assert Happening.RESUMED in watching.seen


def test_a_takeover_after_a_crash_goes_on_behind_the_steps_that_are_done(world: World) -> None:
    done: list[str] = []

    class Crash(BaseException):
        pass

    def one() -> int:
        done.append("first")
        return len(done)

    def work(event: dict[str, Any], context: object) -> int:
        first = step("first", one)
        if len(done) == 1:
            # A killed process releases nothing: what it holds stays claimed.
            world.ledger.replace = _dead  # type: ignore[method-assign]
            raise Crash
        return first

    def _dead(*args: Any, **kwargs: Any) -> Any:
        raise Crash

    replace = world.ledger.replace
    handler = idempotent(key="id", ledger=world.ledger, clock=world.clock)(work)
    with pytest.raises(Crash):
        handler({"id": 1}, world.context(5))
    world.ledger.replace = replace  # type: ignore[method-assign]
    done.append("the process died")
    world.clock.advance(6)

    assert handler({"id": 1}, world.context(5)) == 1
    assert done == ["first", "the process died"]


def test_async_steps_are_kept_too(world: World) -> None:
    done: list[str] = []

    async def fetch(name: str) -> str:
        await asyncio.sleep(0)
        done.append(name)
        return name.upper()

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    async def handler(event: dict[str, Any]) -> list[str]:
        answers = [await step("a", fetch, "a"), await step("b", fetch, "b")]
        if len(done) == 2:
            done.append("failed")
            raise ConnectionError
        return answers

    with pytest.raises(ConnectionError):
        asyncio.run(handler({"id": 1}))
    assert asyncio.run(handler({"id": 1})) == ["A", "B"]
    assert done == ["a", "b", "failed"]


def test_steps_may_run_side_by_side(world: World) -> None:
    done: list[int] = []

    def one(number: int) -> int:
        done.append(number)
        return number * number

    def square(number: int) -> int:
        return step(f"step-{number}", one, number)

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any]) -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(copy_context().run, square, n) for n in range(6)]
            squares = [future.result() for future in futures]
        if len(done) == 6:
            done.append(-1)
            raise ConnectionError
        return squares

    with pytest.raises(ConnectionError):
        handler({"id": 1})
    assert handler({"id": 1}) == [0, 1, 4, 9, 16, 25]
    assert sorted(done) == [-1, 0, 1, 2, 3, 4, 5]


def test_steps_keep_all_results_that_can_be_kept(world: World) -> None:
    values: list[Any] = [None, 0, False, "", [], {}, Decimal("1.0"), b"\xff", (1,)]
    runs: list[int] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any]) -> list[Any]:
        kept = [step(f"s{n}", values.__getitem__, n) for n in range(len(values))]
        runs.append(1)
        if len(runs) == 1:
            values[:] = ["changed"] * len(values)
            raise ConnectionError
        return kept

    expected = list(values)
    with pytest.raises(ConnectionError):
        handler({"id": 1})
    assert handler({"id": 1}) == expected


def test_a_name_used_twice_in_one_attempt_is_an_error(world: World) -> None:
    done: list[int] = []

    @idempotent(key="id", ledger=world.ledger)
    def handler(event: dict[str, Any]) -> None:
        step("charge", lambda: done.append(1))
        step("charge", lambda: done.append(2))

    for _ in range(2):
        with pytest.raises(StepError, match="'charge' is used twice"):
            handler({"id": 1})
    assert done == [1]


def test_a_step_that_raises_may_be_tried_again_in_the_same_attempt(world: World) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return len(tries)

    @idempotent(key="id", ledger=world.ledger)
    def handler(event: dict[str, Any]) -> int:
        for _ in range(2):
            try:
                return step("flaky", flaky)
            except ConnectionError:
                continue
        return step("flaky", flaky)

    assert handler({"id": 1}) == 3


def test_outside_of_claimed_work_there_are_no_steps() -> None:
    for call in (lambda: step("a", lambda: 1), lambda: effect_key("a"), current_claim):
        with pytest.raises(StepError, match="@idempotent"):
            call()


def test_a_step_whose_result_does_not_fit_is_not_run_again() -> None:
    world = ssm_world()
    done: list[int] = []

    def large() -> str:
        done.append(1)
        return os.urandom(9000).hex()

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any]) -> str:
        blob = step("blob", large)
        if len(done) == 1:
            done.append(0)
            raise ConnectionError
        return blob

    with pytest.raises(ConnectionError):
        handler({"id": 1})
    with pytest.raises(ResultNotStoredError, match="step 'blob'") as refused:
        handler({"id": 1})
    assert refused.value.reason == "too large"
    assert done == [1, 0]


def test_a_step_that_the_record_has_no_room_for_is_refused_before_it_is_run() -> None:
    world = ssm_world()
    done: list[int] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any]) -> None:
        for number in range(1000):
            step(f"step number {number}", done.append, number)

    with pytest.raises(StepError, match="no room"):
        handler({"id": 1})
    before = len(done)
    assert 50 < before < 1000
    with pytest.raises(StepError, match="no room"):
        handler({"id": 1})
    assert len(done) == before


def test_a_record_full_of_steps_leaves_room_for_every_later_claim() -> None:
    """A claim that does not fit could never be made: longer leases, more attempts, a fingerprint."""
    refused = []
    for size in range(3600, 4000, 3):
        world = ssm_world()
        attempts: list[int] = []

        def work(size: int = size, attempts: list[int] = attempts) -> None:
            attempts.append(current_claim().attempt)
            with suppress(ResultNotStoredError):
                step("blob", blob, size)
            raise ConnectionError

        for payload, seconds in ((None, 5.0), ({"n": 1}, 800.123), ({"n": 1}, 1 / 3)):
            guard = Guard(ledger=world.ledger, clock=world.clock)
            try:
                guard.run_exactly_once("k", work, context=world.context(seconds), payload=payload)
            except ConnectionError:
                continue
            except LedgerError:
                refused.append(size)
        if attempts != [1, 2, 3]:
            refused.append(size)
    assert refused == []


def test_steps_side_by_side_leave_room_for_each_other() -> None:
    for size in range(3600, 4000, 20):
        world = ssm_world()
        done: list[str] = []

        def side_by_side(done: list[str] = done, size: int = size) -> None:
            with suppress(ResultNotStoredError):
                step("blob", blob, size)
            barrier = threading.Barrier(2)

            def inner(name: str) -> None:
                with suppress(threading.BrokenBarrierError):
                    barrier.wait(0.1)
                done.append(name)

            def one(name: str) -> None:
                with suppress(StepError):
                    step(name, inner, name)

            with ThreadPoolExecutor(2) as pool:
                names = ("x" * 30, "y" * 30)
                list(pool.map(lambda name, context: context.run(one, name), names, contexts()))
            raise ConnectionError

        guard = Guard(ledger=world.ledger, clock=world.clock, lease=100)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                guard.run_exactly_once("k", side_by_side)
        assert len(done) == len(set(done))


def test_what_is_only_begun_is_not_noted_as_done(world: World) -> None:
    charged: list[int] = []

    async def charge() -> str:
        charged.append(1)
        return "charged"

    async def gives_a_generator() -> Any:
        return (number for number in range(3))

    @idempotent(key="id", ledger=world.ledger)
    async def handler(event: dict[str, Any]) -> str:
        with pytest.raises(UnsupportedResultError, match="async def itself"):
            await step("charge", lambda: charge())
        with pytest.raises(UnsupportedResultError, match="generator"):
            await step("list", gives_a_generator)
        if event["fail"]:
            raise ConnectionError
        return await step("charge", charge)

    with pytest.raises(ConnectionError):
        asyncio.run(handler({"id": 1, "fail": True}))
    assert charged == []
    assert asyncio.run(handler({"id": 1, "fail": False})) == "charged"
    assert charged == [1]


def test_a_step_that_is_being_noted_when_its_task_is_cancelled_is_kept(world: World) -> None:
    charged: list[int] = []
    noting = threading.Event()
    replace = world.ledger.replace

    def slow(expected: Any, record: Any, **options: Any) -> Any:
        if record.steps and record.state is State.CLAIMED:
            noting.set()
            time.sleep(0.2)  # Until the release has come to wait for its turn.
        return replace(expected, record, **options)

    async def charge() -> None:
        charged.append(1)

    @idempotent(key="id", ledger=world.ledger)
    async def handler(event: dict[str, Any]) -> None:
        await step("charge", charge)

    async def main() -> None:
        world.ledger.replace = slow  # type: ignore[method-assign]
        task = asyncio.ensure_future(handler({"id": 1}))
        while not noting.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        world.ledger.replace = replace  # type: ignore[method-assign]
        await handler({"id": 1})

    asyncio.run(main())
    assert charged == [1]


@pytest.mark.parametrize("stop", [SystemExit, RuntimeError])
def test_a_step_whose_noting_is_cut_short_is_kept_by_the_release(
    world: World, stop: type[BaseException]
) -> None:
    charged: list[int] = []
    replace = world.ledger.replace

    def cut_short(*args: Any, **kwargs: Any) -> Any:
        world.ledger.replace = replace  # type: ignore[method-assign]
        raise stop

    def charge() -> None:
        charged.append(1)
        world.ledger.replace = cut_short  # type: ignore[method-assign]

    @idempotent(key="id", ledger=world.ledger)
    def handler(event: dict[str, Any]) -> None:
        step("charge", charge)

    with pytest.raises(stop):
        handler({"id": 1})
    handler({"id": 1})
    assert charged == [1]


def test_a_step_that_cannot_be_noted_goes_on_and_is_loud(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, watching = ssm_world(), Watching()
    done: list[str] = []

    def charge() -> str:
        done.append("charge")
        world.ssm.inject("PutParameter", Fault.denied())
        return "charged"

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, hooks=[watching])
    def handler(event: dict[str, Any]) -> str:
        charged = step("charge", charge)
        step("mail", lambda: done.append("mail"))
        if done == ["charge", "mail"]:
            done.append("failed")
            raise ConnectionError
        return charged

    with pytest.raises(ConnectionError):
        handler({"id": 1})
    # The second step's write carried the first one's result with it.
    assert handler({"id": 1}) == "charged"
    assert done == ["charge", "mail", "failed"]
    assert Happening.STEP_NOT_KEPT in watching.seen
    assert "charge" in caplog.text


def test_a_step_of_a_holder_that_was_taken_over_stops_the_work(world: World) -> None:
    done: list[str] = []
    guard = Guard(ledger=world.ledger, clock=world.clock, lease=5, operation="w")

    def work() -> str:
        step("one", lambda: done.append("one"))
        world.clock.advance(6)
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(guard.run_exactly_once, "k", lambda: "successor").result()
        step("two", lambda: done.append("two"))
        done.append("not reached")
        return "late"

    with pytest.raises(LeaseLostError):
        guard.run_exactly_once("k", work)

    assert done == ["one", "two"]
    assert guard.run_exactly_once("k", work).result == "successor"


def test_a_step_with_a_type_that_cannot_be_kept_is_noted_as_done(world: World) -> None:
    done: list[int] = []

    def odd() -> Any:
        done.append(1)
        return object()

    @idempotent(key="id", ledger=world.ledger)
    def handler(event: dict[str, Any]) -> None:
        step("odd", odd)

    with pytest.raises(UnsupportedResultError, match="object"):
        handler({"id": 1})
    with pytest.raises(ResultNotStoredError):
        handler({"id": 1})
    assert done == [1]


def test_effect_keys_are_the_same_in_every_attempt_and_differ_in_all_else(world: World) -> None:
    keys: list[tuple[str, str]] = []

    def work(event: dict[str, Any]) -> None:
        keys.append((effect_key("mail"), effect_key("charge", max_length=36)))
        if len(keys) == 1:
            raise ConnectionError

    options: Any = {"ledger": world.ledger, "clock": world.clock}
    handler = idempotent(key="id", operation="a", **options)(work)
    with pytest.raises(ConnectionError):
        handler({"id": 1})
    handler({"id": 1})
    handler({"id": 2})
    idempotent(key="id", operation="b", **options)(work)({"id": 1})
    idempotent(key="id", operation="a", namespace="other", **options)(work)({"id": 1})

    assert keys[0] == keys[1]
    assert len(keys[0][0]) == 64
    assert len(keys[0][1]) == 36
    different = [key for pair in keys[1:] for key in pair]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("length", [0, 15, 65])
def test_an_effect_key_too_short_to_be_unique_is_refused(world: World, length: int) -> None:
    @idempotent(key="id", ledger=world.ledger)
    def handler(event: dict[str, Any]) -> str:
        return effect_key("mail", max_length=length)

    with pytest.raises(InvalidOption, match="16 to 64"):
        handler({"id": 1})


def test_the_claim_tells_attempt_and_deadline(world: World) -> None:
    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any], context: object) -> tuple[int, float, float]:
        claim = current_claim()
        world.clock.advance(2)
        return claim.attempt, claim.remaining(), claim.deadline.timestamp() - world.clock.wall()

    attempt, remaining, until_deadline = handler({"id": 1}, world.context(10))
    assert attempt == 1
    assert remaining == pytest.approx(8.5)
    assert until_deadline == pytest.approx(8.5)


def test_unguarded_work_runs_its_steps_plainly() -> None:
    @idempotent(key="id", ledger="memory://steps", on_missing_key="run")
    def handler(event: dict[str, Any]) -> int:
        with pytest.raises(StepError, match="no key"):
            effect_key("mail")
        return step("a", lambda: 1) + step("a", lambda: 1)

    assert handler({}) == 2


def test_steps_leave_room_for_the_result_once_they_are_no_longer_needed() -> None:
    world = ssm_world()

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, local_cache=False)
    def handler(event: dict[str, Any]) -> str:
        step("large", lambda: "x" * 3000)
        return "y" * 3000

    assert handler({"id": 1}) == handler({"id": 1}) == "y" * 3000
    assert isinstance(world.ledger, SSMLedger)
