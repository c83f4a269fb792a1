"""Record handlers under Powertools' batch processors, each record with a claim of its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import (
    AsyncBatchProcessor,
    BatchProcessor,
    EventType,
    SqsFifoPartialProcessor,
    async_process_partial_response,
    process_partial_response,
)
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.parser.models import SqsRecordModel

from idemguard import Claim, Guard, InFlightError, InvalidOption, current_claim, sources
from idemguard.clock import Clock
from idemguard.integrations.batch import ThreadedBatchProcessor
from idemguard.ledger import Entry
from idemguard.ledgers.memory import MemoryLedger
from tests.worlds import World

Load = Callable[[str], Any]
Processor = Callable[..., BatchProcessor]

BY_ORDER = "powertools_json(body).order_id"
BY_READING = "powertools_json(powertools_base64(kinesis.data)).reading_id"

each_processor = pytest.mark.parametrize("processor", [BatchProcessor, ThreadedBatchProcessor])


def guard_of(world: World, **options: Any) -> Guard:
    return Guard(ledger=world.ledger, clock=world.clock, operation="ship", **options)


def in_time(world: World, seconds: float = 30) -> Any:
    """The context of an invocation with some time left; Powertools wants one of its own type."""
    return world.context(seconds)


def failed(reply: Any) -> list[str]:
    return [item["itemIdentifier"] for item in reply["batchItemFailures"]]


def message_ids(event: Any, *places: int) -> list[str]:
    return [event["Records"][place]["messageId"] for place in places]


def shipping(guard: Guard, key: str, shipped: list[str]) -> Callable[..., str]:
    @guard.idempotent(key=key, argument="record")
    def ship(record: SQSRecord) -> str:
        order: dict[str, str] = record.json_body
        float(order["amount"])
        shipped.append(order["order_id"])
        return order["order_id"]

    return ship


@each_processor
def test_only_the_poison_record_fails_and_duplicates_succeed_without_a_run(
    world: World, event: Load, processor: Processor
) -> None:
    batch, shipped = event("sqs_batch_dup_and_poison"), list[str]()
    ship = shipping(guard_of(world), BY_ORDER, shipped)

    reply = process_partial_response(batch, ship, processor(EventType.SQS))

    assert failed(reply) == message_ids(batch, 2)
    assert sorted(shipped) == ["ORD-1001", "ORD-1002"]


@each_processor
def test_by_its_message_id_a_message_that_comes_twice_in_a_batch_runs_once(
    world: World, event: Load, processor: Processor
) -> None:
    batch, shipped = event("sqs_batch_dup_and_poison"), list[str]()
    ship = shipping(guard_of(world), sources.SQS_MESSAGE, shipped)

    reply = process_partial_response(batch, ship, processor(EventType.SQS))

    assert failed(reply) == message_ids(batch, 2)
    assert sorted(shipped) == ["ORD-1001", "ORD-1001", "ORD-1002"]


@each_processor
def test_on_redelivery_only_the_record_that_failed_runs(
    world: World, event: Load, processor: Processor
) -> None:
    batch, shipped = event("sqs_batch_dup_and_poison"), list[str]()
    ship = shipping(guard_of(world), sources.SQS_MESSAGE, shipped)
    process_partial_response(batch, ship, processor(EventType.SQS))
    shipped.clear()
    for record in batch["Records"]:
        record["receiptHandle"] += "-again"
        record["attributes"]["ApproximateReceiveCount"] = "2"
    body = {"order_id": "ORD-1003", "amount": "9.00"}
    batch["Records"][2]["body"] = json.dumps(body)

    reply = process_partial_response(batch, ship, processor(EventType.SQS))

    assert failed(reply) == []
    assert shipped == ["ORD-1003"]


@each_processor
def test_a_record_in_flight_elsewhere_is_a_failed_record_until_it_is_done(
    world: World, event: Load, processor: Processor
) -> None:
    batch, shipped = event("sqs_batch_dup_and_poison"), list[str]()
    guard = guard_of(world)
    elsewhere = guard.claim("ORD-1002")
    assert isinstance(elsewhere, Claim)
    ship = shipping(guard, BY_ORDER, shipped)
    processing = processor(EventType.SQS)

    reply = process_partial_response(batch, ship, processing)

    second = message_ids(batch, 1)[0]
    assert failed(reply) == [second, message_ids(batch, 2)[0], second]
    assert [kind for kind, _, _ in processing.exceptions] == [
        InFlightError, ValueError, InFlightError,
    ]  # fmt: skip
    guard.complete(elsewhere, "ORD-1002")
    assert failed(process_partial_response(batch, ship, processing)) == message_ids(batch, 2)
    assert shipped == ["ORD-1001"]


@each_processor
def test_a_batch_that_is_all_in_flight_elsewhere_is_an_error_unless_that_is_turned_off(
    world: World, event: Load, processor: Processor
) -> None:
    batch, guard = event("sqs_standard"), guard_of(world)
    guard.claim(batch["Records"][0]["messageId"])
    ship = shipping(guard, sources.SQS_MESSAGE, [])

    with pytest.raises(BatchProcessingError):
        process_partial_response(batch, ship, processor(EventType.SQS))
    quiet = processor(EventType.SQS, raise_on_entire_batch_failure=False)
    assert failed(process_partial_response(batch, ship, quiet)) == message_ids(batch, 0)


@each_processor
def test_the_context_that_powertools_passes_tells_the_lease(
    world: World, event: Load, processor: Processor
) -> None:
    leases: list[float] = []

    @guard_of(world).idempotent(key=sources.SQS_MESSAGE, argument="record")
    def ship(record: SQSRecord, lambda_context: object) -> None:
        leases.append(current_claim().lease)

    process_partial_response(
        event("sqs_standard"), ship, processor(EventType.SQS), in_time(world, 12)
    )

    assert leases == [12.5]


@each_processor
def test_a_model_and_a_data_class_of_a_record_have_the_same_key(
    world: World, event: Load, processor: Processor
) -> None:
    batch, seen = event("sqs_batch_dup_and_poison"), list[object]()

    @guard_of(world).idempotent(key=BY_ORDER, argument="record")
    def ship(record: Any) -> None:
        seen.append(type(record))
        assert "not-a-number" not in record.body

    by_model = processor(EventType.SQS, model=SqsRecordModel)
    assert failed(process_partial_response(batch, ship, by_model)) == message_ids(batch, 2)
    assert seen == [SqsRecordModel] * 3
    plain = processor(EventType.SQS)
    assert failed(process_partial_response(batch, ship, plain)) == message_ids(batch, 2)
    assert seen[3:] == [SQSRecord]


@each_processor
def test_a_record_that_its_model_refuses_fails_by_itself(
    world: World, event: Load, processor: Processor
) -> None:
    batch, runs = event("sqs_batch_dup_and_poison"), list[str]()
    del batch["Records"][1]["md5OfBody"]

    @guard_of(world).idempotent(key=sources.SQS_MESSAGE, argument="record")
    def ship(record: SqsRecordModel) -> None:
        runs.append(record.messageId)

    by_model = processor(EventType.SQS, model=SqsRecordModel)
    reply = process_partial_response(batch, ship, by_model)

    assert failed(reply) == message_ids(batch, 1)
    assert sorted(runs) == sorted(message_ids(batch, 0, 2, 3, 4))


# FIFO


def accounting(guard: Guard, runs: list[str], bad: set[str]) -> Callable[..., None]:
    @guard.idempotent(key=sources.SQS_FIFO, argument="record")
    def book(record: SQSRecord) -> None:
        entry = record.json_body
        name = f"{entry['account']}{entry['step']}"
        if name in bad:
            raise ConnectionError(name)
        runs.append(name)

    return book


def test_in_a_fifo_batch_nothing_runs_after_a_failed_record(world: World, event: Load) -> None:
    batch, runs, bad = event("sqs_fifo_batch"), list[str](), {"acct-A2"}
    book = accounting(guard_of(world), runs, bad)
    processor = SqsFifoPartialProcessor()

    reply = process_partial_response(batch, book, processor)
    assert runs == ["acct-A1"]
    assert failed(reply) == message_ids(batch, *range(1, len(batch["Records"])))

    bad.clear()
    rest = {"Records": batch["Records"][1:]}
    assert failed(process_partial_response(rest, book, processor)) == []
    assert runs == ["acct-A1", "acct-A2", "acct-B1", "acct-A3", "acct-B2"]
    assert failed(process_partial_response(batch, book, processor)) == []
    assert len(runs) == 5


@pytest.mark.parametrize(
    "processor",
    [
        lambda: SqsFifoPartialProcessor(skip_group_on_error=True),
        lambda: ThreadedBatchProcessor(EventType.SQS),
    ],
    ids=["powertools", "threads"],
)
def test_a_failed_record_stops_its_group_and_no_other(
    world: World, event: Load, processor: Callable[[], BatchProcessor]
) -> None:
    batch, runs, bad = event("sqs_fifo_batch"), list[str](), {"acct-A2"}
    book = accounting(guard_of(world), runs, bad)

    reply = process_partial_response(batch, book, processor())

    assert [name for name in runs if "A" in name] == ["acct-A1"]
    assert [name for name in runs if "B" in name] == ["acct-B1", "acct-B2"]
    assert failed(reply) == message_ids(batch, 1, 3)
    bad.clear()
    again = {"Records": [batch["Records"][1], batch["Records"][3]]}
    assert failed(process_partial_response(again, book, processor())) == []
    assert [name for name in runs if "A" in name] == ["acct-A1", "acct-A2", "acct-A3"]


@pytest.mark.parametrize(
    "processor",
    [
        lambda: SqsFifoPartialProcessor(skip_group_on_error=True),
        lambda: ThreadedBatchProcessor(EventType.SQS),
    ],
    ids=["powertools", "threads"],
)
def test_a_record_in_flight_elsewhere_stops_its_group(
    world: World, event: Load, processor: Callable[[], BatchProcessor]
) -> None:
    batch, runs, guard = event("sqs_fifo_batch"), list[str](), guard_of(world)
    record = batch["Records"][1]
    attributes = record["attributes"]
    guard.claim(
        [
            record["eventSourceARN"],
            attributes["MessageGroupId"],
            attributes["MessageDeduplicationId"],
        ]
    )

    reply = process_partial_response(batch, accounting(guard, runs, set()), processor())

    assert sorted(runs) == ["acct-A1", "acct-B1", "acct-B2"]
    assert failed(reply) == message_ids(batch, 1, 3)


# Streams

STREAMS = {
    "kinesis_batch": (EventType.KinesisDataStreams, sources.KINESIS, "kinesis.sequenceNumber"),
    "dynamodb_stream": (EventType.DynamoDBStreams, sources.DYNAMODB_STREAM, "dynamodb.SequenceNumber"),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
@each_processor
def test_a_stream_is_told_sequence_numbers_and_its_done_records_do_not_run_again(
    world: World, event: Load, processor: Processor, name: str
) -> None:
    event_type, key, identifier = STREAMS[name]
    batch, runs, bad = event(name), list[str](), set[str]()
    outer, inner = identifier.split(".")
    numbers = [record[outer][inner] for record in batch["Records"]]
    bad.add(batch["Records"][1]["eventID"])

    @guard_of(world).idempotent(key=key, argument="record")
    def follow(record: Any) -> None:
        if record["eventID"] in bad:
            raise ConnectionError
        runs.append(record["eventID"])

    reply = process_partial_response(batch, follow, processor(event_type))

    # Lambda delivers again from the lowest sequence number.
    assert failed(reply)[0] == numbers[1]
    if processor is ThreadedBatchProcessor:
        assert failed(reply) == numbers[1:]
        assert len(runs) == 1
    bad.clear()
    again = {"Records": batch["Records"][1:]}
    assert failed(process_partial_response(again, follow, processor(event_type))) == []
    assert sorted(runs) == sorted(record["eventID"] for record in batch["Records"])


@each_processor
def test_a_producer_retry_in_a_stream_runs_once_by_its_payload(
    world: World, event: Load, processor: Processor
) -> None:
    batch, runs = event("kinesis_batch"), list[str]()

    @guard_of(world).idempotent(key=BY_READING, argument="record")
    def follow(record: Any) -> None:
        runs.append(record.kinesis.data_as_json()["reading_id"])

    batch["Records"] = batch["Records"][:2]
    processing = processor(EventType.KinesisDataStreams)
    assert failed(process_partial_response(batch, follow, processing)) == []
    assert runs == ["r-1"]


def test_kafka_partitions_are_lanes_of_their_own(world: World, event: Load) -> None:
    batch, runs = event("msk"), list[tuple[str, int, int]]()
    places = [
        (record["topic"], record["partition"], record["offset"])
        for records in batch["records"].values()
        for record in records
    ]
    stopped = places[0]

    @guard_of(world).idempotent(key=sources.KAFKA, argument="record")
    def follow(record: Any) -> None:
        place = (record.topic, record.partition, record.offset)
        if place == stopped:
            raise ConnectionError
        runs.append(place)

    reply = process_partial_response(batch, follow, ThreadedBatchProcessor(EventType.Kafka))

    same = [place for place in places if place[:2] == stopped[:2]]
    assert len(reply["batchItemFailures"]) == len(same) > 1
    assert sorted(runs) == sorted(place for place in places if place not in same)


# Threads


class Meeting(MemoryLedger):
    """A ledger in which two claims must meet: the second is asked for before the first is had."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self._barrier = threading.Barrier(parties)

    def create(self, *args: Any, **kwargs: Any) -> Entry:
        self._barrier.wait(30)
        return super().create(*args, **kwargs)


def batch_of(*names: str) -> dict[str, Any]:
    return {
        "Records": [
            {"messageId": str(n), "body": json.dumps({"order_id": name}), "attributes": {}}
            for n, name in enumerate(names)
        ]
    }


def test_the_claims_of_a_batch_overlap() -> None:
    runs: list[str] = []

    @Guard(ledger=Meeting(5)).idempotent(key="messageId", argument="record")
    def ship(record: SQSRecord) -> None:
        runs.append(record.message_id)

    reply = process_partial_response(
        batch_of(*"abcde"), ship, ThreadedBatchProcessor(EventType.SQS)
    )

    assert failed(reply) == []
    assert sorted(runs) == list("01234")


def test_no_more_records_run_at_one_time_than_there_are_workers() -> None:
    running: list[int] = []
    most: list[int] = []

    def ship(record: SQSRecord) -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.002)
        running.pop()

    processor = ThreadedBatchProcessor(EventType.SQS, workers=2)
    process_partial_response(batch_of(*"abcdefghij"), ship, processor)

    assert max(most) <= 2


def test_a_stream_overlaps_only_in_the_lanes_that_are_given() -> None:
    order: list[str] = []

    def follow(record: Any) -> None:
        order.append(record["eventID"])

    def records(*keys: str) -> dict[str, Any]:
        return {
            "Records": [
                {"eventID": f"{key}{n}", "kinesis": {"partitionKey": key, "sequenceNumber": str(n)}}
                for n, key in enumerate(keys)
            ]
        }

    process_partial_response(
        records("a", "b", "a", "b"), follow, ThreadedBatchProcessor(EventType.KinesisDataStreams)
    )
    assert order == ["a0", "b1", "a2", "b3"]
    order.clear()
    barrier = threading.Barrier(2)

    def meet(record: Any) -> None:
        follow(record)
        if record["eventID"] in ("a0", "b1"):
            barrier.wait(30)
        if record["eventID"] == "a2":
            raise ConnectionError

    processor = ThreadedBatchProcessor(
        EventType.KinesisDataStreams, lane=lambda record: record["kinesis"]["partitionKey"]
    )
    reply = process_partial_response(records("a", "b", "a", "b", "a"), meet, processor)
    assert [name for name in order if "a" in name] == ["a0", "a2"]
    assert [name for name in order if "b" in name] == ["b1", "b3"]
    assert failed(reply) == ["2", "4"]


def test_a_twin_in_the_batch_gets_the_result_of_the_one_that_held_the_key(world: World) -> None:
    runs: list[str] = []
    begun = threading.Event()

    @guard_of(world).idempotent(key=BY_ORDER, argument="record")
    def ship(record: SQSRecord) -> str:
        runs.append(record.message_id)
        assert begun.wait(30)
        return f"by {record.message_id}"

    class Watching(ThreadedBatchProcessor):
        results: list[object]

        def success_handler(self, record: Any, result: Any) -> Any:
            self.results.append(result)
            return super().success_handler(record, result)

    processor = Watching(EventType.SQS, lane=lambda record: record["messageId"])
    processor.results = []

    @guard_of(world).idempotent(key="messageId", argument="record")
    def let_go(record: SQSRecord) -> None:
        begun.set()

    def either(record: SQSRecord) -> object:
        return let_go(record) if record.json_body["order_id"] == "end" else ship(record)

    # Three workers meet the key while the first holds it; the fourth record lets it go.
    reply = process_partial_response(batch_of("one", "one", "one", "end"), either, processor)

    assert failed(reply) == []
    assert len(runs) == 1
    assert processor.results == [f"by {runs[0]}"] * 3 + [None]


def test_a_twin_of_a_record_that_failed_runs_in_its_place(world: World) -> None:
    runs: list[str] = []
    refused = threading.Event()
    guard = guard_of(world)

    @guard.idempotent(key=BY_ORDER, argument="record")
    def ship(record: SQSRecord) -> str:
        runs.append(record.message_id)
        if len(runs) == 1:
            assert refused.wait(30)
            raise ConnectionError
        return "shipped"

    def watched(record: SQSRecord) -> str:
        try:
            return ship(record)
        except InFlightError:
            refused.set()
            raise

    reply = process_partial_response(
        batch_of("one", "one"), watched, ThreadedBatchProcessor(EventType.SQS)
    )

    first, second = runs
    assert failed(reply) == [first]
    assert second != first


def test_each_record_sees_the_callers_context_and_keeps_its_own(world: World) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []

    @guard_of(world).idempotent(key="messageId", argument="record")
    def ship(record: SQSRecord) -> None:
        seen.append(tenant.get())
        tenant.set(record.message_id)

    tenant.set("blue")
    one_lane = ThreadedBatchProcessor(EventType.SQS, lane=lambda record: None)
    two_lanes = ThreadedBatchProcessor(EventType.SQS, lane=lambda record: record["body"])
    process_partial_response(batch_of(*"aaaa"), ship, one_lane)
    process_partial_response(batch_of(*"ababab"), ship, two_lanes)

    assert seen == ["blue"] * 6  # four of the ten are the first ones again
    assert tenant.get() == "blue"


def test_outcomes_are_counted_in_order_and_in_the_callers_thread() -> None:
    counted: list[tuple[str, str, int]] = []

    class Counting(ThreadedBatchProcessor):
        def success_handler(self, record: Any, result: Any) -> Any:
            counted.append(("done", record["messageId"], threading.get_ident()))
            return super().success_handler(record, result)

        def failure_handler(self, record: Any, exception: Any) -> Any:
            counted.append(("failed", record.message_id, threading.get_ident()))
            return super().failure_handler(record, exception)

    gates = [threading.Event() for _ in range(4)]

    def ship(record: SQSRecord) -> None:
        n = int(record.message_id)
        if n < 3:  # the last one is the first to end
            assert gates[n + 1].wait(30)
        gates[n].set()
        if n % 2:
            raise ConnectionError

    reply = process_partial_response(batch_of(*"abcd"), ship, Counting(EventType.SQS))

    here = threading.get_ident()
    kinds = ["done", "failed", "done", "failed"]
    assert counted == [(kind, str(n), here) for n, kind in enumerate(kinds)]
    assert failed(reply) == ["1", "3"]


def test_what_ends_the_process_ends_the_batch() -> None:
    def ship(record: SQSRecord) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        process_partial_response(batch_of("a", "b"), ship, ThreadedBatchProcessor(EventType.SQS))


@pytest.mark.parametrize("workers", [0, -1, True, "4"])
def test_a_number_of_workers_that_cannot_be_is_refused(workers: Any) -> None:
    with pytest.raises(InvalidOption, match="workers"):
        ThreadedBatchProcessor(EventType.SQS, workers=workers)


# Async


def test_async_records_have_claims_of_their_own(world: World, event: Load) -> None:
    batch, shipped = event("sqs_batch_dup_and_poison"), list[str]()

    @guard_of(world).idempotent(key=sources.SQS_MESSAGE, argument="record")
    async def ship(record: SQSRecord, lambda_context: object) -> str:
        float(record.json_body["amount"])
        await asyncio.sleep(0)
        shipped.append(record.json_body["order_id"])
        return "shipped"

    def deliver() -> list[str]:
        processor = AsyncBatchProcessor(EventType.SQS)
        return failed(async_process_partial_response(batch, ship, processor, in_time(world)))

    # All records are begun at once: of a message that comes twice, one may be refused for now.
    assert set(message_ids(batch, 2)) <= set(deliver()) <= set(message_ids(batch, 1, 2))
    assert sorted(shipped) == ["ORD-1001", "ORD-1001", "ORD-1002"]
    assert deliver() == message_ids(batch, 2)
    assert len(shipped) == 3


def test_an_async_record_in_flight_elsewhere_is_a_failed_record(world: World, event: Load) -> None:
    batch, guard = event("sqs_batch_dup_and_poison"), guard_of(world)
    guard.claim(message_ids(batch, 0)[0])

    @guard.idempotent(key=sources.SQS_MESSAGE, argument="record")
    async def ship(record: SQSRecord) -> None:
        pass

    batch["Records"] = batch["Records"][:3]
    processor = AsyncBatchProcessor(EventType.SQS)
    assert failed(async_process_partial_response(batch, ship, processor)) == message_ids(batch, 0)


def test_async_twins_that_wait_do_not_starve_the_one_that_they_wait_for() -> None:
    class Awaited(Clock):
        def sleep(self, seconds: float) -> None:
            raise AssertionError("takes up a thread of the pool that the work needs")

    runs: list[str] = []
    guard = Guard(ledger=MemoryLedger(), clock=Awaited(), on_in_flight="wait", wait_timeout=30)

    @guard.idempotent(key=BY_ORDER, argument="record")
    async def ship(record: SQSRecord) -> str:
        runs.append(record.message_id)
        await asyncio.to_thread(time.sleep, 0.01)  # Stands for boto3, which blocks.
        return "shipped"

    processor = AsyncBatchProcessor(EventType.SQS)
    reply = async_process_partial_response(batch_of(*["one"] * 60), ship, processor)

    assert failed(reply) == []
    assert len(runs) == 1
