"""Powertools Logger (or a standard one): keys on every line of the work, one line per decision."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..outcome import Details, Event, Happening, Hook, Phase

_LOUD = {
    Happening.COMPLETE_FAILED: logging.ERROR,
    Happening.STEP_NOT_KEPT: logging.ERROR,
    Happening.LEASE_LOST: logging.ERROR,
    Happening.LEDGER_ERROR: logging.WARNING,
    Happening.RELEASE_FAILED: logging.WARNING,
    Happening.UNGUARDED: logging.WARNING,
    Happening.MISSING_KEY: logging.WARNING,
    Happening.MISMATCH: logging.WARNING,
    Happening.RESULT_NOT_STORED: logging.WARNING,
    Happening.TAKEN_OVER: logging.WARNING,
}


class LoggerHook(Hook):
    """Adds `idempotency_key` (the digest), `operation` and `attempt` to every line of the work.

    The keys are Powertools' thread-safe ones, so records handled side by side keep their own; a
    nested function's keys give way to the outer one's when it ends. A standard logger gets the
    decision lines only.
    """

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        if phase is not Phase.WORK or not hasattr(self._logger, "thread_safe_append_keys"):
            return None
        return self._keys(details)

    def observe(self, event: Event) -> None:
        fields: dict[str, object] = {
            **_fields(event.details),
            "happening": event.happening.value,
        }
        if event.outcome is not None:
            fields["outcome"] = event.outcome.value
        if event.error is not None:
            fields["error_type"] = event.error
        level = _LOUD.get(event.happening, logging.INFO)
        self._logger.log(level, f"idempotency: {event.happening.value}", extra=fields)

    @contextmanager
    def _keys(self, details: Details) -> Iterator[None]:
        ours = _fields(details)
        before = self._logger.thread_safe_get_current_keys()
        outer = {key: before[key] for key in ours if key in before}
        self._logger.thread_safe_append_keys(**ours)
        try:
            yield
        finally:
            self._logger.thread_safe_remove_keys(ours)
            if outer:
                self._logger.thread_safe_append_keys(**outer)


def _fields(details: Details) -> dict[str, object]:
    return {
        "idempotency_key": details.key_digest,
        "operation": details.operation,
        "attempt": details.attempt,
    }
