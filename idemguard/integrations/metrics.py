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

Dimensions are those of the Metrics object (`service` by default). The operation is metadata, not a
dimension: it would multiply the price by the number of functions.
"""

from __future__ import annotations

from typing import Any

from ..outcome import Event, Happening, Hook

_NAMES = {
    Happening.UNGUARDED: "RanUnguarded",
    Happening.COMPLETE_FAILED: "CompletionFailed",
    Happening.FAILED_BEFORE: "FailedBefore",
}


def metric_name(happening: Happening) -> str:
    """The name under which a happening is counted."""
    plain = "".join(word.capitalize() for word in happening.value.split())
    return "Idempotency" + _NAMES.get(happening, plain)


class MetricsHook(Hook):
    """Counts happenings on a Powertools Metrics object; the handler's ``log_metrics`` flushes them."""

    def __init__(self, metrics: Any) -> None:
        self._metrics = metrics

    def observe(self, event: Event) -> None:
        self._metrics.add_metric(name=metric_name(event.happening), unit="Count", value=1)
        self._metrics.add_metadata(key="IdempotencyOperation", value=event.details.operation)
