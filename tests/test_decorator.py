"""What can be decorated, what is refused at decoration, and what decorating leaves as it was."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
import os
import subprocess
import sys
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import idemguard
from idemguard import (
    Guard,
    Hook,
    InFlightError,
    InvalidKeyExpression,
    InvalidOption,
    MissingKeyError,
    ReentrantCallError,
    UnsupportedResultError,
    VolatileKeyWarning,
    idempotent,
)
from idemguard.record import State
from tests.worlds import World


class Handlers:
    """Methods of each kind, on the ledger of the environment."""

    def __init__(self, name: str) -> None:
        self.name = name

    @idempotent(key="id")
    def method(self, event: dict[str, Any], context: object = None) -> str:
        """Handle it."""
        return self.name

    @classmethod
    @idempotent(key="id")
    def class_below(cls, event: dict[str, Any]) -> str:
        return cls.__name__

    @idempotent(key="id")
    @classmethod
    def class_above(cls, event: dict[str, Any]) -> str:
        return cls.__name__

    @staticmethod
    @idempotent(key="id")
    def static_below(event: dict[str, Any]) -> str:
        return "static"

    @idempotent(key="id")
    @staticmethod
    def static_above(event: dict[str, Any]) -> str:
        return "static"

    @idempotent(key="id")
    async def async_method(self, event: dict[str, Any]) -> str:
        return self.name


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv("IDEMGUARD_LEDGER", f"memory://{request.node.name}")


@pytest.mark.usefixtures("memory")
def test_methods_of_each_kind_take_the_event_and_never_the_instance() -> None:
    first, second = Handlers("first"), Handlers("second")

    assert first.method({"id": 1}) == "first"
    assert second.method({"id": 1}) == "first"
    assert second.method(event={"id": 1}) == "first"
    assert second.method({"id": 2}) == "second"
    assert Handlers.class_below({"id": 1}) == "Handlers"
    assert Handlers.class_above({"id": 1}) == "Handlers"
    assert first.static_below({"id": 1}) == Handlers.static_above({"id": 1}) == "static"
    assert asyncio.run(first.async_method({"id": 1})) == "first"
    assert asyncio.run(second.async_method({"id": 1})) == "first"


def test_name_docstring_signature_and_the_function_itself_are_kept() -> None:
    def handler(event: dict[str, str], *, flag: bool = False) -> int:
        """Say something."""
        return 1

    decorated = idempotent(key="id")(handler)

    assert decorated.__name__ == "handler"
    assert decorated.__doc__ == "Say something."
    assert decorated.__module__ == __name__
    assert inspect.signature(decorated) == inspect.signature(handler)
    assert decorated.__wrapped__ is handler  # type: ignore[attr-defined]
    assert inspect.iscoroutinefunction(Handlers.async_method)


def test_callable_instances_and_partials_can_be_decorated(world: World) -> None:
    class Callable:
        def __call__(self, event: dict[str, Any]) -> str:
            return "called"

    class AsyncCallable:
        async def __call__(self, event: dict[str, Any]) -> str:
            return "awaited"

    def function(prefix: str, event: dict[str, Any]) -> str:
        return prefix

    called = idempotent(key="id", ledger=world.ledger)(Callable())
    awaited = idempotent(key="id", ledger=world.ledger)(AsyncCallable())
    partial = idempotent(key="id", ledger=world.ledger)(functools.partial(function, "p"))
    other = idempotent(key="id", ledger=world.ledger)(functools.partial(function, "other"))

    assert [called({"id": 1}), called({"id": 1})] == ["called", "called"]
    assert asyncio.run(awaited({"id": 1})) == "awaited"
    assert partial({"id": 1}) == "p"
    assert other({"id": 1}) == "p"
    assert len(world.names) == 3


def test_the_argument_that_holds_the_event_can_be_named(world: World) -> None:
    runs: list[str] = []

    @idempotent(key="id", argument="record", ledger=world.ledger)
    def process(kind: str, *, record: dict[str, Any]) -> str:
        runs.append(kind)
        return kind

    assert process("a", record={"id": 1}) == "a"
    assert process("b", record={"id": 1}) == "a"
    with pytest.raises(TypeError, match="record"):
        process("c")  # type: ignore[call-arg]
    assert runs == ["a"]


def test_a_callable_key_gets_the_event_as_it_is(world: World) -> None:
    @idempotent(key=lambda order: (order.tenant, order.number), ledger=world.ledger)
    def process(order: Any) -> int:
        return int(order.number)

    class Order:
        def __init__(self, tenant: str, number: int) -> None:
            self.tenant = tenant
            self.number = number

    assert process(Order("a", 1)) == process(Order("a", 1)) == 1
    assert process(Order("b", 1)) == 1
    assert len(world.names) == 2


def test_generators_are_refused_at_decoration() -> None:
    def generator(event: dict[str, Any]) -> Iterator[int]:
        yield 1

    async def async_generator(event: dict[str, Any]) -> AsyncIterator[int]:
        yield 1

    class Callable:
        def __call__(self, event: dict[str, Any]) -> Iterator[int]:
            yield 1

    for function in (generator, async_generator, Callable(), functools.partial(generator)):
        with pytest.raises(UnsupportedResultError, match="return a list"):
            idempotent(key="id")(function)


async def _later(event: object) -> None: ...


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"on_in_flight": "ignore"}, "on_in_flight"),
        ({"on_missing_key": "skip"}, "on_missing_key"),
        ({"on_ledger_error": "open"}, "on_ledger_error"),
        ({"on_complete_error": "log"}, "on_complete_error"),
        ({"result": "keep"}, "result"),
        ({"retention": 0}, "retention"),
        ({"retention": "7d"}, "retention"),
        ({"lease": -1}, "lease"),
        ({"lease": float("nan")}, "lease"),
        ({"wait_timeout": float("inf")}, "wait_timeout"),
        ({"namespace": "with space"}, "namespace"),
        ({"namespace": "../up"}, "namespace"),
        ({"operation": " "}, "operation"),
        ({"permanent": "ValueError"}, "permanent"),
        ({"argument": "nothing"}, "argument"),
        ({"ledger": "redis://x"}, "ledger"),
        ({"ledger": "ssm://[x"}, "ledger"),
        ({"ledger": object()}, "ledger"),
        ({"hooks": Hook()}, "hooks"),
        ({"hooks": [Hook]}, "hooks"),
        ({"hooks": [print]}, "hooks"),
        ({"on_duplicate": "nothing"}, "on_duplicate"),
        ({"on_duplicate": _later}, "on_duplicate"),
        ({"retenton": 5}, "retenton"),
    ],
)
def test_an_option_that_cannot_be_is_refused_and_named(options: Any, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        idempotent(key="id", **options)(lambda event: None)


@pytest.mark.parametrize("key", ["", "detail-type[", "nothing(@)", "a..b", 7, None])
def test_a_key_that_cannot_work_is_refused_at_decoration(key: Any) -> None:
    with pytest.raises(InvalidKeyExpression, match="key"):
        idempotent(key=key)(lambda event: None)
    with pytest.raises(InvalidKeyExpression, match="fingerprint"):
        idempotent(key="id", fingerprint=key or "nothing(@)")(lambda event: None)


def test_forgotten_parentheses_are_told() -> None:
    def handler(event: dict[str, Any], context: object) -> None:
        return None

    def one(event: dict[str, Any]) -> None:
        return None

    with pytest.raises(InvalidKeyExpression, match="with the parentheses"):
        idempotent(handler)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidOption, match="with the parentheses"):
        idempotent(one)({"id": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_function_without_parameters_is_refused_at_decoration() -> None:
    with pytest.raises(InvalidOption, match="no parameter"):
        idempotent(key="id")(lambda: None)


def test_a_volatile_key_warns_once_per_function_and_at_the_users_line() -> None:
    with pytest.warns(VolatileKeyWarning, match="receiptHandle") as warned:

        @idempotent(key="Records[0].receiptHandle", ledger="memory://volatile")
        def handler(event: dict[str, Any]) -> None:
            return None

    [warning] = warned
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        handler({"Records": [{"receiptHandle": "a"}]})


@pytest.mark.filterwarnings("error")
def test_a_whole_argument_that_is_one_value_is_a_key_like_any_other(world: World) -> None:
    @idempotent(key="@", ledger=world.ledger)
    def send(order_id: str) -> str:
        return order_id

    assert [send("a"), send("a"), send("b")] == ["a", "a", "b"]
    assert len(world.names) == 2


def test_payloads_that_cannot_be_read_do_not_pass_for_the_same(world: World) -> None:
    @idempotent(key="id", fingerprint="powertools_json(body)", ledger=world.ledger)
    def handler(event: dict[str, Any]) -> int:
        return 1

    with pytest.raises(MissingKeyError, match="fingerprint") as refused:
        handler({"id": 1, "body": "hunter2, and no JSON"})
    assert "hunter2" not in str(refused.value)


def test_async_work_is_awaited_stored_and_run_once_among_tasks(world: World) -> None:
    runs: list[int] = []

    @idempotent(key="id", ledger=world.ledger, on_in_flight="wait", local_cache=False)
    async def handler(event: dict[str, Any], context: object = None) -> int:
        runs.append(1)
        await asyncio.sleep(0.05)
        return len(runs)

    async def main() -> list[int]:
        return await asyncio.gather(*(handler({"id": 1}) for _ in range(5)))

    assert asyncio.run(main()) == [1] * 5
    assert runs == [1]


def test_cancelling_async_work_releases_the_claim(world: World) -> None:
    started: list[int] = []

    @idempotent(key="id", ledger=world.ledger)
    async def handler(event: dict[str, Any]) -> str:
        started.append(1)
        if len(started) == 1:
            await asyncio.sleep(60)
        return "done"

    async def main() -> str:
        task = asyncio.ensure_future(handler({"id": 1}))
        while not started:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await handler({"id": 1})

    assert asyncio.run(main()) == "done"


def test_cancelling_while_the_claim_is_being_won_leaves_no_claim(world: World) -> None:
    import threading

    asked, answer = threading.Event(), threading.Event()
    create = world.ledger.create

    def slow_create(*args: Any, **kwargs: Any) -> Any:
        entry = create(*args, **kwargs)
        asked.set()
        assert answer.wait(10)
        return entry

    @idempotent(key="id", ledger=world.ledger)
    async def handler(event: dict[str, Any]) -> str:
        return "done"

    async def main() -> None:
        world.ledger.create = slow_create  # type: ignore[method-assign]
        task = asyncio.ensure_future(handler({"id": 1}))
        while not asked.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        world.ledger.create = create  # type: ignore[method-assign]
        answer.set()

    asyncio.run(main())
    assert asyncio.run(handler({"id": 1})) == "done"


def test_reentry_is_noticed_from_tasks_and_threads_that_carry_the_context(world: World) -> None:
    @idempotent(key="id", ledger=world.ledger, on_in_flight="wait")
    async def handler(event: dict[str, Any]) -> str:
        with pytest.raises(ReentrantCallError):
            await asyncio.create_task(handler(event))
        return "outer"

    @idempotent(key="id", ledger=world.ledger, on_in_flight="wait")
    def blocking(event: dict[str, Any]) -> str:
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool, pytest.raises(ReentrantCallError):
            pool.submit(context.run, blocking, event).result()
        return "outer"

    assert asyncio.run(handler({"id": 1})) == "outer"
    assert blocking({"id": 1}) == "outer"


def test_a_task_left_behind_may_call_the_function_when_the_claim_has_ended(world: World) -> None:
    tasks: list[asyncio.Task[str]] = []

    @idempotent(key="id", ledger=world.ledger)
    async def handler(event: dict[str, Any]) -> str:
        async def later() -> str:
            await asyncio.sleep(0.05)
            return await handler(event)

        if not tasks:
            tasks.append(asyncio.create_task(later()))
        return "done"

    async def main() -> list[str]:
        return [await handler({"id": 1}), await tasks[0]]

    assert asyncio.run(main()) == ["done", "done"]


def test_threads_with_one_event_run_it_once(world: World) -> None:
    import time

    runs: list[int] = []

    @idempotent(key="id", ledger=world.ledger, local_cache=False)
    def handler(event: dict[str, Any]) -> int:
        runs.append(1)
        time.sleep(0.05)
        return 7

    def call(_: int) -> object:
        try:
            return handler({"id": 1})
        except InFlightError:
            return "in flight"

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(call, range(16)))

    assert runs == [1]
    assert answers.count(7) >= 1
    assert set(answers) <= {7, "in flight"}


def test_importing_takes_in_neither_sdk_nor_pydantic_nor_powertools() -> None:
    code = (
        "import sys, idemguard\n"
        "@idemguard.idempotent(key='id')\n"
        "def handler(event, context): ...\n"
        "print([m for m in sys.modules if m.partition('.')[0] in"
        " ('boto3', 'botocore', 'pydantic', 'aws_lambda_powertools', 'asyncio')])"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_exported_names_are_there_and_sorted() -> None:
    assert sorted(idemguard.__all__) == list(idemguard.__all__)
    for name in idemguard.__all__:
        assert getattr(idemguard, name) is not None
    errors = [name for name in dir(idemguard.errors) if name.endswith(("Error", "Unavailable"))]
    assert set(errors) <= set(idemguard.__all__)


@pytest.mark.parametrize(
    ("text", "runs"),
    [("1", 1), ("true", 1), ("on", 1), ("", 1), ("0", 2), ("No", 2), ("OFF", 2), (" false ", 2)],
)
def test_the_environment_turns_the_local_cache_on_and_off(
    world: World, monkeypatch: pytest.MonkeyPatch, text: str, runs: int
) -> None:
    monkeypatch.setenv("IDEMGUARD_LOCAL_CACHE", text)
    guard = Guard(ledger=world.ledger)
    done: list[int] = []
    for _ in range(2):
        guard.run_exactly_once("k", lambda: done.append(1))
        for name in world.names:
            barred = world.ledger.read(name)
            assert barred is not None
            world.ledger.replace(barred, barred.record.ended(State.RELEASED))
    assert len(done) == runs


def test_an_environment_that_cannot_be_is_refused_and_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDEMGUARD_LOCAL_CACHE", "perhaps")
    with pytest.raises(InvalidOption, match=r"IDEMGUARD_LOCAL_CACHE.*perhaps"):
        Guard(ledger=world.ledger).run_exactly_once("k", lambda: 1)


def test_a_guard_keeps_nothing_of_functions_that_are_gone(world: World) -> None:
    guard = Guard(ledger=world.ledger, local_cache=False)

    def handle(number: int) -> weakref.ref[Any]:
        @guard.idempotent(key="id")
        def function(event: dict[str, Any]) -> int:
            return number

        function({"id": number})
        return weakref.ref(function)

    left = [handle(number) for number in range(5)]
    gc.collect()
    assert [function() for function in left] == [None] * 5


def test_a_guards_options_are_shared_and_can_be_changed(world: World) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, retention=60, namespace="shop")

    @guard.idempotent(key="id")
    def short(event: dict[str, Any]) -> int:
        return 1

    @guard.idempotent(key="id", retention=600)
    def long(event: dict[str, Any]) -> int:
        return 1

    short({"id": 1})
    long({"id": 1})
    entries = [world.ledger.read(name) for name in sorted(world.names)]
    assert [entry.record.retention for entry in entries if entry] == [600, 60]
    assert all(name.startswith("shop/") for name in world.names)
