"""Powertools Tracer: a subsegment for each ledger phase and step, annotated with the outcome."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from ..outcome import Details, Event, Hook, Phase

_NAMED = {
    Phase.CLAIM: "## idempotency claim",
    Phase.COMPLETE: "## idempotency complete",
    Phase.RELEASE: "## idempotency release",
    Phase.FAIL: "## idempotency fail",
}


#: The subsegment of the phase that runs here.
_open: ContextVar[Any] = ContextVar("idemguard_subsegment", default=None)


class TracerHook(Hook):
    """Subsegments round claim, complete, release and fail, and one per step.

    Annotations `IdempotencyOutcome` and `IdempotencyOperation` can be searched for in X-Ray; they
    stand on the subsegment of the phase that decided. With ``async def`` work the phases are opened
    in the task, not in the thread that calls the ledger; tasks side by side need X-Ray's
    `AsyncContext`, for this as for Powertools' own subsegments.
    """

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        if phase is Phase.WORK:
            return None
        named = f"## step {details.step}" if phase is Phase.STEP else _NAMED[phase]
        return self._subsegment(named, details)

    def observe(self, event: Event) -> None:
        # Not by the tracer's current subsegment: X-Ray knows none in the thread of an async claim.
        if event.outcome is not None and (subsegment := _open.get()) is not None:
            subsegment.put_annotation("IdempotencyOutcome", event.outcome.value)

    @contextmanager
    def _subsegment(self, name: str, details: Details) -> Iterator[None]:
        with self._tracer.provider.in_subsegment(name) as subsegment:
            # None outside of a traced invocation.
            if subsegment is not None:
                subsegment.put_annotation("IdempotencyOperation", details.operation)
            token = _open.set(subsegment)
            try:
                yield
            finally:
                _open.reset(token)
