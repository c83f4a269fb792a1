from __future__ import annotations

import base64
import json
import secrets
from typing import Any

import pytest

from idemguard.ledgers.memory import MemoryLedger
from idemguard.options import ledger_in_place
from idemguard.outcome import Phase
from idemguard.testing.faults import FaultyLedger, LedgerFault
from idemguard.testing.frozen_clock import FrozenClock
from samples.local import LocalContext, event_of, killed

from . import handler as sample

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def event() -> Any:
    sample.placed.clear()
    return event_of("api_gateway")


def test_the_same_request_again_gets_the_first_reply(event: Any, context: LocalContext) -> None:
    first = sample.handler(event, context)
    assert first["statusCode"] == 201
    event["requestContext"]["requestId"] = "another"
    assert sample.handler(event, context) == first
    assert sample.placed == ["ORD-6001"]


def test_the_same_body_in_base64_and_in_another_order_is_the_same_request(
    event: Any, context: LocalContext
) -> None:
    first = sample.handler(event, context)
    body = json.dumps(dict(reversed(json.loads(event["body"]).items())))
    event.update(body=base64.b64encode(body.encode()).decode(), isBase64Encoded=True)
    assert sample.handler(event, context) == first
    assert sample.placed == ["ORD-6001"]


def test_another_caller_with_the_same_idempotency_key_places_an_own_order(
    event: Any, context: LocalContext
) -> None:
    sample.handler(event, context)
    event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = "user-43"
    sample.handler(event, context)
    assert len(sample.placed) == 2


def test_without_an_idempotency_key_nothing_is_placed(event: Any, context: LocalContext) -> None:
    del event["headers"]["idempotency-key"]
    assert sample.handler(event, context)["statusCode"] == 400
    assert sample.placed == []


def test_another_body_under_the_same_idempotency_key_is_refused(
    event: Any, context: LocalContext
) -> None:
    sample.handler(event, context)
    event["body"] = event["body"].replace("12.50", "99.00")
    assert sample.handler(event, context)["statusCode"] == 422
    assert sample.placed == ["ORD-6001"]


def test_a_request_whose_first_is_still_at_work_is_told_when_to_come_back(
    event: Any, context: LocalContext, clock: FrozenClock
) -> None:
    assert killed(lambda: sample.handler(event, context), Phase.WORK)
    refused = sample.handler(event, context)
    assert refused["statusCode"] == 409
    clock.advance(float(refused["headers"]["Retry-After"]) + 1)
    assert sample.handler(event, context)["statusCode"] == 201
    assert sample.placed == ["ORD-6001"]


def test_while_the_ledger_throttles_nothing_is_placed_and_the_client_may_come_back(
    event: Any, context: LocalContext, clock: FrozenClock
) -> None:
    ledger = FaultyLedger(MemoryLedger(clock), clock=clock)
    ledger.inject(LedgerFault.throttle())
    with ledger_in_place(ledger):
        refused = sample.handler(event, context)
        assert (refused["statusCode"], refused["headers"]["Retry-After"]) == (503, "1")
        assert sample.placed == []
        assert sample.handler(event, context)["statusCode"] == 201
    assert sample.placed == ["ORD-6001"]


def test_a_request_that_is_done_and_whose_reply_was_not_kept_is_not_to_be_sent_again(
    event: Any, context: LocalContext, clock: FrozenClock
) -> None:
    # Too large for a record, and nothing that compression helps with.
    order_id = secrets.token_hex(5000)
    event["body"] = json.dumps({"order_id": order_id})
    with ledger_in_place(MemoryLedger(clock, max_bytes=4096)):
        assert sample.handler(event, context)["statusCode"] == 201
        refused = sample.handler(event, context)
    assert refused["statusCode"] == 409
    assert "Retry-After" not in refused["headers"]
    assert sample.placed == [order_id]
