"""Powertools' own Logger, Tracer, Metrics, data classes and parser, above and below `@idempotent`."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any, ParamSpec, TypeVar, cast

import pytest
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import (
    APIGatewayProxyEventV2,
    EventBridgeEvent,
    event_source,
)
from aws_lambda_powertools.utilities.parser import event_parser
from aws_lambda_powertools.utilities.parser.models import (
    APIGatewayProxyEventV2Model,
    EventBridgeModel,
)
from aws_xray_sdk import global_sdk_config
from aws_xray_sdk.core import xray_recorder
from aws_xray_sdk.core.async_context import AsyncContext
from aws_xray_sdk.core.context import Context
from aws_xray_sdk.core.emitters.udp_emitter import UDPEmitter

from idemguard import (
    Claim,
    Guard,
    InFlightError,
    LedgerUnavailable,
    MissingKeyError,
    PayloadMismatchError,
    UnsupportedResultError,
    idempotent,
    sources,
    step,
)
from idemguard.cache import forget
from idemguard.integrations import metrics as metrics_module
from idemguard.integrations.metrics import metric_name
from idemguard.outcome import Happening
from idemguard.testing.ssm_faults import Fault
from tests.worlds import World, memory_world, ssm_world

P = ParamSpec("P")
R = TypeVar("R")

Load = Callable[[str], Any]

# Opened on import and never closed, which Python would complain of at its end.
cast("Any", xray_recorder.emitter)._socket.close()


@pytest.fixture
def world() -> World:
    return memory_world()


def in_time(world: World) -> Any:
    """The context of an invocation with 30 seconds left; Powertools wants one of its own type."""
    return world.context()


def typed(decorator: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of Powertools, with the types that it lacks."""
    return cast("Callable[[Callable[P, R]], Callable[P, R]]", decorator)


# Logger


class Lines:
    """A Powertools Logger and what it wrote."""

    def __init__(self, name: str) -> None:
        self._stream = StringIO()
        self.logger = Logger(service=name, stream=self._stream, level="INFO")

    def __call__(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def work(self) -> list[dict[str, Any]]:
        """The lines that the work wrote, not those that tell a decision."""
        return [line for line in self() if not str(line["message"]).startswith("idempotency: ")]


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[Lines]:
    made = Lines(request.node.name)
    yield made
    made.logger.thread_safe_clear_keys()
    logging.getLogger(request.node.name).handlers.clear()


@pytest.mark.parametrize("place", ["above", "below"])
def test_every_line_of_the_work_says_which_work_it_is(
    world: World, lines: Lines, place: str
) -> None:
    inject = typed(lines.logger.inject_lambda_context)
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="ship", logger=lines.logger)

    def handler(event: dict[str, str], context: Any) -> str:
        lines.logger.info("one")
        helper()
        return "shipped"

    def helper() -> None:
        lines.logger.warning("two", extra={"more": 1})

    make = guard.idempotent(key="id")
    handle = inject(make(handler)) if place == "above" else make(inject(handler))
    lines.logger.info("before")
    assert [handle({"id": "o-1"}, in_time(world)) for _ in range(2)] == ["shipped"] * 2
    lines.logger.info("after")

    before, one, two, after = lines.work()
    digest = guard.key("o-1").digest
    for line in (one, two):
        assert (line["idempotency_key"], line["operation"], line["attempt"]) == (digest, "ship", 1)
        assert line["function_request_id"] == "a-request"
    for line in (before, after):
        assert not {"idempotency_key", "operation", "attempt"} & set(line)
    decisions = [line for line in lines() if "happening" in line]
    assert [(line["message"], line.get("outcome"), line["level"]) for line in decisions] == [
        ("idempotency: executed", "EXECUTED", "INFO"),
        ("idempotency: replayed", "SKIPPED_COMPLETED", "INFO"),
    ]
    assert {line["idempotency_key"] for line in decisions} == {digest}
    assert "o-1" not in json.dumps(lines())


def test_work_inside_work_gives_the_keys_back(world: World, lines: Lines) -> None:
    options: Any = {"ledger": world.ledger, "logger": lines.logger}
    lines.logger.thread_safe_append_keys(operation="the user's own", tenant="blue")

    @idempotent(key="id", operation="inner", **options)
    def inner(event: dict[str, str]) -> None:
        lines.logger.info("in")

    @idempotent(key="id", operation="outer", **options)
    def outer(event: dict[str, str]) -> None:
        lines.logger.info("out")
        inner(event)
        lines.logger.info("out")

    outer({"id": "1"})
    lines.logger.info("done")

    told = [(line["operation"], line["tenant"], "attempt" in line) for line in lines.work()]
    assert told == [
        ("outer", "blue", True),
        ("inner", "blue", True),
        ("outer", "blue", True),
        ("the user's own", "blue", False),
    ]


def test_the_keys_go_when_the_work_raises(world: World, lines: Lines) -> None:
    @idempotent(key="id", ledger=world.ledger, logger=lines.logger)
    def handler(event: dict[str, str]) -> None:
        raise ConnectionError("the payload")

    with pytest.raises(ConnectionError):
        handler({"id": "1"})
    lines.logger.info("after")

    [after] = lines.work()
    assert "attempt" not in after
    [decision] = [line for line in lines() if "happening" in line]
    assert (decision["happening"], decision["error_type"]) == ("work failed", "ConnectionError")
    assert "the payload" not in json.dumps(lines())


def test_threads_keep_their_own_keys(world: World, lines: Lines) -> None:
    barrier = threading.Barrier(4)

    @idempotent(key="id", ledger=world.ledger, logger=lines.logger)
    def handler(event: dict[str, int]) -> None:
        barrier.wait(30)
        lines.logger.info("line", extra={"id": event["id"]})
        barrier.wait(30)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(handler, [{"id": n} for n in range(4)]))

    told = {line["id"]: line["idempotency_key"] for line in lines.work()}
    assert len(told) == len(set(told.values())) == 4


def test_tasks_keep_their_own_keys(world: World, lines: Lines) -> None:
    @idempotent(key="id", ledger=world.ledger, logger=lines.logger)
    async def handler(event: dict[str, int]) -> None:
        await asyncio.sleep(0)
        lines.logger.info("line", extra={"id": event["id"]})

    async def all_of_them() -> None:
        await asyncio.gather(*(handler({"id": n}) for n in range(4)))

    asyncio.run(all_of_them())

    told = {line["id"]: line["idempotency_key"] for line in lines.work()}
    assert len(told) == len(set(told.values())) == 4


def test_trouble_is_told_loudly(lines: Lines) -> None:
    world = ssm_world()
    world.ssm.inject("PutParameter", Fault.throttle(), times=1000)

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, logger=lines.logger)
    def handler(event: dict[str, str], context: Any) -> None:
        pass

    with pytest.raises(LedgerUnavailable):
        handler({"id": "1"}, world.context())
    [line] = [line for line in lines() if "happening" in line]
    assert (line["level"], line["error_type"]) == ("WARNING", "LedgerUnavailable")


def test_a_standard_logger_gets_the_decisions(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("shop")

    @idempotent(key="id", ledger=world.ledger, logger=logger)
    def handler(event: dict[str, str]) -> None:
        logger.info("work")

    with caplog.at_level(logging.INFO, "shop"):
        handler({"id": "1"})
        handler({"id": "1"})
    assert caplog.messages == ["work", "idempotency: executed", "idempotency: replayed"]


# Tracer


class Traces:
    """The X-Ray recorder with a segment open, and what is in it."""

    def __init__(self) -> None:
        self.root: Any = None

    def named(self, entity: Any = None) -> list[tuple[str, Any]]:
        """Names of the subsegments from the top down, nested ones in a list of their own."""
        return [
            (sub.name, self.named(sub)) if sub.subsegments else (sub.name, [])
            for sub in (entity or self.root).subsegments
        ]

    def all(self, entity: Any = None) -> list[Any]:
        return [
            found for sub in (entity or self.root).subsegments for found in (sub, *self.all(sub))
        ]

    def noted(self) -> dict[str, dict[str, Any]]:
        """Annotations of each subsegment that has any."""
        return {sub.name: sub.annotations for sub in self.all() if sub.annotations}


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    cast("Any", Tracer)._reset_config()
    global_sdk_config.set_sdk_enabled(True)

    class Emitter(UDPEmitter):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def send_entity(self, entity: Any) -> None:
            pass

    before = (xray_recorder.emitter, xray_recorder.context, xray_recorder.sampling)
    xray_recorder.configure(emitter=Emitter(), context=Context(), sampling=False)
    made = Traces()
    made.root = xray_recorder.begin_segment("function")
    yield made
    xray_recorder.clear_trace_entities()
    emitter, context, sampling = before
    xray_recorder.configure(emitter=emitter, context=context, sampling=sampling)
    cast("Any", Tracer)._reset_config()


def tracer_of() -> Tracer:
    tracer = Tracer(service="shop", disabled=False, auto_patch=False)
    # It has every subsegment sent and dropped at once, in place of kept in its parent.
    xray_recorder.configure(streaming_threshold=1000)
    return tracer


def test_the_ledgers_phases_and_steps_are_subsegments(world: World, traces: Traces) -> None:
    tracer = tracer_of()

    @typed(tracer.capture_lambda_handler)
    @idempotent(key="id", ledger=world.ledger, clock=world.clock, operation="ship", tracer=tracer)
    def handler(event: dict[str, str], context: Any) -> str:
        charge()
        return step("mail", lambda: "sent")

    @typed(tracer.capture_method)
    def charge() -> None:
        pass

    assert [handler({"id": "1"}, in_time(world)) for _ in range(2)] == ["sent", "sent"]

    (_, first), (_, again) = traces.named()
    assert [re.sub(r".*locals\.", "## ", name) for name, _ in first] == [
        "## idempotency claim", "## charge", "## step mail", "## idempotency complete",
    ]  # fmt: skip
    assert [name for name, _ in again] == ["## idempotency claim"]
    claims = [sub for sub in traces.all() if sub.name == "## idempotency claim"]
    [complete] = [sub for sub in traces.all() if sub.name == "## idempotency complete"]
    assert [sub.annotations.get("IdempotencyOutcome") for sub in claims] == [
        None,
        "SKIPPED_COMPLETED",
    ]
    assert complete.annotations == {
        "IdempotencyOutcome": "EXECUTED",
        "IdempotencyOperation": "ship",
    }
    assert not any(sub.in_progress for sub in traces.all())


def test_above_the_tracer_the_phases_stand_beside_the_handlers_subsegment(
    world: World, traces: Traces
) -> None:
    tracer = tracer_of()

    @idempotent(key="id", ledger=world.ledger, tracer=tracer)
    @typed(tracer.capture_lambda_handler)
    def handler(event: dict[str, str], context: Any) -> str:
        return "done"

    handler({"id": "1"}, in_time(world))
    names = [name for name, _ in traces.named()]
    assert names[0] == "## idempotency claim"
    assert "handler" in names[1]
    assert names[2] == "## idempotency complete"


def test_a_failed_work_is_a_release_or_a_recorded_failure(world: World, traces: Traces) -> None:
    tracer = tracer_of()

    @idempotent(key="id", ledger=world.ledger, tracer=tracer, permanent=ValueError)
    def handler(event: dict[str, str]) -> None:
        raise ValueError if event["id"] == "bad" else ConnectionError

    for event, error in (({"id": "1"}, ConnectionError), ({"id": "bad"}, ValueError)):
        with pytest.raises(error):
            handler(event)
    assert [name for name, _ in traces.named()] == [
        "## idempotency claim",
        "## idempotency release",
        "## idempotency claim",
        "## idempotency fail",
    ]


def test_a_refusal_is_an_outcome_of_the_claim(world: World, traces: Traces) -> None:
    guard = Guard(ledger=world.ledger, operation="ship", tracer=tracer_of())
    Guard(ledger=world.ledger, operation="ship").claim("k")

    with pytest.raises(InFlightError):
        guard.run_exactly_once("k", lambda: 1)
    assert traces.noted()["## idempotency claim"]["IdempotencyOutcome"] == "SKIPPED_IN_FLIGHT"


@pytest.mark.parametrize("context", [Context, AsyncContext], ids=["threads", "tasks"])
def test_async_work_is_traced_as_well(world: World, traces: Traces, context: Any) -> None:
    tracer = tracer_of()

    @idempotent(key="id", ledger=world.ledger, operation="ship", tracer=tracer)
    async def handler(event: dict[str, str]) -> str:
        await asyncio.sleep(0)
        return "done"

    async def twice() -> None:
        if context is AsyncContext:
            xray_recorder.configure(context=AsyncContext(loop=asyncio.get_running_loop()))
            traces.root = xray_recorder.begin_segment("tasks")
        await handler({"id": "1"})
        await handler({"id": "1"})

    asyncio.run(twice())

    assert [(sub.name, sub.annotations.get("IdempotencyOutcome")) for sub in traces.all()] == [
        ("## idempotency claim", None),
        ("## idempotency complete", "EXECUTED"),
        ("## idempotency claim", "SKIPPED_COMPLETED"),
    ]


def test_a_tracer_that_is_turned_off_changes_nothing(
    world: World, traces: Traces, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POWERTOOLS_TRACE_DISABLED", "1")
    try:

        @idempotent(key="id", ledger=world.ledger, tracer=Tracer(service="shop"))
        def handler(event: dict[str, str]) -> str:
            return "done"

        assert [handler({"id": "1"}), handler({"id": "1"})] == ["done", "done"]
    finally:
        global_sdk_config.set_sdk_enabled(True)
    assert traces.named() == []
    assert "hook" not in caplog.text


def test_outside_of_a_traced_invocation_the_work_runs_untraced(
    world: World, traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    xray_recorder.clear_trace_entities()

    @idempotent(key="id", ledger=world.ledger, tracer=tracer_of())
    def handler(event: dict[str, str]) -> str:
        return "done"

    assert handler({"id": "1"}) == "done"
    assert "hook" not in caplog.text


# Metrics


def flushed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one EMF document that was written."""
    [line] = capsys.readouterr().out.splitlines()
    return dict(json.loads(line))


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    made = Metrics(namespace="Shop", service="orders")
    made.clear_metrics()
    yield made
    made.clear_metrics()


def test_outcomes_are_counted_and_flushed_with_the_handlers_own_metrics(
    world: World, metrics: Metrics, capsys: pytest.CaptureFixture[str]
) -> None:
    @typed(metrics.log_metrics)
    @idempotent(key="id", ledger=world.ledger, clock=world.clock, operation="ship", metrics=metrics)
    def handler(event: dict[str, str], context: Any) -> str:
        metrics.add_metric(name="Shipped", unit="Count", value=1)
        return "done"

    handler({"id": "1"}, in_time(world))
    first = flushed(capsys)
    handler({"id": "1"}, in_time(world))
    again = flushed(capsys)

    assert (first["Shipped"], first["IdempotencyExecuted"]) == ([1.0], [1.0])
    assert again["IdempotencyReplayed"] == [1.0]
    assert "Shipped" not in again
    assert first["service"] == "orders"
    assert first["IdempotencyOperation"] == "ship"
    [directive] = first["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["service"]]


def test_every_metric_of_the_table_is_counted_when_it_happens(
    metrics: Metrics, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ssm_world()
    ssm = world.ssm
    options: Any = {"ledger": world.ledger, "clock": world.clock, "metrics": metrics}
    guard = Guard(**options, operation="w", permanent=ValueError, local_cache=False)
    run = guard.run_exactly_once

    def fail(error: Exception) -> Any:
        raise error

    run("k", lambda: 1)  # executed
    run("k", lambda: 1)  # replayed
    guard.claim("busy")
    with pytest.raises(InFlightError):
        run("busy", lambda: 1)
    run("p", lambda: 1, payload="one")
    with pytest.raises(PayloadMismatchError):
        run("p", lambda: 1, payload="two")
    for _ in range(2):  # work failed, failed before
        with pytest.raises(ValueError, match="no"):
            run("f", lambda: fail(ValueError("no")))

    @idempotent(key="id", on_missing_key="run", **options)
    def keyless(event: dict[str, str]) -> None:
        pass

    keyless({})  # missing key, ran unguarded
    brief = Guard(**options, operation="w", lease=5)
    brief.claim("dead")
    late = brief.claim("late")
    world.clock.advance(6)
    run("dead", lambda: 1)  # taken over
    run("late", lambda: 1)
    assert isinstance(late, Claim)
    brief.complete(late)  # lease lost
    with pytest.raises(UnsupportedResultError):
        run("odd", lambda: object())  # result not stored

    def stepped() -> None:
        step("one", lambda: 1)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        run("steps", stepped)
    run("steps", lambda: step("one", lambda: 1))  # resumed

    def unkept() -> None:
        ssm.inject("PutParameter", Fault.denied(), times=1)
        step("s", int)

    run("kept", unkept)  # step not kept
    run("lost", lambda: ssm.inject("PutParameter", Fault.denied(), times=1))  # completion failed

    def unreleased() -> None:
        ssm.inject("PutParameter", Fault.denied(), times=1)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        run("stuck", unreleased)
    ssm.inject("PutParameter", Fault.throttle(), times=1000)
    with pytest.raises(LedgerUnavailable):
        run("later", lambda: 1, context=world.context(3))

    metrics.flush_metrics()
    document = flushed(capsys)
    counted = {name for name in document if name.startswith("Idempotency")}
    table = set(re.findall(r"^\| `(\w+)` \|", metrics_module.__doc__ or "", re.MULTILINE))
    assert table == {metric_name(happening) for happening in Happening}
    assert table <= counted, table - counted


def test_many_threads_count_one_after_another(
    world: World, metrics: Metrics, capsys: pytest.CaptureFixture[str]
) -> None:
    adding: list[int] = []
    most: list[int] = []

    class Watched(Metrics):
        """Metrics lose a count where two threads add one at the same moment."""

        def add_metric(self, *args: Any, **kwargs: Any) -> None:
            adding.append(1)
            most.append(len(adding))
            time.sleep(0.002)
            super().add_metric(*args, **kwargs)
            adding.pop()

    watched = Watched(namespace="Shop", service="orders")

    @idempotent(key="id", ledger=world.ledger, metrics=watched)
    def handler(event: dict[str, int]) -> None:
        pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(handler, [{"id": n} for n in range(16)]))
    metrics.flush_metrics()

    assert len(flushed(capsys)["IdempotencyExecuted"]) == 16
    assert max(most) == 1


def test_a_key_that_is_missing_is_counted_without_one(
    world: World, metrics: Metrics, capsys: pytest.CaptureFixture[str]
) -> None:
    @idempotent(key="id", ledger=world.ledger, metrics=metrics)
    def handler(event: dict[str, str]) -> None:
        pass

    with pytest.raises(MissingKeyError):
        handler({})
    metrics.flush_metrics()
    assert flushed(capsys)["IdempotencyMissingKey"] == [1.0]


# Data classes and the parser

EVENTS = {
    "eventbridge_custom": (
        EventBridgeEvent,
        EventBridgeModel,
        '[id, "detail-type", detail.metadata.idempotency_key]',
    ),
    "apigw_http_v2": (APIGatewayProxyEventV2, APIGatewayProxyEventV2Model, sources.APIGW_HTTP),
}


@pytest.mark.parametrize("name", EVENTS)
def test_dict_data_class_and_model_are_the_same_work_above_and_below(
    world: World, event: Load, name: str
) -> None:
    data_class, model, key = EVENTS[name]
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="w")
    make = guard.idempotent(key=key)
    seen: list[type] = []

    def handler(event: Any, context: Any) -> None:
        seen.append(type(event))
        raise ConnectionError  # so that the next form runs as well

    data = typed(event_source(data_class=data_class))
    parse = typed(event_parser(model=model))
    forms = [
        make(handler),
        data(make(handler)),
        make(data(handler)),
        parse(make(handler)),
        make(parse(handler)),
    ]
    for form in forms:
        with pytest.raises(ConnectionError):
            form(event(name), in_time(world))

    assert seen == [dict, data_class, data_class, model, model]
    assert len(world.names) == 1


def test_the_stack_of_them_all(
    world: World,
    lines: Lines,
    traces: Traces,
    metrics: Metrics,
    event: Load,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tracer = tracer_of()
    guard = Guard(
        ledger=world.ledger,
        clock=world.clock,
        logger=lines.logger,
        tracer=tracer,
        metrics=metrics,
    )

    @typed(lines.logger.inject_lambda_context)
    @typed(tracer.capture_lambda_handler)
    @typed(metrics.log_metrics)
    @typed(event_source(data_class=EventBridgeEvent))
    @guard.idempotent(key=sources.EVENTBRIDGE)
    def handler(event: EventBridgeEvent, context: Any) -> str:
        lines.logger.info("work")
        return event.detail_type

    results = []
    for _ in range(2):
        forget()
        results.append(handler(event("eventbridge_custom"), in_time(world)))
    assert results == [event("eventbridge_custom")["detail-type"]] * 2
    assert [line["attempt"] for line in lines.work()] == [1]
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "IdempotencyExecuted" in documents[0]
    assert "IdempotencyReplayed" in documents[1]
    assert len(traces.all()) == 5
