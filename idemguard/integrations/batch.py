"""Powertools' batch processing with the records side by side.

Record handlers decorated with ``@idempotent(..., argument="record")`` work under Powertools' own
`BatchProcessor`, `SqsFifoPartialProcessor` and `AsyncBatchProcessor` as they are. But each record costs
two calls of the ledger one after another, so ten records wait for twenty. `ThreadedBatchProcessor` lets
them overlap:

```python
processor = ThreadedBatchProcessor(EventType.SQS)


def handler(event, context):
    return process_partial_response(event, ship, processor, context)
```

What must stay in order stays in one *lane*: a lane's records run one after another, and after one
that failed the rest of its lane is not run and is reported as failed too, so that Lambda delivers
them again in order.

| source | default lanes |
|---|---|
| SQS standard | each record by itself |
| SQS FIFO | a message group |
| Kafka | a partition of a topic |
| Kinesis, DynamoDB streams | the whole batch: nothing overlaps unless `lane` says that it may |

A stream is delivered again from its first failed record: the records after it that were done in
other lanes come again too, and an idempotent record handler answers them without a run.

If every record fails, Powertools raises `BatchProcessingError`, and so it does for a batch of one
record that is in flight elsewhere. Pass ``raise_on_entire_batch_failure=False`` to report such a
batch by its records, without an error of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
from aws_lambda_powertools.utilities.batch.exceptions import (
    SQSFifoMessageGroupCircuitBreakerError,
)

from ..errors import InFlightError, InvalidOption

#: Enough for a batch of ten records to take a fifth of its time, and not so many that a batch alone
#: meets Parameter Store's limit of writes per second.
DEFAULT_WORKERS = 5

RawRecord = dict[str, Any]
Lane = Callable[[RawRecord], Hashable]


class ThreadedBatchProcessor(BatchProcessor):
    """A `BatchProcessor` whose records run in a bounded number of threads.

    Give it to Powertools' `process_partial_response`. Its responses, its order of failures, `model`
    and the parameter `lambda_context` of record handlers are those of `BatchProcessor`; its own
    `success_handler` and `failure_handler` are called in the records' order and in one thread. Each
    record sees a copy of the context variables of the caller.

    A record whose key is in flight is tried once more when all the others are done, for the one that
    held the key may have been in the same batch: it then gets that one's result.

    Args:
        event_type: SQS, Kinesis, DynamoDB streams or Kafka.
        model: as for `BatchProcessor`.
        workers: how many lanes run at one time.
        lane: tells from the raw record what must stay in order with what; see the module for the
            default. For Kinesis by partition key: ``lambda record: record["kinesis"]["partitionKey"]``.
        options: the other options of `BatchProcessor`.

    Raises:
        InvalidOption: `workers` is not a positive number.
    """

    def __init__(
        self,
        event_type: EventType,
        model: Any = None,
        *,
        workers: int = DEFAULT_WORKERS,
        lane: Lane | None = None,
        **options: Any,
    ) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise InvalidOption(f"workers: {workers!r} is not a positive number")
        super().__init__(event_type, model, **options)
        self._workers = workers
        self._lane = lane or _LANES[event_type.name]

    def process(self) -> list[tuple[Any, ...]]:
        """Run the record handler for each record, then have Powertools count the outcomes."""
        outcomes = self._run_all()
        handler = self.handler
        try:
            counted: list[tuple[Any, ...]] = []
            for record, outcome in zip(self.records, outcomes, strict=True):
                self.handler = outcome.give
                counted.append(self._process_record(record))
        finally:
            self.handler = handler
        return counted

    def _run_all(self) -> list[_Outcome]:
        outcomes: dict[int, _Outcome] = {}
        lanes: dict[Hashable, list[int]] = {}
        for place, record in enumerate(self.records):
            lanes.setdefault(self._lane(record), []).append(place)

        def run(places: Sequence[int]) -> list[int]:
            """Run a lane; returns what is left of it where a record's key is in flight."""
            for number, place in enumerate(places):
                outcomes[place] = copy_context().run(self._run, self.records[place])
                error = outcomes[place].error
                if error is not None:
                    outcomes.update({after: _skipped() for after in places[number + 1 :]})
                    return list(places[number:]) if isinstance(error, InFlightError) else []
            return []

        if len(lanes) == 1:
            refused = [run(places) for places in lanes.values()]
        else:
            with ThreadPoolExecutor(min(self._workers, len(lanes))) as pool:
                jobs = [pool.submit(copy_context().run, run, places) for places in lanes.values()]
                refused = [job.result() for job in jobs]
        # One after another: two that were refused may be of the same key.
        for places in refused:
            run(places)
        return [outcomes[place] for place in range(len(self.records))]

    def _run(self, record: RawRecord) -> _Outcome:
        try:
            data = self._to_batch_type(record, self.event_type, self.model)
            if self._handler_accepts_lambda_context:
                result = self.handler(record=data, lambda_context=self.lambda_context)
            else:
                result = self.handler(record=data)
        except Exception as error:
            return _Outcome(error=error)
        return _Outcome(result)


@dataclass(frozen=True)
class _Outcome:
    result: Any = None
    error: Exception | None = None

    def give(self, record: object = None, lambda_context: object = None) -> Any:
        """Stand for the record handler when Powertools counts."""
        if self.error is not None:
            raise self.error
        return self.result


def _skipped() -> _Outcome:
    # A new one each time: an exception that is raised again and again collects tracebacks.
    return _Outcome(
        error=SQSFifoMessageGroupCircuitBreakerError("a record that comes before this one failed")
    )


def _sqs_lane(record: RawRecord) -> Hashable:
    if str(record.get("eventSourceARN")).endswith(".fifo"):
        return str(record.get("attributes", {}).get("MessageGroupId"))
    # A standard queue may have message groups too, for fairness and not for order.
    return id(record)


# By name: earlier releases of Powertools have no Kafka.
_LANES: dict[str, Lane] = {
    "SQS": _sqs_lane,
    "Kafka": lambda record: (record["topic"], record["partition"]),
    "KinesisDataStreams": lambda record: None,
    "DynamoDBStreams": lambda record: None,
}
