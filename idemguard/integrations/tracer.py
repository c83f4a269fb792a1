"""Powertools Tracer: a subsegment for each ledger phase and step, annotated with the outcome."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..outcome import Details, Event, Hook, Phase

_NAMED = {
    Phase.CLAIM: "## idempotency claim",
    Phase.COMPLETE: "## idempotency complete",
    Phase.RELEASE: "## idempotency release",
    Phase.FAIL: "## idempotency fail",
}


class TracerHook(Hook):
    """Subsegments round claim, complete, release and fail, and one per step.

    Annotations `IdempotencyOutcome` and `IdempotencyOperation` can be searched for in X-Ray. With
    ``async def`` work the phases are opened in the task, not in the thread that calls the ledger.
    """

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        if phase is Phase.WORK:
            return None
        named = f"## step {details.step}" if phase is Phase.STEP else _NAMED[phase]
        return self._subsegment(named, details)

    def observe(self, event: Event) -> None:
        if event.outcome is not None:
            self._tracer.put_annotation("IdempotencyOutcome", event.outcome.value)
            self._tracer.put_annotation("IdempotencyOperation", event.details.operation)

    @contextmanager
    def _subsegment(self, name: str, details: Details) -> Iterator[None]:
        with self._tracer.provider.in_subsegment(name) as subsegment:
            # None outside of a traced invocation.
            if subsegment is not None:
                subsegment.put_annotation("IdempotencyOperation", details.operation)
            yield
