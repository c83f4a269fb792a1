"""What the work itself can use while it runs: steps, effect keys, and the claim."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, cast

from .claim import Claim, current
from .codec import is_lazy, not_stored
from .errors import LedgerError, ResultNotStoredError, StepError, UnsupportedResultError
from .outcome import Happening, Phase

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("idemguard")


def current_claim() -> Claim:
    """The claim under which the running code works.

    Raises:
        StepError: it does not run inside claimed work.
    """
    claim = current.get()
    if claim is None:
        raise StepError("there is no claim here: call this inside a function that is @idempotent")
    return claim


def effect_key(name: str, *, max_length: int = 64) -> str:
    """A stable identity for one downstream effect of this work.

    The same key and name give the same text in every attempt, so that the service behind the effect
    can drop the second request: Stripe's ``Idempotency-Key`` (255 characters), an SQS
    ``MessageDeduplicationId`` (128), a DynamoDB ``ClientRequestToken`` (36).

    Args:
        name: which effect, unique in this work.
        max_length: characters the service takes, 16 to 64; the text is hexadecimal.

    Raises:
        StepError: outside of claimed work, or the event held no key.
        InvalidOption: `max_length` is out of range.
    """
    return current_claim().effect_key(name, max_length=max_length)


def step(name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Do a named part of the work once across attempts, and return its result.

    An attempt after a failure or a crash gets the result that an earlier one kept, without calling
    `function`. With an ``async def``, await what this returns.

    Raises:
        StepError: outside of claimed work, the name is used twice in one attempt, or no room.
        ResultNotStoredError: an earlier attempt did the step, but its result could not be kept.
        LeaseLostError: another attempt has taken the key over; the work must stop.
        UnsupportedResultError: the result cannot be kept; the step is noted as done, unless the
            result is not done itself: a coroutine, say, of an ``async def`` called in a lambda.
    """
    run = _Step(current_claim(), name, function)
    if inspect.iscoroutinefunction(function):
        return cast(R, _step_async(run, function(*args, **kwargs)))
    if not run.begin():
        return cast(R, run.kept)
    try:
        with run.phase():
            result = function(*args, **kwargs)
            run.refuse_lazy(result)
    except BaseException:
        run.abandon()
        raise
    run.keep(result)
    return result


async def _step_async(run: _Step, work: Coroutine[Any, Any, Any]) -> Any:
    from .delivery_async import in_thread

    try:
        if not run.begin():
            return run.kept
        try:
            with run.phase():
                result = await work
                run.refuse_lazy(result)
        except BaseException:
            run.abandon()
            raise
    finally:
        work.close()
    await in_thread(lambda: run.keep(result))
    return result


class _Step:
    """One step of one attempt."""

    def __init__(self, claim: Claim, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._holding = claim.holding
        self._codec = claim.holding.codec.extended(function) if claim.holding else None
        self.kept: Any = None

    def begin(self) -> bool:
        """True when the step is to be run; False when `kept` is what an earlier attempt kept."""
        holding = self._holding
        if holding is None or self._codec is None:
            return True
        done, encoded = holding.begin_step(self._name)
        if not done:
            return True
        try:
            self.kept = self._codec.decode(encoded)
        except ResultNotStoredError as error:
            raise ResultNotStoredError(
                f"step {self._name!r} was done by an earlier attempt, but its result was not kept "
                f"({error.reason}); it is not run again",
                **holding.details.identity,
                reason=error.reason,
            ) from None
        return False

    def phase(self) -> AbstractContextManager[None]:
        """What the hooks wrap round the step's function."""
        holding = self._holding
        if holding is None:
            return nullcontext()
        return holding.hooks.around(Phase.STEP, replace(holding.details, step=self._name))

    def abandon(self) -> None:
        """The step's function raised: it may be tried again."""
        if self._holding is not None:
            self._holding.abandon_step(self._name)

    def refuse_lazy(self, result: Any) -> None:
        """Refuse what the function has only begun; it is not noted as done."""
        if self._holding is None or not is_lazy(result):
            return
        if inspect.iscoroutine(result):
            result.close()
        raise UnsupportedResultError(
            f"step {self._name!r} gave a {type(result).__name__}, which is not done yet: pass an "
            "async def itself and its arguments, await what step() returns, or return a list",
            **self._holding.details.identity,
            type_name=type(result).__name__,
            where="$",
        )

    def keep(self, result: Any) -> None:
        """Write the result into the claim's record."""
        holding = self._holding
        if holding is None or self._codec is None:
            return
        unsupported: UnsupportedResultError | None = None
        try:
            encoded = self._codec.encode(result)
        except UnsupportedResultError as error:
            unsupported = error
            encoded = not_stored("unsupported type")
        try:
            holding.end_step(self._name, encoded)
        except LedgerError as error:
            # The step is done. Stopping here would make the next attempt do it again; going on, the
            # completion may still be written, or the next step's result with this one's beside it.
            holding.hooks.observe(Happening.STEP_NOT_KEPT, holding.details, error=error)
            _log.error(
                "%s (key %s): step %s is done but could not be noted (%s); a later attempt may do "
                "it again",
                holding.details.operation,
                holding.details.key_digest,
                self._name,
                type(error).__name__,
            )
        if unsupported is not None:
            raise unsupported
