from __future__ import annotations

from typing import Any

import pytest

from idemguard.outcome import Phase
from idemguard.testing.frozen_clock import FrozenClock
from samples.local import LocalContext, event_of, killed

from . import handler as sample

pytestmark = pytest.mark.usefixtures("clock")

FIRST, POISON, TWIN, LAST = (f"11111111-0000-4000-8000-00000000000{n}" for n in (1, 2, 3, 4))


@pytest.fixture
def event() -> Any:
    sample.shipped.clear()
    return event_of("sqs_batch")


def failed(reply: Any) -> list[str]:
    return [item["itemIdentifier"] for item in reply["batchItemFailures"]]


def test_only_the_failed_message_comes_back_and_a_twin_in_the_batch_ships_once(
    event: Any, context: LocalContext
) -> None:
    assert failed(sample.handler(event, context)) == [POISON]
    assert sample.shipped == ["ORD-7001", "ORD-7003"]


def test_the_whole_batch_again_ships_nothing_again(event: Any, context: LocalContext) -> None:
    sample.handler(event, context)
    for record in event["Records"]:
        record["receiptHandle"] += "-again"
        record["attributes"]["ApproximateReceiveCount"] = "2"
    assert failed(sample.handler(event, context)) == [POISON]
    assert sample.shipped == ["ORD-7001", "ORD-7003"]


def test_an_order_in_flight_elsewhere_is_a_failed_message_until_its_lease_is_over(
    event: Any, context: LocalContext, clock: FrozenClock
) -> None:
    alone = {"Records": event["Records"][:1]}
    assert killed(lambda: sample.handler(alone, context), Phase.WORK)
    assert failed(sample.handler(event, context)) == [FIRST, POISON, TWIN]
    clock.advance(32)
    assert failed(sample.handler(event, context)) == [POISON]
    assert sample.shipped == ["ORD-7003", "ORD-7001"]
