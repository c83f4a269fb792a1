"""How much of a batch's time is left when its records overlap: ``python -m tests.bench.batch``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)

from idemguard import Guard
from idemguard.clock import Deadline
from idemguard.integrations.batch import ThreadedBatchProcessor
from idemguard.ledger import Entry
from idemguard.ledgers.memory import MemoryLedger
from idemguard.record import Record
from tests.bench.timing import Row

# Seconds that a call of the ledger takes: about what Parameter Store does inside a region.
LATENCY = 0.02
RECORDS = 10


class FarAway(MemoryLedger):
    """A ledger whose calls each take their time."""

    def create(self, name: str, record: Record, *, deadline: Deadline | None = None) -> Entry:
        time.sleep(LATENCY)
        return super().create(name, record, deadline=deadline)

    def replace(
        self, expected: Entry, record: Record, *, deadline: Deadline | None = None
    ) -> Entry | None:
        time.sleep(LATENCY)
        return super().replace(expected, record, deadline=deadline)


def overlap(rounds: int = 5) -> Row:
    """The ratio of a batch's times: with `ThreadedBatchProcessor`, to one record after another."""

    @Guard(ledger=FarAway()).idempotent(key="messageId", argument="record")
    def ship(record: Any) -> str:
        return "shipped"

    def seconds(processor: BatchProcessor) -> float:
        event = {"Records": [{"messageId": str(uuid4())} for _ in range(RECORDS)]}
        return _seconds(lambda: process_partial_response(event, ship, processor))

    pairs = [
        (seconds(ThreadedBatchProcessor(EventType.SQS)), seconds(BatchProcessor(EventType.SQS)))
        for _ in range(rounds)
    ]
    threads, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(
        f"batch of {RECORDS}, {LATENCY * 1000:.0f} ms a call: threads, one after another",
        f"{threads * 1000:.0f} ms",
        f"{plain * 1000:.0f} ms",
        statistics.median(a / b for a, b in pairs),
        "<= 0.35",
    )


def _seconds(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


if __name__ == "__main__":
    row = overlap()
    print(f"{row.what}: {row.ours} / {row.peer} = {row.ratio:.2f} (target {row.target})")
