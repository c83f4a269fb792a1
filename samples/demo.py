"""`make demo`: deliver events more than once and see the work done once. Needs no AWS account.

The handlers are the real ones; only the ledger is in memory, and its clock is moved by hand where
a lease would have to be waited for. Every count is checked: the exit code is 1 if one is wrong.
`POWERTOOLS_LOG_LEVEL=INFO make demo` shows the log lines too.

To copy a sample, take its `handler.py`, `template.yaml` and `requirements.txt` (of the outbox, the
folder `orders` for the handler). The tests stay here: they use `samples/local.py`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any
from unittest.mock import patch

from idemguard import InFlightError, idempotent, sources
from idemguard.ledgers.memory import MemoryLedger
from idemguard.options import ledger_in_place
from idemguard.outcome import Details, Event, Happening, Hook, Phase, observed_by
from idemguard.testing.frozen_clock import FrozenClock
from samples.local import SAMPLES, LocalContext, event_of, killed
from samples.registration_expiry import handler as job

EVENTS = SAMPLES.parent / "tests" / "events"

#: An event file for each ready-made key expression.
FILES = {
    "EVENTBRIDGE": "eventbridge_custom",
    "EVENTBRIDGE_SCHEDULE": "eventbridge_scheduled_rule_cron",
    "SCHEDULER": "eventbridge_scheduler_templated_input",
    "SQS_MESSAGE": "sqs_standard",
    "SQS_BODY": "sqs_standard",
    "SQS_FIFO": "sqs_fifo_batch",
    "SNS": "sns",
    "SNS_IN_SQS": "sns_in_sqs",
    "SNS_IN_SQS_CONTENT": "sns_in_sqs_raw_delivery",
    "S3_OBJECT": "s3_put_urlencoded_key",
    "S3_OBJECT_EVENTBRIDGE": "eventbridge_s3_object_created",
    "S3_IN_SQS": "s3_in_sns_in_sqs",
    "APIGW_REST": "apigw_rest_v1",
    "APIGW_HTTP": "apigw_http_v2",
    "HTTP_V1_NO_CALLER": "alb_multi_value",
    "HTTP_V2_NO_CALLER": "function_url",
    "DYNAMODB_STREAM": "dynamodb_stream",
    "KINESIS": "kinesis_batch",
    "KAFKA": "msk",
    "ACTIVEMQ": "mq_activemq",
    "RABBITMQ_BODY": "mq_rabbitmq_redelivered",
    "CLOUDWATCH_LOGS": "cloudwatch_logs",
    "IOT": "iot_rule",
    "STEP_FUNCTIONS": "stepfunctions_task",
    "STEP_FUNCTIONS_MAP": "stepfunctions_task",
    "COGNITO": "cognito_post_confirmation_signup",
    "LAMBDA_DESTINATION": "async_invoke_lambda_destination",
}


LEGEND = """
  The last attempt sends both messages again, under the same effect keys: the topic drops them.
  For it the ledger's clock was moved by hand; everything else happened as shown."""

#: Seconds for which a race's winner waits for the other to be refused.
PATIENCE = 10.0


@dataclass(frozen=True)
class Row:
    """One line of a table: what was seen, beside what should have been."""

    cells: tuple[object, ...]
    expected: tuple[object, ...]

    @property
    def right(self) -> bool:
        return self.cells[len(self.cells) - len(self.expected) :] == self.expected


class Seen(Hook):
    """What the delivery of this thread came to."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.runs = 0
        self.events: list[Event] = []

    def around(self, phase: Phase, details: Details) -> None:
        if phase is Phase.WORK and threading.get_ident() == self._thread:
            self.runs += 1

    def observe(self, event: Event) -> None:
        if threading.get_ident() == self._thread:
            self.events.append(event)

    def outcome(self, error: Exception | None) -> str:
        happened = {event.happening for event in self.events}
        last = next((event for event in reversed(self.events) if event.outcome), None)
        if isinstance(error, InFlightError):
            return f"SKIPPED_IN_FLIGHT: retry in {ceil(error.retry_after or 0)} s at most"
        if error is not None:
            return f"{type(error).__name__}: claim released"
        if last is None or last.outcome is None:
            return "nothing"
        if Happening.TAKEN_OVER in happened:
            return f"{last.outcome.value}: attempt {last.details.attempt}, taken over"
        if last.details.attempt > 1:
            return f"{last.outcome.value}: attempt {last.details.attempt}"
        return last.outcome.value


class SlowUntilRefused(Hook):
    """Keeps the work of a race going until the other delivery has its answer."""

    def __init__(self) -> None:
        self._answered = threading.Event()

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        return self._waiting() if phase is Phase.WORK else None

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        yield
        self._answered.wait(PATIENCE)

    def observe(self, event: Event) -> None:
        if event.happening in (Happening.IN_FLIGHT, Happening.REPLAYED):
            self._answered.set()


def deliver(event: dict[str, Any]) -> tuple[str, str]:
    """Outcome of one delivery, and whether the work ran."""
    error: Exception | None = None
    with observed_by(seen := Seen()):
        try:
            job.handler(event, LocalContext())
        except Exception as raised:
            error = raised
    return seen.outcome(error), "ran" if seen.runs else "-"


def messages(record: str) -> int:
    return sum(message["MessageGroupId"] == record for message in job.published.values())


def main_job(clock: FrozenClock) -> list[Row]:
    rows: list[Row] = []
    template = event_of("registration_expiry")

    def event_about(record: str) -> dict[str, Any]:
        return {**template, "detail": {**template["detail"], "recordId": record}}

    def row(what: str, record: str, came_to: tuple[str, str], *expected: object) -> None:
        rows.append(Row((what, *came_to, messages(record)), expected))

    event = event_about("REG-1")
    row("1  the event", "REG-1", deliver(event), "EXECUTED", "ran", 2)
    row("   the same event again", "REG-1", deliver(event), "SKIPPED_COMPLETED", "-", 2)
    resent = {**event, "id": "another", "time": "2026-06-01T00:05:00Z"}
    row("   sent again by its producer", "REG-1", deliver(resent), "SKIPPED_COMPLETED", "-", 2)

    event = event_about("REG-2")
    start = threading.Barrier(2)

    def race() -> tuple[str, str]:
        start.wait()
        return deliver(event)

    with observed_by(SlowUntilRefused()), ThreadPoolExecutor(2) as threads:
        racing = [threads.submit(race) for _ in range(2)]
        won, lost = sorted(future.result() for future in racing)
    row("2  two at the same moment: one", "REG-2", won, "EXECUTED", "ran", 2)
    refused = "SKIPPED_IN_FLIGHT: retry in 31 s at most"
    row("                           other", "REG-2", lost, refused, "-", 2)
    row("   the other one, retried", "REG-2", deliver(event), "SKIPPED_COMPLETED", "-", 2)

    event = event_about("REG-3")
    with failing_topic():
        failed = deliver(event)
    row("3  the topic is unreachable", "REG-3", failed, "ConnectionError: claim released", "ran", 0)
    row("   retried", "REG-3", deliver(event), "EXECUTED: attempt 2", "ran", 2)

    event = event_about("REG-4")
    died = killed(lambda: job.handler(event, LocalContext()), Phase.COMPLETE)
    came_to = ("killed after its last message" if died else "not killed", "ran")
    row("4  the sandbox dies", "REG-4", came_to, "killed after its last message", "ran", 2)
    row("   delivered again at once", "REG-4", deliver(event), refused, "-", 2)
    clock.advance(31)
    retried = deliver(event)
    row("   31 s later, lease over", "REG-4", retried, "EXECUTED: attempt 2, taken over", "ran", 2)
    return rows


@contextmanager
def failing_topic() -> Iterator[None]:
    def unreachable(kind: str, record_id: str) -> None:
        raise ConnectionError("the topic does not answer")

    with patch.object(job, "publish", unreachable):
        yield


def event_files() -> list[Row]:
    return [_twice(name, file) for name, file in FILES.items()]


def _twice(name: str, file: str) -> Row:
    """Deliver an event file twice to a handler with the ready-made key for its source."""
    runs: list[object] = []

    @idempotent(key=sources.ALL[name], operation=f"demo-{name}")
    def work(record: dict[str, Any]) -> int:
        runs.append(record)
        return len(runs)

    def deliver_once_more() -> int:
        before = len(runs)
        for record in records:
            work(record)
        return len(runs) - before

    records = sources.records(json.loads((EVENTS / f"{file}.json").read_text(encoding="utf-8")))
    seen = (len(records), deliver_once_more(), deliver_once_more())
    return Row((name, f"{file}.json", *seen), (len(records), 0))


def samples() -> list[Row]:
    names = sorted(path.parent.name for path in SAMPLES.glob("*/template.yaml"))
    # An empty list of what is expected: there is nothing to count.
    return [Row((name, importlib.import_module(f"samples.{name}").__doc__), ()) for name in names]


@contextmanager
def nothing_but_the_demo() -> Iterator[None]:
    """Keep out settings of the shell's, the local cache (each delivery asks the ledger), and logs."""
    level = job.logger.log_level
    if "POWERTOOLS_LOG_LEVEL" not in os.environ:
        job.logger.setLevel("CRITICAL")
    with patch.dict(os.environ, {"IDEMGUARD_LOCAL_CACHE": "0"}):
        for name in ("TOPIC_ARN", "IDEMGUARD_LEASE", "IDEMGUARD_RETENTION"):
            os.environ.pop(name, None)
        yield
    job.logger.setLevel(level)


def print_table(title: str, heads: Sequence[str], rows: Sequence[Row]) -> bool:
    """Tells whether every row is as it should be."""
    lines = [tuple(map(str, row.cells)) for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    marks = ["" if row.right else f"  <- should be {row.expected}" for row in rows]
    print(f"\n{title}\n")
    for line, mark in zip(
        [tuple(heads), tuple("-" * width for width in widths), *lines],
        ["", "", *marks],
        strict=True,
    ):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(f"  {'  '.join(cells)}{mark}".rstrip())
    return all(row.right for row in rows)


def main() -> int:
    """Run everything and print it; 0 if every count is as it should be, else 1."""
    clock = FrozenClock()
    with nothing_but_the_demo(), ledger_in_place(MemoryLedger(clock)):
        right = print_table(
            "Registrations that expire (samples/registration_expiry); each has two messages to send",
            ("delivery", "outcome", "work", "messages so far"),
            main_job(clock),
        )
        print(LEGEND)
        right &= print_table(
            "Event files, each delivered twice to a handler with the key for its source",
            ("idemguard.sources", "tests/events/", "records", "1st runs", "2nd runs"),
            event_files(),
        )
    print_table(
        "Samples to copy, each a folder with handler, SAM template, event and test",
        ("samples/", "what it shows"),
        samples(),
    )
    print("\nEvery count is as it should be." if right else "\nA count is not as it should be.")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
