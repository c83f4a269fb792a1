"""`@idempotent`: thin wrappers round a Guard. What can be checked is checked at decoration."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from .codec import Codec, check_annotation
from .delivery import Delivery, deliver
from .errors import InvalidOption, MissingKeyError, UnsupportedResultError
from .guard import Guard, KeptSetup, record_name
from .keys import MISSING, Selector, is_redelivery, make_key
from .record import Key
from .volatile import VolatileKeyWarning, findings

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import OptionArgs

P = ParamSpec("P")
R = TypeVar("R")

KeySource = str | Callable[[Any], Any]

# An argument that is one value: the whole of it may well be the key.
_SCALARS = frozenset(("str", "int", "bytes", "UUID", "uuid.UUID"))


def idempotent(
    key: KeySource, **options: Unpack[OptionArgs]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a handler, function, method or ``async def`` safe under at-least-once delivery.

    ```python
    @idempotent(key='["detail-type", detail.recordId]')
    def handler(event, context): ...
    ```

    Args:
        key: a JMESPath expression over the event, compiled now, or a callable that is given the
            event; what it selects identifies one unit of work.
        options: see `idemguard.options.Options`.

    The decorated function raises what the function itself raises, and before the work is run:

    Raises:
        MissingKeyError: the event holds no key.
        InFlightError: another delivery of the key is at work (retryable).
        PayloadMismatchError: the key was used before with another payload.
        PermanentFailureError, ResultNotStoredError: the work ended before, and what it ended with
            cannot be given again.
        ReentrantCallError: the work calls itself with its own key.
        LedgerError: the ledger cannot be used.

    At decoration:

    Raises:
        InvalidKeyExpression: `key` or `fingerprint` is not a valid expression.
        InvalidOption: an option, or the function, is none that can be used.
        UnsupportedResultError: the function is a generator, or says that it returns one.
    """
    return Guard().idempotent(key, **options)


def decorate(guard: Guard, key: Selector, function: Callable[P, R]) -> Callable[P, R]:
    """Wrap one function; `function` may be a classmethod or staticmethod object too."""
    if isinstance(function, (classmethod, staticmethod)):
        wrapped = decorate(guard, key, function.__func__)
        return cast("Callable[P, R]", type(function)(wrapped))
    if not callable(function):
        raise InvalidOption(
            f"idempotent: a {type(function).__name__} cannot be decorated; write "
            '@idempotent(key="...") above a function, with the parentheses'
        )
    bound = _Bound(guard, key, function)
    if _is_async(function):
        from .delivery_async import deliver_async

        @functools.wraps(function)
        async def async_wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
            delivery = bound.delivery(args, kwargs)
            work = cast("Callable[..., Awaitable[Any]]", function)
            execution = await deliver_async(delivery, lambda: work(*args, **kwargs))
            return execution.result

        return cast("Callable[P, R]", _signed(async_wrapper, bound))

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        delivery: Delivery[R] = bound.delivery(args, kwargs)
        return deliver(delivery, lambda: function(*args, **kwargs)).result

    return cast("Callable[P, R]", _signed(wrapper, bound))


def _signed(wrapper: Any, bound: _Bound) -> Any:
    # A callable instance or a partial hides its signature behind a wrapper otherwise.
    wrapper.__signature__ = bound.signature
    return wrapper


class _Bound:
    """A function with its compiled key: turns the arguments of a call into a delivery."""

    def __init__(self, guard: Guard, key: Selector, function: Callable[..., Any]) -> None:
        _refuse_generators(function)
        options = guard.options
        self._guard = guard
        self.signature = _signature(function)
        self._position, self._name = _event_parameter(function, self.signature, options.argument)
        self._operation = options.operation or _operation(function)
        self._select = key
        self._fingerprint = (
            Selector(options.fingerprint, "fingerprint") if options.fingerprint else None
        )
        self._setup = KeptSetup(
            guard, Codec(function, types=options.types, errors=options.permanent_types)
        )
        self._fallback = options.on_duplicate
        if self._fallback and _is_async(self._fallback) and not _is_async(function):
            raise InvalidOption(
                f"on_duplicate: it is async, and {self._operation} is not; give a plain function"
            )
        annotation = self.signature.parameters[self._name].annotation
        named = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        if found := findings(self._select, whole=named not in _SCALARS):
            warnings.warn(
                VolatileKeyWarning(f"the key of {self._operation}: " + "; ".join(map(str, found))),
                stacklevel=_outside(),
            )

    def delivery(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Delivery[Any]:
        """The delivery that this call is. The key is taken now, before the work can change it."""
        event = self._event(args, kwargs)
        setup = self._setup()
        key, missing = self._key(event)
        fallback = self._fallback
        return Delivery(
            setup,
            key,
            record_name(setup.namespace, key),
            deadline=self._guard.deadline(_context(args, kwargs)),
            redelivered=is_redelivery(event),
            fallback=(lambda: fallback(*args, **kwargs)) if fallback else None,
            missing=missing,
        )

    def _key(self, event: Any) -> tuple[Key, MissingKeyError | None]:
        value, why = self._select.find(event)
        if why:
            return Key(self._operation, ""), self._missing(f"holds no key: {why}")
        if self._fingerprint is None:
            return make_key(self._operation, value), None
        payload = self._fingerprint.select(event)
        key = make_key(self._operation, value, payload)
        if payload is MISSING:
            # Two payloads that cannot be read must not pass for the same one.
            why = self._fingerprint.why(event)
            return key, self._missing(f"has a payload that cannot be fingerprinted: {why}")
        return key, None

    def _missing(self, what: str) -> MissingKeyError:
        return MissingKeyError(
            f"{self._operation}: the event {what}; send what the expression selects, change the "
            'expression, or pass on_missing_key="run" to run unguarded',
            operation=self._operation,
        )

    def _event(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self._position is not None and self._position < len(args):
            return args[self._position]
        if self._name in kwargs:
            return kwargs[self._name]
        # Raises the TypeError that the call itself would, unless the parameter has a default.
        call = self.signature.bind(*args, **kwargs)
        call.apply_defaults()
        return call.arguments[self._name]


def _context(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    for value in (*reversed(args), *kwargs.values()):
        if hasattr(type(value), "get_remaining_time_in_millis"):
            return value
    return None


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidOption(
            f"{_operation(function)} has no signature to take the event from; wrap it in a function"
        ) from None


def _event_parameter(
    function: Callable[..., Any], signature: inspect.Signature, argument: str | None
) -> tuple[int | None, str]:
    """Position (None for keyword only) and name of the parameter that holds the event."""
    names = list(signature.parameters)
    if argument is not None:
        if argument not in signature.parameters:
            raise InvalidOption(
                f"argument: {_operation(function)} has no parameter {argument!r}; it has "
                + (", ".join(names) or "none")
            )
        kind = signature.parameters[argument].kind
        return (None if kind is inspect.Parameter.KEYWORD_ONLY else names.index(argument)), argument
    # A method is decorated while it still is a function: its first parameter is the instance.
    own = 1 if names[:1] in (["self"], ["cls"]) and "." in _qualname(function) else 0
    if len(names) <= own:
        raise InvalidOption(f"{_operation(function)} has no parameter to take the key from")
    first = signature.parameters[names[own]]
    if first.kind is inspect.Parameter.VAR_KEYWORD:
        raise InvalidOption(f"{_operation(function)} takes only **{first.name}; pass argument=")
    return (None if first.kind is inspect.Parameter.KEYWORD_ONLY else own), first.name


def _innermost(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _qualname(function: Callable[..., Any]) -> str:
    inner = _innermost(function)
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def _operation(function: Callable[..., Any]) -> str:
    inner = _innermost(function)
    module = getattr(inner, "__module__", None) or type(inner).__module__
    return f"{module}.{_qualname(function)}"


def _callee(function: Callable[..., Any]) -> Any:
    """The function whose kind tells what a call gives: of a callable instance, its ``__call__``."""
    inner = _innermost(function)
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return type(inner).__call__


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(_callee(function))


def _refuse_generators(function: Callable[..., Any]) -> None:
    callee = _callee(function)
    if inspect.isgeneratorfunction(callee) or inspect.isasyncgenfunction(callee):
        raise UnsupportedResultError(
            f"{_operation(function)} is a generator: its work would be done after the claim has "
            "ended; return a list instead",
            operation=_operation(function),
            type_name="generator",
            where="$",
        )
    check_annotation(callee)


def _outside() -> int:
    """How far up the stack the user's own line is, for a warning to point at."""
    package = __name__.rpartition(".")[0]
    depth, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(package):
        depth, frame = depth + 1, frame.f_back
    return depth - 1
