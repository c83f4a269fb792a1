"""The explicit configuration object, and its primitives."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .claim import Claim, current
from .clock import Deadline
from .codec import Codec
from .contest import Setup
from .delivery import Delivery, deliver
from .errors import MissingKeyError
from .keys import Selector, make_key, no_key
from .ledger import Ledger
from .options import Options, default_ledger
from .outcome import Execution, Hook, Hooks
from .record import Key

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .decorator import KeySource
    from .options import OptionArgs

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_.-]+")
_LONGEST_SLUG = 120


class Guard:
    """Options that several functions share, and the claim cycle by hand.

    Holds no state of a call; nested and concurrent use is normal use. Takes every option of
    `idemguard.options.Options` as a keyword.

    Raises:
        InvalidOption: an option is unknown or has a value that it cannot have.
    """

    def __init__(self, **options: Unpack[OptionArgs]) -> None:
        self._configure(Options().changed(**options))

    def _configure(self, options: Options) -> None:
        self._options = options
        self._setup = KeptSetup(self, Codec(types=options.types, errors=options.permanent_types))

    @property
    def options(self) -> Options:
        """The options as given, before the environment is looked at."""
        return self._options

    def idempotent(
        self, key: KeySource, **options: Unpack[OptionArgs]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """`idemguard.idempotent` with this guard's options, some of them changed."""
        from .decorator import decorate

        guard = Guard.of(self._options.changed(**options)) if options else self
        selector = Selector(key)
        return lambda function: decorate(guard, selector, function)

    @classmethod
    def of(cls, options: Options) -> Guard:
        """A guard with ready-made options."""
        guard = cls.__new__(cls)
        guard._configure(options)
        return guard

    def key(self, value: Any, *, payload: Any = None) -> Key:
        """The identity of a key value given by hand, under this guard's `operation`.

        Args:
            value: a string, number, list, ...: what an expression would have selected.
            payload: what must not change under this key; its fingerprint is kept.

        Raises:
            MissingKeyError: `value` is None or empty, or has a member that is None.
        """
        operation = self._options.operation or "default"
        if why := no_key(value):
            raise MissingKeyError(
                f"{operation}: the key identifies nothing: {why}", operation=operation
            )
        if payload is None:
            return make_key(operation, value)
        return make_key(operation, value, payload)

    def run_exactly_once(
        self, key: Any, work: Callable[[], T], *, context: Any = None, payload: Any = None
    ) -> Execution[T]:
        """Claim `key`, run `work`, complete or release; or answer from the record.

        Args:
            key: a key value, or a `Key` of this guard. Together with the option `operation` it is
                the whole identity: give different work a different key or operation.
            work: called without arguments, at most once.
            context: the Lambda context, which tells how long the claim must hold.
            payload: what must not change under this key.

        Raises:
            InFlightError, MissingKeyError, PayloadMismatchError: the work was not run.
            PermanentFailureError, ResultNotStoredError: it ended before, and is not run again.
            ReentrantCallError, LedgerError: the work was not run.
            UnsupportedResultError: the work was run; its result cannot be kept.
        """
        return deliver(self._delivery(key, context, payload), work)

    async def run_exactly_once_async(
        self,
        key: Any,
        work: Callable[[], Awaitable[T]],
        *,
        context: Any = None,
        payload: Any = None,
    ) -> Execution[T]:
        """`run_exactly_once` for awaitable work."""
        from .delivery_async import deliver_async

        return await deliver_async(self._delivery(key, context, payload), work)

    def claim(
        self, key: Any, *, context: Any = None, payload: Any = None
    ) -> Claim | Execution[Any]:
        """Claim a key by hand: a `Claim` to be ended, or the `Execution` that answers a duplicate.

        Raises:
            IdempotencyError: what `run_exactly_once` raises before the work.
        """
        delivery: Delivery[Any] = self._delivery(key, context, payload)
        delivery.open()
        if delivery.claim is not None:
            return delivery.claim
        assert delivery.answer is not None, "a delivery ends in a claim, an answer or an error"
        return delivery.answer

    def complete(self, claim: Claim, result: Any = None) -> None:
        """End a claim: the work is done.

        Raises:
            UnsupportedResultError: the result cannot be kept; the work is recorded as done.
        """
        self._resumed(claim).close(result)

    def release(self, claim: Claim, error: BaseException | None = None) -> None:
        """End a claim: the work failed and may be tried again at once.

        With an `error` of a `permanent` type, the failure is recorded for good instead.
        """
        self._resumed(claim).abort(error)

    def setup(self, codec: Codec) -> Setup:
        """This guard's configuration for one codec, resolved with the environment."""
        options = self._options
        return Setup(
            ledger=self.ledger(),
            namespace=options.resolved_namespace(),
            codec=codec,
            hooks=Hooks(_observers(options)),
            clock=options.clock,
            retention=options.resolved_retention(),
            lease=options.resolved_lease(),
            wait=options.resolved_wait(),
            cached=options.resolved_cache(),
            on_in_flight=options.on_in_flight,
            on_missing_key=options.on_missing_key,
            on_ledger_error=options.on_ledger_error,
            on_complete_error=options.on_complete_error,
            store_result=options.result == "store",
            permanent=options.permanent_types,
        )

    def deadline(self, context: Any) -> Deadline | None:
        """When the Lambda function is stopped: by its context, or that of the work round this one."""
        if context is not None:
            left = context.get_remaining_time_in_millis() / 1000
            return Deadline.after(self._options.clock, left)
        outer = current.get()
        # What an ended claim left behind, a task say, may live on in the next invocation.
        return outer.limit if outer and not outer.ended else None

    def ledger(self) -> Ledger:
        """The ledger in force now."""
        given = self._options.ledger
        return given if isinstance(given, Ledger) else default_ledger(given)

    def _delivery(self, key: Any, context: Any, payload: Any) -> Delivery[Any]:
        missing = None
        try:
            identity = key if isinstance(key, Key) else self.key(key, payload=payload)
        except MissingKeyError as error:
            identity, missing = Key(error.operation or "", ""), error
        setup = self._setup()
        return Delivery(
            setup,
            identity,
            record_name(setup.namespace, identity),
            deadline=self.deadline(context),
            missing=missing,
        )

    def _resumed(self, claim: Claim) -> Delivery[Any]:
        name = claim.holding.name if claim.holding else ""
        delivery: Delivery[Any] = Delivery(
            self._setup(), Key(claim.operation, claim.key_digest), name
        )
        delivery.claim = claim
        delivery.details = claim.details
        return delivery


class KeptSetup:
    """A guard's configuration for one codec, kept from the first delivery on while its ledger stays.

    Kept by whoever delivers and not by the guard, which may outlive many functions.
    """

    def __init__(self, guard: Guard, codec: Codec) -> None:
        self._guard = guard
        self._codec = codec
        self._kept: Setup | None = None

    def __call__(self) -> Setup:
        """The configuration in force now."""
        kept = self._kept
        if kept is None or kept.ledger is not self._guard.ledger():
            kept = self._kept = self._guard.setup(self._codec)
        return kept


def record_name(namespace: str, key: Key) -> str:
    """The ledger's name for a key: ``NAMESPACE/OPERATION/DIGEST``, readable, and safe in any store.

    The operation is there for people and policies; what tells keys apart is the digest, which
    covers the operation as it is.
    """
    slug = _NOT_IN_A_NAME.sub("-", key.operation)[:_LONGEST_SLUG]
    return f"{namespace}/{slug}/{key.digest}"


def _observers(options: Options) -> list[Hook]:
    observers = list(options.hooks)
    if options.logger is not None:
        from .integrations.logger import LoggerHook

        observers.append(LoggerHook(options.logger))
    if options.tracer is not None:
        from .integrations.tracer import TracerHook

        observers.append(TracerHook(options.tracer))
    if options.metrics is not None:
        from .integrations.metrics import MetricsHook

        observers.append(MetricsHook(options.metrics))
    return observers
