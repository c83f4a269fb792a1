"""One delivery from start to finish: open it, do the work if it says so, close or abort it.

`Delivery` holds every decision. `deliver` drives it for blocking work and `deliver_async`, in its own
module, for awaitable work; they differ only in where the ledger is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Generic, NoReturn, TypeVar, cast

from .cache import cache_of
from .claim import Claim, current
from .clock import Clock, Deadline
from .codec import error_type, is_lazy, not_stored
from .contest import Bid, Setup, contend, lease_of
from .errors import (
    IdempotencyError,
    InFlightError,
    LeaseLostError,
    LedgerError,
    MissingKeyError,
    PayloadMismatchError,
    PermanentFailureError,
    ReentrantCallError,
    ResultNotStoredError,
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
        try:
            return self._claim()
        except LedgerError as error:
            self._sign(error)
            self._note(Happening.LEDGER_ERROR, error=error)
            # Whatever a record that nobody can read means, it does not mean "run".
            if self._setup.on_ledger_error == "raise" or isinstance(error, UnreadableRecordError):
                raise
            self._run_unguarded(error)
            return True

    def close(self, result: T) -> Execution[T]:
        """Complete the claim with the work's result."""
        execution = self._execution(Outcome.EXECUTED, result)
        holding = self._holding()
        if holding is None:
            return execution
        if is_lazy(result):
            error = UnsupportedResultError(
                f"{self._key.operation} returned a {type(result).__name__}, which is not done yet: "
                "return a list, or await it; the claim was released",
                **self._who(),
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
        except (LeaseLostError, LedgerError) as error:
            self._completion_failed(error)
        else:
            self._remember(record, 0.0)
            if record.result != encoded and record.result == not_stored("too large"):
                self._note(Happening.RESULT_NOT_STORED)
        if unsupported is not None:
            self._note(Happening.RESULT_NOT_STORED, error=unsupported)
            self._sign(unsupported)
            raise unsupported
        self._note(Happening.EXECUTED, outcome=Outcome.EXECUTED)
        return execution

    def abort(self, error: BaseException) -> None:
        """End the claim after the work raised; `error` itself stays the caller's to raise."""
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

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within it, `idemguard.step` and the like find the claim."""
        claim = replace(self.claim, outer=current.get()) if self.claim else None
        token = current.set(claim)
        try:
            with self.phase(Phase.WORK):
                yield
        finally:
            current.reset(token)

    def _claim(self) -> bool:
        self._bid = self._bid or Bid(
            self._setup,
            limit=self._limit,
            deadline=self._deadline,
            redelivered=self._redelivered,
        )
        contest = contend(self._setup, self._key, self._name, self._bid)
        self.pause = contest.pause
        if self.pause is not None:
            return False
        if contest.meaning is not None:
            if contest.meaning in (Meaning.REPLAY, Meaning.FAILED):
                self._remember(contest.entry.record, contest.entry.age)
            self._answer(contest.meaning, contest.entry)
            return False
        self._won(contest.entry, contest.took_over)
        return True

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
        self.claim = Claim.held(holding, setup.clock, self._limit)
        if met is not None and met.state in (State.CLAIMED, State.UNKNOWN):
            self._note(Happening.TAKEN_OVER)
        if record.steps:
            self._note(Happening.RESUMED)

    def _run_unguarded(self, error: IdempotencyError) -> None:
        _log.warning("%s runs unguarded: %s", self._key.operation, type(error).__name__)
        self._note(Happening.UNGUARDED, error=error)
        self.claim = Claim.unguarded(
            self.details, lease_of(self._setup, self._limit), self._setup.clock, self._limit
        )

    def _is_permanent(self, error: BaseException) -> bool:
        # Another delivery at work, or a ledger that throttles, is never for good.
        passing = isinstance(error, IdempotencyError) and error.retryable
        return isinstance(error, self._setup.permanent) and not passing

    def _end_undone(self, holding: Holding, error: BaseException, *, permanent: bool) -> None:
        try:
            if permanent:
                record = holding.end(State.FAILED, error=self._setup.codec.encode_error(error))
                self._remember(record, 0.0)
            else:
                holding.end(State.RELEASED)
        except (LeaseLostError, LedgerError) as failure:
            lost = isinstance(failure, LeaseLostError)
            self._note(Happening.LEASE_LOST if lost else Happening.RELEASE_FAILED, error=failure)
            _log.warning(
                "%s (key %s): the claim could not be released (%s); it may be taken over when its "
                "lease ends",
                self._key.operation,
                self._key.digest,
                type(failure).__name__,
            )
            # Python 3.10 has no notes.
            if (add_note := getattr(error, "add_note", None)) is not None:
                add_note(f"idemguard could not release the claim: {failure}")

    def _answer(self, meaning: Meaning, entry: Entry) -> None:
        if meaning is Meaning.BUSY:
            self._busy(max(0.0, entry.record.lease - entry.age) or None)
            return
        if meaning is Meaning.MISMATCH:
            self._note(Happening.MISMATCH)
            raise PayloadMismatchError(
                f"{self._key.operation}: the key was used before with another payload; use a new key "
                "for new work",
                **self._who(),
            )
        if meaning is Meaning.FAILED:
            self._fail_again(entry.record)
        self._note(Happening.REPLAYED, outcome=Outcome.SKIPPED_COMPLETED)
        self.answer = self._execution(Outcome.SKIPPED_COMPLETED, self._replayed(entry.record))

    def _replayed(self, record: Record) -> T:
        try:
            return cast(T, self._setup.codec.decode(record.result))
        except ResultNotStoredError as error:
            if self._fallback is not None:
                return self._fallback()
            if error.reason == "omitted":
                return cast(T, None)
            self._sign(error)
            raise
        except UnreadableRecordError as error:
            self._sign(error)
            raise

    def _fail_again(self, record: Record) -> NoReturn:
        self._note(Happening.FAILED_BEFORE)
        earlier = self._setup.codec.decode_error(record.error)
        if earlier is not None:
            raise earlier
        name = error_type(record.error)
        raise PermanentFailureError(
            f"{self._key.operation} failed for good in an earlier delivery"
            + (f" with {name}" if name else ""),
            **self._who(),
            error_type=name,
        )

    def _busy(self, retry_after: float | None) -> None:
        self._note(Happening.IN_FLIGHT, outcome=Outcome.SKIPPED_IN_FLIGHT)
        if self._setup.on_in_flight != "skip":
            raise InFlightError(
                f"{self._key.operation}: another delivery of this key is at work; deliver again later",
                **self._who(),
                retry_after=retry_after,
            )
        self.answer = self._execution(Outcome.SKIPPED_IN_FLIGHT, cast(T, None))

    def _completion_failed(self, error: IdempotencyError) -> None:
        lost = isinstance(error, LeaseLostError)
        self._note(Happening.LEASE_LOST if lost else Happening.COMPLETE_FAILED, error=error)
        _log.error(
            "%s (key %s): the work is done but could not be recorded as completed (%s: %s); a "
            "duplicate may run it again",
            self._key.operation,
            self._key.digest,
            type(error).__name__,
            error,
        )
        if self._setup.on_complete_error == "raise":
            self._sign(error)
            raise error

    def _refuse_reentry(self) -> None:
        claim = current.get()
        while claim is not None:
            holding = claim.holding
            if holding and holding.name == self._name and not holding.ended:
                raise ReentrantCallError(
                    f"{self._key.operation} was called from inside itself with the key that it holds; "
                    "it would wait for itself for ever",
                    **self._who(),
                )
            claim = claim.outer

    def _holding(self) -> Holding | None:
        return self.claim.holding if self.claim else None

    def _remember(self, record: Record, age: float) -> None:
        if self._setup.cached:
            cache_of(self._setup.ledger).put(self._name, record, age, self._setup.clock)

    def _execution(self, outcome: Outcome, result: T) -> Execution[T]:
        return Execution(
            outcome, result, self._key.operation, self._key.digest, self.details.attempt
        )

    def _note(
        self,
        happening: Happening,
        *,
        outcome: Outcome | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._setup.hooks.observe(happening, self.details, outcome=outcome, error=error)

    def _who(self) -> dict[str, Any]:
        return {"operation": self._key.operation, "key_digest": self._key.digest}

    def _sign(self, error: IdempotencyError) -> None:
        """Let an error from below say which delivery it belongs to."""
        error.operation = error.operation or self._key.operation
        error.key_digest = error.key_digest or self._key.digest


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
