"""What a duplicate gets is what the first delivery returned, or a clear word why not."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import os
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pydantic
import pytest

from idemguard import (
    Guard,
    Happening,
    InFlightError,
    Outcome,
    ResultNotStoredError,
    UnsupportedResultError,
    idempotent,
)
from idemguard.ledgers.ssm import SSMLedger
from tests.test_delivery import Watching
from tests.worlds import World, ssm_world


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Price:
    amount: Decimal
    colour: Colour


class Model(pydantic.BaseModel):
    n: int
    at: datetime


VALUES: list[Any] = [
    None,
    0,
    False,
    "",
    [],
    {},
    1,
    True,
    1.5,
    "text {{name}} {{ssm:/prod/pw}} }}",
    {"a": {"b": {"c": {}}}, "d": [[[]]]},
    Decimal("1.10"),
    datetime(2026, 6, 1, tzinfo=timezone.utc),
    date(2026, 6, 1),
    time(8, 30),
    timedelta(days=1, microseconds=3),
    UUID(int=7),
    b"\x00\xff",
    {1, 2},
    frozenset({"a"}),
    (1, (2, 3)),
    {1: "one", (2, 3): "pair"},
    "\ud800 lone surrogate",
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("cached", [True, False], ids=["warm", "cold"])
def test_a_replay_equals_the_first_result_in_value_and_type(
    world: World, value: Any, cached: bool
) -> None:
    @idempotent(key="id", ledger=world.ledger, clock=world.clock, local_cache=cached)
    def handler(event: dict[str, Any]) -> Any:
        return value

    first, again = handler({"id": 1}), handler({"id": 1})

    assert again == first == value
    assert type(again) is type(value)


def test_types_of_the_return_annotation_are_rebuilt(world: World) -> None:
    runs: list[int] = []

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, local_cache=False)
    def handler(event: dict[str, Any]) -> dict[str, list[Price] | Model]:
        runs.append(1)
        return {
            "prices": [Price(Decimal("1.10"), Colour.RED)],
            "model": Model(n=1, at=datetime(2026, 6, 1, tzinfo=timezone.utc)),
        }

    first, again = handler({"id": 1}), handler({"id": 1})
    assert again == first
    assert isinstance(again["model"], Model)
    assert runs == [1]


def test_types_can_be_registered(world: World) -> None:
    @idempotent(key="id", ledger=world.ledger, types=[Price], local_cache=False)
    def handler(event: dict[str, Any]) -> Any:
        return [Price(Decimal(1), Colour.RED)]

    assert handler({"id": 1}) == handler({"id": 1}) == [Price(Decimal(1), Colour.RED)]


def test_a_changed_replay_does_not_change_the_next_one(world: World) -> None:
    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any]) -> dict[str, list[int]]:
        return {"list": [1]}

    handler({"id": 1})["list"].append(2)
    handler({"id": 1})["list"].append(3)

    assert handler({"id": 1}) == {"list": [1]}


def test_a_type_that_cannot_be_kept_is_named_and_the_work_counts_as_done(world: World) -> None:
    runs: list[int] = []

    class Odd:
        pass

    @idempotent(key="id", ledger=world.ledger, clock=world.clock)
    def handler(event: dict[str, Any]) -> Any:
        runs.append(1)
        return {"items": [1, {"price": Odd()}]}

    with pytest.raises(UnsupportedResultError, match=r"Odd at \$\.items\[1\]\.price") as refused:
        handler({"id": 1})
    assert refused.value.where == "$.items[1].price"
    assert refused.value.operation is not None

    with pytest.raises(ResultNotStoredError) as again:
        handler({"id": 1})
    assert again.value.reason == "unsupported type"
    assert not again.value.retryable
    assert runs == [1]


def _ssm(tier: str) -> World:
    world = ssm_world()
    return dataclasses.replace(world, ledger=SSMLedger(world.ssm, tier=tier, clock=world.clock))


def test_a_large_result_is_compressed_into_the_record() -> None:
    world = _ssm("Standard")
    guard = Guard(ledger=world.ledger, clock=world.clock, local_cache=False)
    value = {"rows": ["x" * 50] * 200}

    guard.run_exactly_once("k", lambda: value)

    assert guard.run_exactly_once("k", lambda: None).result == value


@pytest.mark.parametrize("tier", ["Standard", "Advanced"])
def test_past_the_limit_the_work_is_done_all_the_same(tier: str) -> None:
    world, watching = _ssm(tier), Watching()
    runs: list[int] = []
    guard = Guard(ledger=world.ledger, clock=world.clock, local_cache=False, hooks=[watching])

    def work() -> dict[str, str]:
        runs.append(1)
        return {"blob": os.urandom(9000).hex()}

    first = guard.run_exactly_once("k", work)
    assert (first.outcome, len(first.result["blob"])) == (Outcome.EXECUTED, 18000)
    with pytest.raises(ResultNotStoredError) as refused:
        guard.run_exactly_once("k", work)

    assert refused.value.reason == "too large"
    assert runs == [1]
    assert Happening.RESULT_NOT_STORED in watching.seen
    [parameter] = world.ssm.describe_parameters()["Parameters"]
    assert parameter["Tier"] == tier


def test_on_duplicate_answers_where_the_result_was_not_stored(world: World) -> None:
    def answer(event: dict[str, Any]) -> str:
        return f"done before: {event['id']}"

    @idempotent(key="id", ledger=world.ledger, result="omit", on_duplicate=answer)
    def handler(event: dict[str, Any]) -> str:
        return "first"

    assert handler({"id": 1}) == "first"
    assert handler({"id": 1}) == "done before: 1"


def test_on_duplicate_may_be_async_where_the_work_is(world: World) -> None:
    async def answer(event: dict[str, Any]) -> str:
        return "done before"

    @idempotent(key="id", ledger=world.ledger, result="omit", on_duplicate=answer)
    async def handler(event: dict[str, Any]) -> str:
        return "first"

    assert asyncio.run(handler({"id": 1})) == "first"
    assert asyncio.run(handler({"id": 1})) == "done before"


def test_an_omitted_result_is_replayed_as_none_and_is_not_in_the_record(world: World) -> None:
    @idempotent(key="id", ledger=world.ledger, result="omit")
    def handler(event: dict[str, Any]) -> Any:
        return {"card": "4242", "odd": object()}

    assert handler({"id": 1})["card"] == "4242"
    assert handler({"id": 1}) is None
    assert "4242" not in world.record


def test_a_result_that_is_not_done_yet_is_refused_and_the_claim_released(world: World) -> None:
    made: list[Any] = [(n for n in "ab"), iter([1]), [1, 2]]

    @idempotent(key="id", ledger=world.ledger, clock=world.clock, permanent=Exception)
    def handler(event: dict[str, Any]) -> Any:
        return made.pop(0)

    for kind in ("generator", "list_iterator"):
        with pytest.raises(UnsupportedResultError, match=kind):
            handler({"id": 1})
    assert handler({"id": 1}) == [1, 2]


def test_a_coroutine_from_a_plain_function_is_refused(world: World) -> None:
    async def later() -> int:
        return 1

    made: list[Any] = []

    @idempotent(key="id", ledger=world.ledger)
    def handler(event: dict[str, Any]) -> Any:
        made.append(later())
        return made[-1]

    with pytest.raises(UnsupportedResultError, match="coroutine"):
        handler({"id": 1})
    made[0].close()


def test_a_replay_after_the_type_was_renamed_says_so_and_does_not_run(world: World) -> None:
    Before = dataclasses.make_dataclass("Before", [("n", int)])
    After = dataclasses.make_dataclass("After", [("n", int)])
    options: Any = {"ledger": world.ledger, "operation": "w", "local_cache": False}

    Guard(types=[Before], **options).run_exactly_once("k", lambda: Before(1))
    with pytest.raises(ResultNotStoredError) as refused:
        Guard(types=[After], **options).run_exactly_once("k", lambda: After(1))

    assert refused.value.reason == "type changed"


def test_a_hostile_record_is_never_an_execution() -> None:
    world = ssm_world()
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="w")
    name = f"/idempotency/default/w/{guard.key('k').digest}"
    hostile = [
        "postgres://user:secret@db/prod",
        '{"db": "orders", "secret": "hunter2"}',
        '{"f":2,"x":"d","t":"x","p":0}',
        '{"f":1,"x":"z","t":"x","p":0}',
        '{"f":1,"x":"d","t":"x"}',
        '{"f":1,"x":"d","t":"x","p":"0"}',
        '{"f":1,"x":"d","t":7,"p":0}',
        '{"f":1,"x":"d","t":"x","k":60,"p":0,"v":{"$object":["os:system",{"command":"true"}]}}',
        "[" * 2000,
        '{"f":1,"x":"c","t":"tok',
    ]
    for value in hostile:
        world.ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=False)
        for strict in (guard, Guard(ledger=world.ledger, operation="w", on_ledger_error="run")):
            with pytest.raises(Exception) as refused:  # noqa: PT011
                strict.run_exactly_once("k", _never)
            assert type(refused.value).__module__ == "idemguard.errors", value
            assert not isinstance(refused.value, InFlightError)
            assert "secret" not in str(refused.value)
            assert "hunter2" not in str(refused.value)
        world.ssm.delete_parameter(Name=name)
        world.clock.advance(31)


def _never() -> None:
    raise AssertionError("a record that cannot be read must not lead to a run")
