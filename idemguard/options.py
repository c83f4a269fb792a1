"""Every option with its default, and every environment variable.

| variable | option | meaning |
|---|---|---|
| `IDEMGUARD_LEDGER` | `ledger` | a ledger URL, such as ``ssm:///idempotency`` or ``memory://`` |
| `IDEMGUARD_NAMESPACE` | `namespace` | before `AWS_LAMBDA_FUNCTION_NAME`, which Lambda sets |
| `IDEMGUARD_RETENTION` | `retention` | seconds |
| `IDEMGUARD_LEASE` | `lease` | seconds |
| `IDEMGUARD_LOCAL_CACHE` | `local_cache` | ``1`` or ``0`` |

The environment is read at the first delivery, never on import or at decoration. The sweeper's
Lambda handler, `idemguard.sweeper.handler`, reads `IDEMGUARD_LEDGER`, and from its event:

| field | default | meaning |
|---|---|---|
| `dry_run` | ``true`` | count only; ``false`` removes |
| `under` | everything | a namespace or a longer path |
| `rate` | ``1.5`` | writes a second |
| `resume` | from the beginning | an earlier report's `resume` |

With `POWERTOOLS_METRICS_NAMESPACE` set, it counts its reports on Powertools Metrics.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .clock import SYSTEM_CLOCK, Clock
from .errors import InvalidOption
from .ledger import Ledger
from .ledgers import check_url, open_ledger
from .outcome import Hook

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_LEDGER = "ssm:///idempotency"
DEFAULT_RETENTION = 7 * 24 * 3600.0

Seconds = float | int | timedelta


class OptionArgs(TypedDict, total=False):
    """The keyword arguments of `idempotent` and `Guard`; `Options` says what each one means."""

    argument: str | None
    operation: str | None
    namespace: str | None
    ledger: str | Ledger | None
    retention: Seconds | None
    lease: Seconds | None
    fingerprint: str | Callable[[Any], Any] | None
    on_in_flight: Literal["raise", "skip", "wait"]
    wait_timeout: Seconds | None
    on_missing_key: Literal["raise", "run"]
    on_ledger_error: Literal["raise", "run"]
    on_complete_error: Literal["return", "raise"]
    on_duplicate: Callable[..., Any] | None
    permanent: type[BaseException] | Sequence[type[BaseException]]
    result: Literal["store", "omit"]
    types: Sequence[type[Any]]
    local_cache: bool | None
    logger: Any
    tracer: Any
    metrics: Any
    hooks: Sequence[Hook]
    clock: Clock


_CHOICES = {
    "on_in_flight": ("raise", "skip", "wait"),
    "on_missing_key": ("raise", "run"),
    "on_ledger_error": ("raise", "run"),
    "on_complete_error": ("return", "raise"),
    "result": ("store", "omit"),
}

_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

_NAMESPACE = re.compile(r"[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+){0,2}")


@dataclass(frozen=True, slots=True)
class Options:
    """One configuration, checked when it is made.

    Attributes:
        argument: name of the parameter that holds the event or record; the first one by default.
        operation: name of the work, part of the key's identity; module and qualname by default. An
            explicit name survives a move or a rename.
        namespace: the application or function that the records belong to; by default
            `IDEMGUARD_NAMESPACE`, then the Lambda function's name, then ``default``.
        ledger: a ledger URL or object; by default `IDEMGUARD_LEDGER`, then ``ssm:///idempotency``.
        retention: seconds (or a timedelta) for which a completed record suppresses duplicates;
            7 days by default, past the retry windows of SQS (4 days by default), EventBridge and
            CloudWatch Logs (24 hours).
        lease: seconds for which a claim holds before it may be taken over; by default the time left
            in the Lambda context plus half a second, or 900 seconds without a context. A fixed
            value must be longer than the work can take: past it, the work may be run a second time.
        fingerprint: JMESPath expression (or callable) of the payload part that must not change
            under one key.
        on_in_flight: ``"raise"`` an `InFlightError`, ``"skip"`` with result None, or ``"wait"`` for
            the first delivery's result.
        wait_timeout: longest wait in seconds; the time left in the Lambda context bounds it too, and
            without either it is 30 seconds.
        on_missing_key: ``"raise"`` a `MissingKeyError`, or ``"run"`` unguarded with a warning.
        on_ledger_error: before the work: ``"raise"`` (closed) or ``"run"`` unguarded (open).
        on_complete_error: after the work: ``"return"`` the result with one loud log line, or
            ``"raise"``, which makes the event source deliver work again that is done.
        on_duplicate: called with the handler's arguments, it answers a duplicate whose result was
            not stored; without it such a duplicate gets `ResultNotStoredError`.
        permanent: `Exception` types whose failure is recorded, and raised again for duplicates; all
            others release the claim.
        result: ``"store"`` the result for duplicates, or ``"omit"`` it: they get None.
        types: dataclasses, enums and Pydantic models that results may hold, beside those of the
            return annotation.
        local_cache: answer duplicates in the same process from memory; on by default.
        logger, tracer, metrics: Powertools objects.
        hooks: observers of one's own.
        clock: for tests.
    """

    argument: str | None = None
    operation: str | None = None
    namespace: str | None = None
    ledger: str | Ledger | None = None
    retention: Seconds | None = None
    lease: Seconds | None = None
    fingerprint: str | Callable[[Any], Any] | None = None
    on_in_flight: Literal["raise", "skip", "wait"] = "raise"
    wait_timeout: Seconds | None = None
    on_missing_key: Literal["raise", "run"] = "raise"
    on_ledger_error: Literal["raise", "run"] = "raise"
    on_complete_error: Literal["return", "raise"] = "return"
    on_duplicate: Callable[..., Any] | None = None
    permanent: type[BaseException] | Sequence[type[BaseException]] = ()
    result: Literal["store", "omit"] = "store"
    types: Sequence[type[Any]] = ()
    local_cache: bool | None = None
    logger: Any = None
    tracer: Any = None
    metrics: Any = None
    hooks: Sequence[Hook] = ()
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidOption(
                    f"{name}: {getattr(self, name)!r} is not one of "
                    + ", ".join(repr(choice) for choice in choices)
                )
        for name in ("retention", "lease", "wait_timeout"):
            if getattr(self, name) is not None:
                seconds(name, getattr(self, name))
        if self.namespace is not None:
            _checked_namespace(self.namespace, "namespace")
        if isinstance(self.ledger, str):
            check_url(self.ledger)
        elif not isinstance(self.ledger, Ledger | None):
            raise InvalidOption(
                f"ledger: a {type(self.ledger).__name__} is none; pass a URL or a Ledger, such as "
                "SSMLedger(client)"
            )
        if self.on_duplicate is not None and not callable(self.on_duplicate):
            raise InvalidOption("on_duplicate: pass a function that takes the handler's arguments")
        if not isinstance(self.hooks, Sequence) or any(map(_is_no_hook, self.hooks)):
            raise InvalidOption("hooks: pass a list of objects with around() and observe()")
        if self.operation is not None and not self.operation.strip():
            raise InvalidOption("operation: give a name that is not empty, or leave it out")
        for error in self.permanent_types:
            if not (isinstance(error, type) and issubclass(error, BaseException)):
                raise InvalidOption(f"permanent: {error!r} is not an exception type")

    @property
    def permanent_types(self) -> tuple[type[BaseException], ...]:
        """The exception types of `permanent`, one or several."""
        return (self.permanent,) if isinstance(self.permanent, type) else tuple(self.permanent)

    def changed(self, **changes: Unpack[OptionArgs]) -> Options:
        """These options with some of them changed.

        Raises:
            InvalidOption: an option is unknown or has a value that it cannot have.
        """
        if unknown := sorted(set(changes) - _NAMES):
            raise InvalidOption(
                f"unknown option {', '.join(unknown)}; known are {', '.join(sorted(_NAMES))}"
            )
        return replace(self, **changes)

    def resolved_namespace(self) -> str:
        """The namespace in force, with the environment."""
        if self.namespace is not None:
            return self.namespace
        if given := os.environ.get("IDEMGUARD_NAMESPACE"):
            return _checked_namespace(given, "IDEMGUARD_NAMESPACE")
        return os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or "default"

    def resolved_retention(self) -> float:
        """Seconds of retention in force, with the environment."""
        given = _given("retention", self.retention, "IDEMGUARD_RETENTION")
        return DEFAULT_RETENTION if given is None else given

    def resolved_lease(self) -> float | None:
        """Seconds of a fixed lease, with the environment; None to go by the Lambda context."""
        return _given("lease", self.lease, "IDEMGUARD_LEASE")

    def resolved_wait(self) -> float | None:
        """Seconds of the longest wait, if one is given."""
        return None if self.wait_timeout is None else seconds("wait_timeout", self.wait_timeout)

    def resolved_cache(self) -> bool:
        """Whether the local cache is on, with the environment."""
        if self.local_cache is not None:
            return self.local_cache
        text = os.environ.get("IDEMGUARD_LOCAL_CACHE") or "1"
        if (known := _SWITCH.get(text.strip().lower())) is None:
            raise InvalidOption(f"IDEMGUARD_LOCAL_CACHE: {text!r:.20} is neither 1 nor 0")
        return known


_substitute: Ledger | None = None


def default_ledger(url: str | None = None) -> Ledger:
    """The ledger of `url`, or of the environment; one object per URL in a process."""
    if _substitute is not None:
        return _substitute
    return open_ledger(url or os.environ.get("IDEMGUARD_LEDGER") or DEFAULT_LEDGER)


def substitute() -> Ledger | None:
    """The ledger that stands in for all those named by URL or environment, if one does."""
    return _substitute


@contextmanager
def ledger_in_place(ledger: Ledger) -> Iterator[None]:
    """Let `ledger` stand for every ledger that is named by URL or environment; meant for tests."""
    global _substitute
    before, _substitute = _substitute, ledger
    try:
        yield
    finally:
        _substitute = before


_NAMES = frozenset(field.name for field in fields(Options))


def _is_no_hook(hook: object) -> bool:
    methods = (getattr(hook, name, None) for name in ("around", "observe"))
    return isinstance(hook, type) or not all(map(callable, methods))


def _given(name: str, value: Seconds | None, variable: str) -> float | None:
    if value is not None:
        return seconds(name, value)
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        return seconds(variable, float(text))
    except ValueError:
        raise InvalidOption(f"{variable}: {text!r} is not a number of seconds") from None


def seconds(name: str, value: Seconds) -> float:
    """The number of seconds that the option `name` was given.

    Raises:
        InvalidOption: it is none, or not between 0 and ten years.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidOption(f"{name}: give seconds or a timedelta, not {type(value).__name__}")
    if not 0 < number <= 10 * 366 * 24 * 3600:
        raise InvalidOption(f"{name}: {number:g} seconds is not between 0 and ten years")
    return float(number)


def _checked_namespace(text: str, name: str) -> str:
    dots = any(set(level) == {"."} for level in text.split("/"))
    if not _NAMESPACE.fullmatch(text) or dots or len(text) > 200:
        raise InvalidOption(
            f"{name}: {text!r:.60} cannot be part of a parameter name; use letters, digits and _ . - "
            "in at most three levels divided by /"
        )
    return text
