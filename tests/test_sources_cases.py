"""Whole deliveries of real sources' events: what runs, what is answered, what is refused."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from idemguard import (
    Guard,
    InFlightError,
    LedgerUnavailable,
    MissingKeyError,
    VolatileKeyWarning,
    idempotent,
    sources,
)
from idemguard.ledgers.memory import MemoryLedger
from idemguard.options import DEFAULT_RETENTION
from tests.worlds import World

Load = Callable[[str], Any]


def runs_of(world: World, key: str, events: list[Any], **options: Any) -> list[int]:
    """The places of those events that ran; the others were answered from the ledger."""
    runs: list[int] = []
    place = 0

    @idempotent(key=key, ledger=world.ledger, clock=world.clock, local_cache=False, **options)
    def handler(event: Any, context: object) -> str:
        runs.append(place)
        return "done"

    for place, event in enumerate(events):  # noqa: B007
        assert handler(event, world.context()) == "done"
    return runs


# key, events, which of them run
DELIVERIES: dict[str, tuple[str, list[str], list[int]]] = {
    "an SQS redelivery replays, a message sent again runs": (
        f"Records[].{sources.SQS_MESSAGE}",
        ["sqs_standard", "sqs_standard_redelivery", "sqs_standard_republished"],
        [0, 2],
    ),
    "by its body a message sent again is one run": (
        "powertools_json(Records[0].body)",
        ["sqs_standard", "sqs_standard_redelivery", "sqs_standard_republished"],
        [0],
    ),
    "a topic's message is one run, wrapped and raw": (
        "unwrap_sns(Records[0]).order_id",
        ["sns_in_sqs", "sns_in_sqs_raw_delivery"],
        [0],
    ),
    "an upload is one run, and the next upload of the name another": (
        f"Records[].{sources.S3_OBJECT}",
        ["s3_put_urlencoded_key", "s3_put_urlencoded_key", "s3_put_same_key_new_upload"],
        [0, 2],
    ),
    "by its id an EventBridge event that the producer sends again runs again": (
        sources.EVENTBRIDGE,
        ["eventbridge_custom", "eventbridge_custom", "eventbridge_custom_producer_retry"],
        [0, 2],
    ),
    "by its own key an EventBridge event that the producer sends again is one run": (
        "detail.metadata.idempotency_key",
        ["eventbridge_custom", "eventbridge_custom_producer_retry"],
        [0],
    ),
    "a schedule runs once a tick": (
        sources.EVENTBRIDGE_SCHEDULE,
        [
            "eventbridge_scheduled_rule_cron",
            "eventbridge_scheduled_rule_cron",
            "eventbridge_scheduled_rule_cron_next_day",
        ],
        [0, 2],
    ),
    "a task's retry is one run": (
        sources.STEP_FUNCTIONS_MAP,
        ["stepfunctions_task", "stepfunctions_task_retry"],
        [0],
    ),
    "sign-up and password reset are two runs": (
        sources.COGNITO,
        [
            "cognito_post_confirmation_signup",
            "cognito_post_confirmation_forgot_password",
            "cognito_post_confirmation_signup",
        ],
        [0, 1],
    ),
    "log events are one run": (sources.CLOUDWATCH_LOGS, ["cloudwatch_logs"] * 2, [0]),
    "a device's message is one run": (sources.IOT, ["iot_rule"] * 2, [0]),
    "a broker's message is one run": (f"messages[].{sources.ACTIVEMQ}", ["mq_activemq"] * 2, [0]),
}


@pytest.mark.parametrize("what", DELIVERIES)
def test_deliveries_of_a_source(world: World, event: Load, what: str) -> None:
    key, names, expected = DELIVERIES[what]
    assert runs_of(world, key, [event(name) for name in names]) == expected


def test_the_notification_and_the_eventbridge_route_of_an_upload_are_one_run(
    world: World, event: Load
) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="import")
    runs: list[str] = []

    @guard.idempotent(key=sources.S3_OBJECT, argument="record")
    def by_notification(record: Any) -> None:
        runs.append("notification")

    @guard.idempotent(key=sources.S3_OBJECT_EVENTBRIDGE)
    def by_bus(event: Any) -> None:
        runs.append("bus")

    by_notification(event("s3_put_urlencoded_key")["Records"][0])
    by_bus(event("eventbridge_s3_object_created"))
    assert runs == ["notification"]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (f"Records[].{sources.S3_OBJECT}", "s3_test_event"),
        ("detail", "empty detail"),
        (sources.RABBITMQ, "mq_rabbitmq_redelivered"),
        (sources.APIGW_REST, "apigw_rest_v1_console_test_null_maps"),
        (sources.APIGW_REST, "apigw_rest_v1_no_key"),
    ],
)
def test_an_event_without_its_key_is_refused_and_nothing_is_written(
    world: World, event: Load, key: str, name: str
) -> None:
    delivered = {"id": "1", "detail": {}} if name == "empty detail" else event(name)
    if name.startswith("mq_"):
        delivered = sources.records(delivered)[0]
    with pytest.raises(MissingKeyError):
        runs_of(world, key, [delivered])
    assert world.names == []


def test_a_queue_record_that_is_not_json_is_refused_by_itself(world: World, event: Load) -> None:
    runs: list[str] = []

    @idempotent(
        key="powertools_json(powertools_base64(kinesis.data)).reading_id",
        argument="record",
        ledger=world.ledger,
    )
    def follow(record: Any) -> None:
        runs.append(record["eventID"])

    refused = 0
    for record in event("kinesis_batch")["Records"]:
        try:
            follow(record)
        except MissingKeyError:
            refused += 1
    assert (len(runs), refused) == (1, 2)  # the second is the first one's retry


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("Records[0].[messageId, receiptHandle]", "receiptHandle"),
        ("Records[0].attributes.ApproximateReceiveCount", "ApproximateReceiveCount"),
        ("[execution, state, retry_count]", "retry_count"),
        ("messages[0].[messageID, redelivered]", "redelivered"),
    ],
)
def test_a_volatile_key_warns_when_it_is_decorated_and_not_when_it_is_used(
    world: World, event: Load, key: str, field: str
) -> None:
    with pytest.warns(VolatileKeyWarning, match=field) as told:

        @idempotent(key=key, ledger=world.ledger, on_missing_key="run")
        def handler(event: Any) -> None:
            pass

    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            handler(event("sqs_standard"))


def test_tomorrows_tick_runs_while_todays_is_still_remembered(world: World, event: Load) -> None:
    today, tomorrow = (event(f"eventbridge_scheduled_rule_cron{day}") for day in ("", "_next_day"))
    runs: list[str] = []

    @idempotent(
        key=sources.EVENTBRIDGE_SCHEDULE,
        ledger=world.ledger,
        clock=world.clock,
        local_cache=False,
        retention=3 * 24 * 3600,
    )
    def nightly(event: Any, context: object) -> None:
        runs.append(event["time"])

    nightly(today, world.context())
    world.clock.advance(24 * 3600)
    nightly(tomorrow, world.context())
    nightly(today, world.context())
    assert runs == [today["time"], tomorrow["time"]]


def test_records_are_remembered_past_the_sources_retries() -> None:
    # CloudWatch Logs and EventBridge try for 24 hours; an SQS queue keeps messages for 4 days
    # unless set otherwise.
    assert max(24 * 3600, 4 * 24 * 3600) < DEFAULT_RETENTION


def test_errors_that_a_state_machine_retries_have_names_of_their_own() -> None:
    # Step Functions sees the class's name, without its module, in ErrorEquals.
    told = {
        error.__name__: error.retryable
        for error in (InFlightError, LedgerUnavailable, MissingKeyError)
    }
    assert told == {"InFlightError": True, "LedgerUnavailable": True, "MissingKeyError": False}


def test_cognito_gets_the_whole_event_back(world: World, event: Load) -> None:
    name = "cognito_post_confirmation_signup"
    mails: list[str] = []

    @idempotent(key=sources.COGNITO, ledger=world.ledger, clock=world.clock, local_cache=False)
    def welcome(event: dict[str, Any], context: object) -> dict[str, Any]:
        mails.append(event["userName"])
        event["response"]["greeted"] = True
        return event

    changed = event(name)
    changed["response"]["greeted"] = True
    answers = [welcome(event(name), world.context(5)) for _ in range(3)]
    assert answers == [changed] * 3
    assert len(mails) == 1


def test_cognito_does_not_wait_past_its_five_seconds(world: World, event: Load) -> None:
    delivered = event("cognito_post_confirmation_signup")
    options: Any = {"ledger": world.ledger, "clock": world.clock, "operation": "welcome"}
    Guard(**options).claim(
        [delivered[name] for name in ("userPoolId", "userName", "triggerSource")]
    )

    for bound, wait_timeout in ((5.0, None), (3.0, 3)):

        @idempotent(key=sources.COGNITO, on_in_flight="wait", wait_timeout=wait_timeout, **options)
        def welcome(event: dict[str, Any], context: object) -> dict[str, Any]:
            raise AssertionError("ran beside the first")

        begun = world.clock.monotonic()
        with pytest.raises(InFlightError):
            welcome(delivered, world.context(5))
        assert world.clock.monotonic() - begun < bound


# A delivery beside one that is still at work, in real time.


class Counted(MemoryLedger):
    """A ledger that counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(self, *args: Any, **kwargs: Any) -> Any:
        self.reads += 1
        return super().read(*args, **kwargs)


class Seconds:
    """A context with real seconds left."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return round((self._ends - time.monotonic()) * 1000)


@pytest.mark.parametrize("on_in_flight", ["raise", "wait"])
def test_a_second_delivery_while_the_first_still_runs(event: Load, on_in_flight: Any) -> None:
    ledger, partner = Counted(), list[str]()
    begun, refused = threading.Event(), threading.Event()

    @idempotent(
        key=f"Records[0].{sources.SQS_MESSAGE}",
        ledger=ledger,
        local_cache=False,
        on_in_flight=on_in_flight,
    )
    def slow(event: Any, context: object) -> str:
        begun.set()
        if on_in_flight == "raise":
            assert refused.wait(30)
        else:
            while ledger.reads < 3:  # the second one looks, waits and looks again
                time.sleep(0.001)
        partner.append("called")
        return "booked"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow, event("sqs_standard"), Seconds(30))
        assert begun.wait(30)
        second = pool.submit(slow, event("sqs_standard_redelivery"), Seconds(30))
        if on_in_flight == "raise":
            error = second.exception(30)
            refused.set()
            assert isinstance(error, InFlightError)
            assert error.retryable
        else:
            assert second.result(30) == "booked"
        assert first.result(30) == "booked"
    assert partner == ["called"]


def test_a_delivery_that_waits_looks_less_and_less_often(world: World, event: Load) -> None:
    ledger = Counted()
    guard = Guard(ledger=ledger, clock=world.clock, operation="w", on_in_flight="wait")
    guard.claim("k")

    with pytest.raises(InFlightError):
        guard.run_exactly_once("k", lambda: 1, context=world.context(20))

    # A look every tenth of a second would be two hundred.
    assert 5 < ledger.reads < 25
