"""One delivery from start to finish: open it, do the work if it says so, close or abort it.

`Delivery` holds every decision. `deliver` drives it for blocking work and `deliver_async`, in its own
module, for awaitable work; they differ only in where the ledger is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import Token
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from .cache import cache_of
from .claim import Claim, current
from .clock import Clock, Deadline
from .codec import is_lazy, not_stored
from .contest import Bid, Setup, contend, lease_of
from .duplicate import Duplicate
from .errors import (
    IdempotencyError,
    LeaseLostError,
    LedgerError,
    MissingKeyError,
    ReentrantCallError,
    UnreadableRecordError,
    UnsupportedResultError,
)
from .holding import Holding
from .ledger import Entry
from .lifecycle import Meaning, judge
from .outcome import Details, Execution, Happening, Outcome, Phase
from .record import Key, Record, State

T = TypeVar("T")

_log = logging.getLogger("idemguard")

# Seconds of the time left that are kept back from the ledger, for the answer to get out.
_RESERVE = 0.25


class Delivery(Generic[T]):
    """One delivery of one key.

    Args:
        setup: the function's configuration.
        key: its identity.
        name: the record's name in the ledger.
        deadline: when the Lambda function will be stopped, if known.
        redelivered: the event says that it was delivered before, so reading first saves a write.
        fallback: answers a duplicate whose result was not stored.
        missing: why the event holds no key, if it holds none.
    """

    def __init__(
        self,
        setup: Setup,
        key: Key,
        name: str,
        *,
        deadline: Deadline | None = None,
        redelivered: bool = False,
        fallback: Callable[[], T] | None = None,
        missing: MissingKeyError | None = None,
    ) -> None:
        self._setup = setup
        self._key = key
        self._name = name
        self._limit = deadline
        self._deadline = deadline.earlier(_RESERVE) if deadline else None
        self._fallback = fallback
        self._missing = missing
        self._redelivered = redelivered
        self._bid: Bid | None = None
        #: Seconds after which `attempt` is worth another call; None once it is decided.
        self.pause: float | None = None
        self.details = Details(key.operation, key.digest, setup.namespace)
        self.claim: Claim | None = None
        self.answer: Execution[T] | None = None

    def open(self) -> bool:
        """Claim the key: True when the work is to be run, False when `answer` is the answer.

        Raises:
            As `attempt`.
        """
        claimed = self.attempt()
        while self.pause is not None:
            self.clock.sleep(self.pause)
            claimed = self.attempt()
        return claimed

    @property
    def clock(self) -> Clock:
        """What this delivery waits by."""
        return self._setup.clock

    def attempt(self) -> bool:
        """`open` without waiting: where `pause` is set then, wait that long and call it again.

        Raises:
            InFlightError, PayloadMismatchError, PermanentFailureError, ResultNotStoredError,
            ReentrantCallError, LedgerError: the work must not be run.
            BaseException: the kept failure, or what `fallback` raises.
        """
        self.pause = None
        if self._missing is not None:
            self._note(Happening.MISSING_KEY, error=self._missing)
            if self._setup.on_missing_key == "raise":
                raise self._missing
            self._run_unguarded(self._missing)
            return True
        self._refuse_reentry()
        if self._setup.cached:
            cache, clock = cache_of(self._setup.ledger), self._setup.clock
            if (hit := cache.get(self._name, clock)) is not None:
                meaning = judge(*hit, self._key)
                if meaning is not Meaning.TAKE_OVER:
                    self._answer(meaning, Entry(self._name, *hit))
                    return False
        self._bid = self._bid or Bid(
            self._setup,
            limit=self._limit,
            deadline=self._deadline,
            redelivered=self._redelivered,
        )
        try:
            contest = contend(self._setup, self._key, self._name, self._bid)
        except LedgerError as error:
            self.details.sign(error)
            self._note(Happening.LEDGER_ERROR, error=error)
            # Whatever a record that nobody can read means, it does not mean "run".
            if self._setup.on_ledger_error == "raise" or isinstance(error, UnreadableRecordError):
                raise
            self._run_unguarded(error)
            return True
        # Past the handler: a kept failure may be a LedgerError too, and never means "run".
        self.pause = contest.pause
        if self.pause is not None:
            return False
        if contest.meaning is None:
            self._won(contest.entry, contest.took_over)
            return True
        if contest.meaning in (Meaning.REPLAY, Meaning.FAILED):
            self._remember(contest.entry.record, contest.entry.age)
        self._answer(contest.meaning, contest.entry)
        return False

    def close(self, result: T) -> Execution[T]:
        """Complete the claim with the work's result."""
        execution = self.details.execution(Outcome.EXECUTED, result)
        holding = self._holding()
        if holding is None:
            return execution
        if is_lazy(result):
            error = UnsupportedResultError(
                f"{self._key.operation} returned a {type(result).__name__}, which is not done yet: "
                "return a list, or await it; the claim was released",
                **self.details.identity,
                type_name=type(result).__name__,
                where="$",
            )
            self._end_undone(holding, error, permanent=False)
            raise error
        unsupported: UnsupportedResultError | None = None
        try:
            encoded = (
                self._setup.codec.encode(result)
                if self._setup.store_result
                else not_stored("omitted")
            )
        except UnsupportedResultError as error:
            # The work is done, whatever can be kept of its result: it must not run again.
            unsupported = error
            encoded = not_stored("unsupported type")
        try:
            record = holding.end(State.COMPLETED, result=encoded)
        except Exception as error:
            # Whatever a ledger of the user's raises: the work is done.
            self._completion_failed(error)
        else:
            self._remember(record, 0.0)
            if record.result == not_stored("too large"):
                self._note(Happening.RESULT_NOT_STORED)
        if unsupported is not None:
            self._note(Happening.RESULT_NOT_STORED, error=unsupported)
            self.details.sign(unsupported)
            raise unsupported
        self._note(Happening.EXECUTED, outcome=Outcome.EXECUTED)
        return execution

    def abort(self, error: BaseException | None) -> None:
        """End the claim after the work raised, or was given up where there is no error.

        `error` itself stays the caller's to raise.
        """
        if self.claim is None:
            return
        self._note(Happening.WORK_FAILED, error=error)
        holding = self._holding()
        if holding is not None and not holding.ended:
            self._end_undone(holding, error, permanent=self._is_permanent(error))

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        """What the hooks wrap round a phase."""
        return self._setup.hooks.around(phase, self.details)

    def ending_phase(self, error: BaseException) -> AbstractContextManager[None]:
        """The phase that ends a claim whose work raised `error`."""
        return self.phase(Phase.FAIL if self._is_permanent(error) else Phase.RELEASE)

    def working(self) -> AbstractContextManager[None]:
        """Within it, `idemguard.step` and the like find the claim."""
        claim = replace(self.claim, outer=current.get()) if self.claim else None
        return _Working(claim, self.phase(Phase.WORK))

    def _won(self, entry: Entry, met: Record | None) -> None:
        setup, record = self._setup, entry.record
        self.details = replace(self.details, attempt=record.attempt)
        holding = Holding(
            setup.ledger,
            entry,
            details=self.details,
            codec=setup.codec,
            hooks=setup.hooks,
            clock=setup.clock,
            deadline=self._deadline,
        )
        self.claim = Claim.of(self.details, record.lease, setup.clock, self._limit, holding)
        if met is not None and met.state in (State.CLAIMED, State.UNKNOWN):
            self._note(Happening.TAKEN_OVER)
        if record.steps:
            self._note(Happening.RESUMED)

    def _run_unguarded(self, error: IdempotencyError) -> None:
        _log.warning("%s runs unguarded: %s", self._key.operation, type(error).__name__)
        self._note(Happening.UNGUARDED, error=error)
        lease = lease_of(self._setup, self._limit)
        self.claim = Claim.of(self.details, lease, self._setup.clock, self._limit)

    def _is_permanent(self, error: BaseException | None) -> bool:
        # Being told to stop, another delivery at work or a ledger that throttles is never for good.
        if not isinstance(error, Exception):
            return False
        passing = isinstance(error, IdempotencyError) and error.retryable
        return isinstance(error, self._setup.permanent) and not passing

    def _end_undone(
        self, holding: Holding, error: BaseException | None, *, permanent: bool
    ) -> None:
        try:
            if error is not None and permanent:
                record = holding.end(State.FAILED, error=self._setup.codec.encode_error(error))
                self._remember(record, 0.0)
            else:
                holding.end(State.RELEASED)
        except Exception as failure:
            lost = isinstance(failure, LeaseLostError)
            self._note(Happening.LEASE_LOST if lost else Happening.RELEASE_FAILED, error=failure)
            _log.warning(
                "%s (key %s): the claim could not be released (%s); it may be taken over when its "
                "lease ends",
                self._key.operation,
                self._key.digest,
                type(failure).__name__,
            )
            # Python 3.10 has no notes, and an exception may refuse them: a frozen dataclass does.
            with suppress(Exception):
                if (add_note := getattr(error, "add_note", None)) is not None:
                    add_note(f"idemguard could not release the claim: {_told(failure)}")

    def _answer(self, meaning: Meaning, entry: Entry) -> None:
        duplicate = Duplicate(self._setup, self.details, self._fallback)
        self.answer = duplicate.answer(meaning, entry)

    def _completion_failed(self, error: Exception) -> None:
        lost = isinstance(error, LeaseLostError)
        self._note(Happening.LEASE_LOST if lost else Happening.COMPLETE_FAILED, error=error)
        _log.error(
            "%s (key %s): the work is done but could not be recorded as completed (%s); a "
            "duplicate may run it again",
            self._key.operation,
            self._key.digest,
            _told(error),
        )
        if self._setup.on_complete_error == "raise":
            if isinstance(error, IdempotencyError):
                self.details.sign(error)
            raise error

    def _refuse_reentry(self) -> None:
        claim = current.get()
        while claim is not None:
            holding = claim.holding
            if holding and holding.holds(self._setup.ledger, self._name):
                raise ReentrantCallError(
                    f"{self._key.operation} was called from inside itself with the key that it holds; "
                    "it would wait for itself for ever",
                    **self.details.identity,
                )
            claim = claim.outer

    def _holding(self) -> Holding | None:
        return self.claim.holding if self.claim else None

    def _remember(self, record: Record, age: float) -> None:
        if self._setup.cached:
            cache_of(self._setup.ledger).put(self._name, record, age, self._setup.clock)

    def _note(
        self,
        happening: Happening,
        *,
        outcome: Outcome | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._setup.hooks.observe(happening, self.details, outcome=outcome, error=error)


def _told(error: Exception) -> str:
    """An error as it may be shown: the text of one that is not ours may hold payload."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, IdempotencyError) else name


class _Working(AbstractContextManager[None]):
    """Work's phase, in which its claim is the current one."""

    def __init__(self, claim: Claim | None, phase: AbstractContextManager[None]) -> None:
        self._claim = claim
        self._phase = phase
        self._before: Token[Claim | None] | None = None

    def __enter__(self) -> None:
        before = current.set(self._claim)
        try:
            self._phase.__enter__()
        except BaseException:
            current.reset(before)
            raise
        self._before = before

    def __exit__(self, *exc: Any) -> None:
        try:
            self._phase.__exit__(*exc)
        finally:
            if self._before is not None:
                current.reset(self._before)


def deliver(delivery: Delivery[T], work: Callable[[], T]) -> Execution[T]:
    """Drive a delivery of blocking work."""
    with delivery.phase(Phase.CLAIM):
        claimed = delivery.open()
    if not claimed:
        return cast("Execution[T]", delivery.answer)
    try:
        with delivery.working():
            result = work()
    except BaseException as error:
        with delivery.ending_phase(error):
            delivery.abort(error)
        raise
    with delivery.phase(Phase.COMPLETE):
        return delivery.close(result)
