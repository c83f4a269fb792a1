"""Exceptions of permanent failures, kept and raised again.

An exception is kept as its type's name, its arguments and its attributes, and rebuilt from these by
the built-in exception that it derives from: no constructor of the user's runs, nothing is unpickled
and nothing imported. Attributes that cannot be kept (a response object, say) are left out; the
traceback, the cause and the context never are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .errors import IdempotencyError
from .packing import unpack
from .usertypes import type_name

_LONGEST_NAME = 200


def write_error(error: BaseException, encode: Callable[[Any], Any]) -> dict[str, Any]:
    """An exception as a JSON value: at least its type. Raises nothing."""
    written: dict[str, Any] = {"type": type_name(type(error))}
    try:
        _, arguments, *state = _built_in(type(error)).__reduce__(error)
        args = encode(list(arguments))
    except Exception:
        return written
    written["args"] = args
    kept: dict[str, Any] = {}
    for name, value in (state[0] if state and state[0] else {}).items():
        try:
            kept[name] = encode(value)
        except Exception:
            continue
    if kept:
        written["state"] = kept
    return written


def read_error(
    value: Any, allowed: Iterable[type[BaseException]], decode: Callable[[Any], Any]
) -> BaseException | None:
    """The exception of `write_error`, if its type is an allowed one or derived from one."""
    try:
        written = unpack(value)
        cls = _class_named(written["type"], allowed)
        if cls is None:
            return None
        error = _rebuilt(cls, decode(written["args"]), written.get("state", {}), decode)
        str(error)  # One that cannot even tell what it is would hide itself in a traceback.
    except Exception:
        return None
    return error


def error_type(value: Any) -> str | None:
    """The type of a kept exception, as ``module:qualname``; None where it was not kept."""
    try:
        name = unpack(value)["type"]
    except (IdempotencyError, TypeError, KeyError):
        return None
    return name if isinstance(name, str) and len(name) <= _LONGEST_NAME else None


def _rebuilt(
    cls: type[BaseException], arguments: Any, state: Any, decode: Callable[[Any], Any]
) -> BaseException:
    base = _built_in(cls)
    error: BaseException = base.__new__(cls, *arguments)
    # The built-in's own attributes, such as UnicodeError.object, are set by its __init__ only.
    base.__init__(error, *arguments)
    for name, item in state.items():
        object.__setattr__(error, name, decode(item))
    return error


def _built_in(cls: type[BaseException]) -> Any:
    """The nearest built-in type among the bases."""
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _class_named(name: Any, roots: Iterable[type[BaseException]]) -> type[BaseException] | None:
    found: type[BaseException] | None = None
    pending, seen = list(roots), set[type]()
    while pending:
        cls = pending.pop(0)
        if cls in seen:
            continue
        seen.add(cls)
        if type_name(cls) == name:
            found = cls  # The last one: earlier ones of the name are left over from a reload.
        pending.extend(type.__subclasses__(cls))
    return found
