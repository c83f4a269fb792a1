"""One delivery from start to finish: open it, do the work if it says so, close or abort it.

`Delivery` holds every decision; `deliver` and `deliver_async` are the two ways to drive it, and the
only code that differs between them is where the ledger is waited for.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Generic, NoReturn, TypeVar, cast

from .cache import cache_of
from .claim import Claim, current
from .clock import Clock, Deadline
from .codec import Codec, error_type, is_lazy, not_stored
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
from .ledger import Entry, Ledger
from .lifecycle import LONGEST_LEASE, Meaning, Terms, first_claim, judge, next_claim
from .outcome import Details, Execution, Happening, Hooks, Outcome, Phase
from .record import Key, Record, State

T = TypeVar("T")

_log = logging.getLogger("idemguard")

#: Seconds that a lease outlives the time left in the context.
LEASE_MARGIN = 0.5
# Seconds of the time left that are kept back from the ledger, for the answer to get out.
_RESERVE = 0.25
_DEFAULT_WAIT = 30.0
_TAKEOVERS = 8


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for every delivery of one decorated function, resolved once."""

    ledger: Ledger
    namespace: str
    codec: Codec
    hooks: Hooks
    clock: Clock
    retention: float
    lease: float | None
    wait: float | None
    cached: bool
    on_in_flight: str
    on_missing_key: str
    on_ledger_error: str
    on_complete_error: str
    store_result: bool
    permanent: tuple[type[BaseException], ...]


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
        self._redelivered = redelivered
        self._fallback = fallback
        self._missing = missing
        self.details = Details(key.operation, key.digest, setup.namespace)
        self.claim: Claim | None = None
        self.answer: Execution[T] | None = None

    def open(self) -> bool:
        """Claim the key: True when the work is to be run, False when `answer` is the answer.

        Raises:
            InFlightError, PayloadMismatchError, PermanentFailureError, ResultNotStoredError,
            ReentrantCallError, LedgerError: the work must not be run.
        """
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
        setup, ledger = self._setup, self._setup.ledger
        # The operating system's randomness, at claim time: forks and restored snapshots of one
        # process must not share a token.
        token = secrets.token_hex(16)
        patience = _Patience(setup, self._deadline)
        takeovers = 0
        met: Record | None = None
        entry: Entry | None = None
        if self._redelivered:
            entry = ledger.read(self._name, deadline=self._deadline)
        while True:
            if entry is None:
                met = None
                wanted = first_claim(self._key, self._terms(token))
                entry = ledger.create(self._name, wanted, deadline=self._deadline)
            if entry.record.token == token and entry.record.state is State.CLAIMED:
                self._won(entry, met)
                return True
            meaning = judge(entry.record, entry.age, self._key)
            if meaning is Meaning.BUSY and setup.on_in_flight == "wait" and patience.wait():
                entry = ledger.read(self._name, deadline=self._deadline)
            elif meaning is Meaning.TAKE_OVER and takeovers < _TAKEOVERS:
                takeovers += 1
                met = entry.record
                wanted = next_claim(met, entry.age, self._key, self._terms(token))
                entry = ledger.replace(entry, wanted, deadline=self._deadline)
            else:
                self._answer(Meaning.BUSY if meaning is Meaning.TAKE_OVER else meaning, entry)
                return False

    def _terms(self, token: str) -> Terms:
        setup = self._setup
        return Terms(token, self._lease(), setup.retention, int(setup.clock.wall() * 1000))

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
        self.claim = Claim.unguarded(self.details, self._lease(), self._setup.clock, self._limit)

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
        self._remember(entry.record, entry.age)
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

    def _busy(self, retry_after: float | None) -> bool:
        self._note(Happening.IN_FLIGHT, outcome=Outcome.SKIPPED_IN_FLIGHT)
        if self._setup.on_in_flight != "skip":
            raise InFlightError(
                f"{self._key.operation}: another delivery of this key is at work; deliver again later",
                **self._who(),
                retry_after=retry_after,
            )
        self.answer = self._execution(Outcome.SKIPPED_IN_FLIGHT, cast(T, None))
        return False

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

    def _lease(self) -> float:
        if self._setup.lease is not None:
            return self._setup.lease
        if self._limit is None:
            return LONGEST_LEASE
        return round(max(0.0, self._limit.remaining()) + LEASE_MARGIN, 3)

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


class _Patience:
    """How long, and at which pace, to wait for another delivery's result."""

    def __init__(self, setup: Setup, deadline: Deadline | None) -> None:
        self._clock = setup.clock
        longest = setup.wait
        if longest is None and deadline is None:
            longest = _DEFAULT_WAIT
        until = Deadline.after(self._clock, longest) if longest is not None else None
        bounds = [bound for bound in (until, deadline) if bound is not None]
        self._until = min(bounds, key=lambda bound: bound.at)
        self._next = 0.1

    def wait(self) -> bool:
        """Wait a little longer each time; False when there is no time for it."""
        pause = self._next * 0.5 + self._clock.jitter(self._next * 0.5)
        if pause >= self._until.remaining():
            return False
        self._clock.sleep(pause)
        self._next = min(self._next * 1.6, 2.0)
        return True


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


async def deliver_async(delivery: Delivery[T], work: Callable[[], Awaitable[T]]) -> Execution[T]:
    """Drive a delivery of awaitable work; the ledger, which blocks, is waited for in a thread."""
    with delivery.phase(Phase.CLAIM):
        claimed = await _in_thread(delivery.open, undo=delivery.abort)
    if not claimed:
        return cast("Execution[T]", delivery.answer)
    try:
        with delivery.working():
            result = await work()
    except BaseException as error:
        with delivery.ending_phase(error):
            await _in_thread(functools.partial(delivery.abort, error))
        raise
    with delivery.phase(Phase.COMPLETE):
        return await _in_thread(functools.partial(delivery.close, result))


async def _in_thread(
    call: Callable[[], T], undo: Callable[[BaseException], None] | None = None
) -> T:
    """Run `call` in a thread to its end even if the task is cancelled; then `undo` it there."""
    cancelled: list[BaseException] = []
    lock = threading.Lock()
    finished = False

    def run() -> T:
        nonlocal finished
        outcome = call()
        with lock:
            finished = True
            late = cancelled[0] if cancelled else None
        if late is not None and undo is not None:
            undo(late)
        return outcome

    loop = asyncio.get_running_loop()
    thread = loop.run_in_executor(None, copy_context().run, run)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError as error:
        thread.add_done_callback(lambda done: done.cancelled() or done.exception())
        with lock:
            cancelled.append(error)
            undo_here = finished and undo is not None
        if undo_here and undo is not None:
            await asyncio.shield(loop.run_in_executor(None, copy_context().run, undo, error))
        raise
