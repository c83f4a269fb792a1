from __future__ import annotations

import json
from typing import Any

import pytest

from idemguard import InFlightError, MissingKeyError
from idemguard.outcome import Phase
from idemguard.testing.frozen_clock import FrozenClock
from samples.local import LocalContext, event_of, killed

from . import handler as sample

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def event() -> Any:
    sample.published.clear()
    return event_of("registration_expiry")


def kinds() -> list[str]:
    return [json.loads(message["Message"])["kind"] for message in sample.published.values()]


BOTH = ["RegistrationClosed", "OwnerNoticeDue"]


def test_the_same_event_twice_runs_once_and_gives_the_same_answer(
    event: Any, context: LocalContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sample.handler(event, context)
    monkeypatch.setattr(sample, "publish", None)
    assert sample.handler(event, context) == first == {"recordId": "REG-1001", "status": "EXPIRED"}
    assert kinds() == BOTH


def test_an_expiry_that_the_producer_sends_again_is_the_same_work(
    event: Any, context: LocalContext
) -> None:
    sample.handler(event, context)
    sample.handler({**event, "id": "another", "time": "2026-06-01T00:05:00Z"}, context)
    assert kinds() == BOTH


def test_another_date_is_other_work(event: Any, context: LocalContext) -> None:
    sample.handler(event, context)
    event["detail"]["effectiveDate"] = "2027-06-01"
    sample.handler(event, context)
    assert kinds() == BOTH * 2


def test_an_event_without_a_date_is_refused_and_nothing_is_sent(
    event: Any, context: LocalContext
) -> None:
    del event["detail"]["effectiveDate"]
    with pytest.raises(MissingKeyError):
        sample.handler(event, context)
    assert kinds() == []


def test_a_failed_attempt_is_tried_again_at_once(
    event: Any, context: LocalContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(kind: str, record_id: str) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(sample, "publish", unreachable)
        with pytest.raises(ConnectionError):
            sample.handler(event, context)
    sample.handler(event, context)
    assert kinds() == BOTH


def test_a_killed_attempt_is_done_again_after_its_lease_and_its_messages_count_once(
    event: Any, context: LocalContext, clock: FrozenClock
) -> None:
    assert killed(lambda: sample.handler(event, context), Phase.COMPLETE)
    with pytest.raises(InFlightError):
        sample.handler(event, context)
    clock.advance(32)
    sample.handler(event, context)
    assert kinds() == BOTH


def test_with_a_topic_the_message_goes_there_under_its_effect_key(
    event: Any, context: LocalContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, str]] = []

    class Topic:
        def publish(self, **call: str) -> None:
            calls.append(call)

    monkeypatch.setenv("TOPIC_ARN", "arn:aws:sns:eu-west-1:111122223333:registrations.fifo")
    monkeypatch.setattr("boto3.client", lambda service: Topic())
    sample.handler(event, context)
    assert [call["TopicArn"][-5:] for call in calls] == [".fifo", ".fifo"]
    assert len({call["MessageDeduplicationId"] for call in calls}) == 2
    assert not sample.published
