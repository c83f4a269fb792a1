"""What one delivery came to, and who is told about it."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from .errors import IdempotencyError

T = TypeVar("T")

_log = logging.getLogger("idemguard")


class Outcome(Enum):
    """What one delivery came to."""

    EXECUTED = "EXECUTED"
    SKIPPED_COMPLETED = "SKIPPED_COMPLETED"
    SKIPPED_IN_FLIGHT = "SKIPPED_IN_FLIGHT"


@dataclass(frozen=True, slots=True)
class Execution(Generic[T]):
    """One delivery's outcome and result.

    Attributes:
        outcome: what happened.
        result: the work's result, replayed for a completed duplicate, None for one in flight.
        operation, key_digest: which unit of work.
        attempt: which attempt executed it; 0 where this delivery ran nothing.
    """

    outcome: Outcome
    result: T
    operation: str
    key_digest: str
    attempt: int = 0


class Phase(Enum):
    """A stretch of one delivery that a hook can wrap."""

    CLAIM = "claim"
    WORK = "work"
    STEP = "step"
    COMPLETE = "complete"
    RELEASE = "release"
    FAIL = "fail"


class Happening(Enum):
    """A thing worth counting, logging or alerting on."""

    EXECUTED = "executed"
    REPLAYED = "replayed"
    IN_FLIGHT = "in flight"
    MISMATCH = "payload mismatch"
    FAILED_BEFORE = "failed for good before"
    MISSING_KEY = "missing key"
    WORK_FAILED = "work failed"
    TAKEN_OVER = "taken over"
    RESUMED = "resumed"
    RESULT_NOT_STORED = "result not stored"
    LEDGER_ERROR = "ledger error"
    UNGUARDED = "ran unguarded"
    COMPLETE_FAILED = "completion failed"
    RELEASE_FAILED = "release failed"
    STEP_NOT_KEPT = "step not kept"
    LEASE_LOST = "lease lost"


@dataclass(frozen=True, slots=True)
class Details:
    """Which delivery a hook is told about. Holds no payload and no raw key.

    Attributes:
        operation: name of the decorated work.
        key_digest: digest of the key; empty where the event holds none.
        namespace: the application or function the record belongs to.
        attempt: which attempt of this key it is; 0 before a claim.
        step: the step's name, in phase STEP.
    """

    operation: str
    key_digest: str
    namespace: str = ""
    attempt: int = 0
    step: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What an error says of the delivery that it belongs to."""
        return {"operation": self.operation, "key_digest": self.key_digest}

    def sign(self, error: IdempotencyError) -> None:
        """Let an error from below say which delivery it belongs to."""
        error.operation = error.operation or self.operation
        error.key_digest = error.key_digest or self.key_digest

    def execution(self, outcome: Outcome, result: T) -> Execution[T]:
        """What this delivery came to."""
        return Execution(outcome, result, self.operation, self.key_digest, self.attempt)


@dataclass(frozen=True, slots=True)
class Event:
    """One happening. `error` is the exception's type name, never its text."""

    happening: Happening
    details: Details
    outcome: Outcome | None = None
    error: str | None = None


class Hook:
    """An observer of deliveries; override what you need. What a hook raises never breaks the work."""

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        """Wrap a phase in a context manager, or None to leave it alone."""
        return None

    def observe(self, event: Event) -> None:
        """Take note of a happening."""


class Hooks:
    """Several hooks told in order, none of which can break a delivery."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    def observe(
        self,
        happening: Happening,
        details: Details,
        *,
        outcome: Outcome | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Tell every hook."""
        hooks = self._hooks + tuple(_everywhere)
        if not hooks:
            return
        event = Event(happening, details, outcome, type(error).__name__ if error else None)
        for hook in hooks:
            try:
                hook.observe(event)
            except Exception:
                _complain(hook)

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[None]:
        """Enter every hook's context manager for a phase, and leave them in reverse."""
        hooks = self._hooks + tuple(_everywhere)
        return _Wrapped(hooks, phase, details) if hooks else _NOTHING


class _Nothing(AbstractContextManager[None]):
    def __exit__(self, *args: object) -> None:
        return None


_NOTHING = _Nothing()


class _Wrapped(AbstractContextManager[None]):
    """A phase inside every hook's context manager.

    No generator's context manager stands round work, here and elsewhere: it sets the traceback of
    what passes through it, which an exception that is a frozen dataclass refuses with its own error.
    """

    def __init__(self, hooks: Sequence[Hook], phase: Phase, details: Details) -> None:
        self._hooks = hooks
        self._phase = phase
        self._details = details
        self._stack = ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as stack:
            for hook in self._hooks:
                try:
                    wrapper = hook.around(self._phase, self._details)
                    if wrapper is not None:
                        stack.enter_context(_Quiet(hook, wrapper))
                except Exception:
                    _complain(hook)
            self._stack = stack.pop_all()

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)


class _Quiet(AbstractContextManager[None]):
    """A hook's context manager that sees the exception of the phase and cannot swallow or replace it."""

    def __init__(self, hook: Hook, wrapped: AbstractContextManager[object]) -> None:
        self._hook = hook
        self._wrapped = wrapped

    def __enter__(self) -> None:
        self._wrapped.__enter__()

    def __exit__(self, *exc: object) -> None:
        try:
            self._wrapped.__exit__(*exc)  # type: ignore[arg-type]
        except BaseException as error:
            if error is not exc[1]:
                if not isinstance(error, Exception):
                    raise
                _complain(self._hook)


def _complain(hook: Hook) -> None:
    # Its text may quote the work's own error, and with it a payload: only type and place are told.
    error = sys.exc_info()[1]
    place = [
        f"{at.filename}:{at.lineno}"
        for at in traceback.extract_tb(error.__traceback__ if error else None)
    ]
    _log.warning("the hook %s raised and was ignored", type(hook).__name__)
    _log.debug("it raised %s at %s", type(error).__name__, " < ".join(reversed(place)))


_everywhere: list[Hook] = []


@contextmanager
def observed_by(hook: Hook) -> Iterator[None]:
    """Let `hook` see every delivery of this process for a while; meant for tests."""
    _everywhere.append(hook)
    try:
        yield
    finally:
        _everywhere.remove(hook)
