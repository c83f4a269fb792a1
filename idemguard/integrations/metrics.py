"""Powertools Metrics: a counter for each happening.

| metric | counted when |
|---|---|
| `IdempotencyExecuted` | the work ran and was completed |
| `IdempotencyReplayed` | a duplicate got the stored result |
| `IdempotencyInFlight` | another delivery was at work |
| `IdempotencyPayloadMismatch` | the key came with another payload |
| `IdempotencyFailedBefore` | a duplicate of work that failed for good |
| `IdempotencyMissingKey` | the event held no key |
| `IdempotencyWorkFailed` | the work raised |
| `IdempotencyTakenOver` | a dead holder's claim was taken over |
| `IdempotencyResumed` | an attempt went on from kept steps |
| `IdempotencyResultNotStored` | the result could not be kept |
| `IdempotencyLedgerError` | the ledger could not be used before the work |
| `IdempotencyRanUnguarded` | the work ran without a claim, by an explicit option |
| `IdempotencyCompletionFailed` | the work is done and not recorded: a duplicate may run it again |
| `IdempotencyReleaseFailed` | a failed attempt's claim waits for its lease to end |
| `IdempotencyStepNotKept` | a done step is not recorded |
| `IdempotencyLeaseLost` | an attempt outlived its lease and was taken over |

And for each sweep, from its report: `IdempotencySwept`, `IdempotencySweepBacklog`,
`IdempotencyRecords` (scanned) and `IdempotencyHeadRoom` (where the whole ledger was scanned).

Dimensions are those of the Metrics object (`service` by default). The operation is metadata, not a
dimension: it would multiply the price by the number of functions.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..outcome import Event, Happening, Hook

if TYPE_CHECKING:
    from ..sweeping import SweepReport

_NAMES = {
    Happening.UNGUARDED: "RanUnguarded",
    Happening.COMPLETE_FAILED: "CompletionFailed",
    Happening.FAILED_BEFORE: "FailedBefore",
}


def metric_name(happening: Happening) -> str:
    """The name under which a happening is counted."""
    plain = "".join(word.capitalize() for word in happening.value.split())
    return "Idempotency" + _NAMES.get(happening, plain)


# Metrics objects share their counts, and lose some when several threads add at once.
_one_at_a_time = threading.Lock()


class MetricsHook(Hook):
    """Counts happenings on a Powertools Metrics object; the handler's ``log_metrics`` flushes them."""

    def __init__(self, metrics: Any) -> None:
        self._metrics = metrics

    def observe(self, event: Event) -> None:
        with _one_at_a_time:
            self._metrics.add_metric(name=metric_name(event.happening), unit="Count", value=1)
            self._metrics.add_metadata(key="IdempotencyOperation", value=event.details.operation)


def count_sweep(metrics: Any, report: SweepReport) -> None:
    """Count a sweep's report on a Powertools Metrics object."""
    counts = {
        "IdempotencySwept": report.swept,
        "IdempotencySweepBacklog": report.backlog,
        "IdempotencyRecords": report.scanned,
        "IdempotencyHeadRoom": report.head_room,
    }
    for name, value in counts.items():
        if value is not None:
            metrics.add_metric(name=name, unit="Count", value=value)
