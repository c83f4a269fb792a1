"""What a delivery gets that must not run the work: the kept result, the kept failure, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar, cast

from .codec import error_type
from .contest import Setup
from .errors import (
    InFlightError,
    PayloadMismatchError,
    PermanentFailureError,
    ResultNotStoredError,
    UnreadableRecordError,
)
from .ledger import Entry
from .lifecycle import Meaning
from .outcome import Details, Execution, Happening, Outcome
from .record import Record

T = TypeVar("T")


class Duplicate(Generic[T]):
    """One delivery whose key somebody else has, or had.

    Args:
        setup: the function's configuration.
        details: which delivery it is.
        fallback: answers where the result was not stored.
    """

    def __init__(self, setup: Setup, details: Details, fallback: Callable[[], T] | None) -> None:
        self._setup = setup
        self._details = details
        self._fallback = fallback

    def answer(self, meaning: Meaning, entry: Entry) -> Execution[T]:
        """The answer that the entry met gives, by what it means.

        Raises:
            InFlightError, PayloadMismatchError, PermanentFailureError, ResultNotStoredError,
            UnreadableRecordError: it gives none.
            BaseException: the kept failure, or what the fallback raises.
        """
        if meaning is Meaning.BUSY:
            return self._busy(max(0.0, entry.record.lease - entry.age) or None)
        if meaning is Meaning.MISMATCH:
            self._note(Happening.MISMATCH)
            raise PayloadMismatchError(
                f"{self._details.operation}: the key was used before with another payload; use a new "
                "key for new work",
                **self._details.identity,
            )
        if meaning is Meaning.FAILED:
            self._fail_again(entry.record)
        self._note(Happening.REPLAYED, Outcome.SKIPPED_COMPLETED)
        return self._details.execution(Outcome.SKIPPED_COMPLETED, self._replayed(entry.record))

    def _replayed(self, record: Record) -> T:
        try:
            return cast(T, self._setup.codec.decode(record.result))
        except ResultNotStoredError as error:
            not_stored = error
        except UnreadableRecordError as error:
            self._details.sign(error)
            self._setup.hooks.observe(Happening.LEDGER_ERROR, self._details, error=error)
            raise
        # Out of the handler: what the fallback raises has nothing to do with this error.
        if self._fallback is not None:
            return self._fallback()
        if not_stored.reason == "omitted":
            return cast(T, None)
        self._details.sign(not_stored)
        raise not_stored

    def _fail_again(self, record: Record) -> NoReturn:
        self._note(Happening.FAILED_BEFORE)
        earlier = self._setup.codec.decode_error(record.error)
        if earlier is not None:
            raise earlier
        name = error_type(record.error)
        raise PermanentFailureError(
            f"{self._details.operation} failed for good in an earlier delivery"
            + (f" with {name}" if name else ""),
            **self._details.identity,
            error_type=name,
        )

    def _busy(self, retry_after: float | None) -> Execution[T]:
        self._note(Happening.IN_FLIGHT, Outcome.SKIPPED_IN_FLIGHT)
        if self._setup.on_in_flight != "skip":
            raise InFlightError(
                f"{self._details.operation}: another delivery of this key is at work; deliver again "
                "later",
                **self._details.identity,
                retry_after=retry_after,
            )
        return self._details.execution(Outcome.SKIPPED_IN_FLIGHT, cast(T, None))

    def _note(self, happening: Happening, outcome: Outcome | None = None) -> None:
        self._setup.hooks.observe(happening, self._details, outcome=outcome)
