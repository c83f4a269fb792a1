"""Which types of the user's a function may return, as far as its annotation tells."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import abc
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NewType, TypeVar, get_args, get_origin, get_type_hints
from typing import is_typeddict as _is_typed_dict

from .errors import UnsupportedResultError
from .usertypes import is_model, is_user_type, type_name

_LAZY = (abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncGenerator)
_LONGEST_CHAIN = 100


def returned_types(function: Callable[..., Any]) -> dict[str, type]:
    """The user types in a function's return annotation, and in their fields, by `type_name`.

    A name in an annotation that cannot be resolved counts as nothing.
    """
    function = _innermost(function)
    if isinstance(function, type):
        return nested_types([function])
    finder = _Finder(_closure(function))
    finder.find(_return_annotation(function), _names(function))
    return finder.found


def nested_types(types: Iterable[type]) -> dict[str, type]:
    """The user types among these, and in their fields."""
    finder = _Finder({})
    for cls in types:
        finder.find(cls, {})
    return finder.found


def check_annotation(function: Callable[..., Any]) -> None:
    """Refuse a function that says that it returns a generator or another iterator.

    Raises:
        UnsupportedResultError: the work would be done after the claim has ended.
    """
    if not inspect.isroutine(function) or hasattr(function, "__wrapped__"):
        return  # The annotation is that of the wrapped function, and may not hold any more.
    annotation = _return_annotation(function)
    lazy = get_origin(annotation) or annotation
    if lazy in _LAZY:
        raise UnsupportedResultError(
            f"{function.__qualname__} returns a {lazy.__name__}, whose work would be done after the "
            "claim has ended: return a list instead",
            type_name=type_name(lazy),
            where="$",
        )


class _Finder:
    """Walks annotations; `scope` holds the local names of the functions around."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.found: dict[str, type] = {}
        self._scope = scope
        self._seen: dict[int, Any] = {}  # With the object, whose id is its own while it lives.

    def find(self, hint: Any, names: dict[str, Any]) -> None:
        if id(hint) in self._seen:
            return
        self._seen[id(hint)] = hint
        origin = get_origin(hint)
        if origin is Literal:
            for value in get_args(hint):
                if isinstance(value, Enum):
                    self.find(type(value), names)
        elif origin is Annotated:
            self.find(hint.__origin__, names)
        elif origin is not None:
            for part in (origin, *get_args(hint)):
                self.find(part, names)
        elif isinstance(hint, str):  # Python 3.10 leaves the text in list["Order"] as it is.
            self.find(_resolved(hint, names), names)
        elif isinstance(hint, TypeVar):
            for bound in (hint.__bound__, *hint.__constraints__):
                self.find(bound, names)
        elif isinstance(hint, NewType):
            self.find(hint.__supertype__, names)
        elif isinstance(hint, type):
            self._find_in_class(hint)
        elif type(hint).__name__ == "TypeAliasType":
            with suppress(NameError):
                self.find(hint.__value__, names)

    def _find_in_class(self, cls: type) -> None:
        if is_user_type(cls):
            self.found[type_name(cls)] = cls
        elif not _is_typed_dict(cls):
            return
        if issubclass(cls, Enum):
            return
        for base in cls.__mro__:
            module = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
            names = {**vars(base), **module, **self._scope}
            if base is cls and is_model(cls):
                for field in cls.model_fields.values():  # type: ignore[attr-defined]
                    self.find(field.annotation, names)
            for generic in vars(base).get("__orig_bases__", ()):
                for argument in get_args(generic):
                    self.find(argument, names)
            for annotation in _annotations(base).values():
                self.find(_resolved(annotation, names), names)


def _innermost(function: Any) -> Any:
    for _ in range(_LONGEST_CHAIN):
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not isinstance(function, type) and not hasattr(function, "__code__"):
            function = type(function).__call__
        else:
            break
    return function


def _return_annotation(function: Any) -> Any:
    return _resolved(_annotations(function).get("return"), _names(function))


def _names(function: Any) -> dict[str, Any]:
    return {**getattr(function, "__globals__", {}), **_closure(function)}


def _annotations(holder: Any) -> dict[str, Any]:
    """The holder's own annotations, unresolved where they are text or cannot be resolved."""
    try:
        if sys.version_info >= (3, 14):
            import annotationlib

            return annotationlib.get_annotations(holder, format=annotationlib.Format.FORWARDREF)
        return inspect.get_annotations(holder)
    except (TypeError, ValueError):
        return {}


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """One annotation by itself, so that a name that is missing in another does no harm."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, names, names, include_extras=True)["it"]
    except Exception:  # An annotation is code: it may raise anything.
        return None


def _closure(function: Any) -> dict[str, Any]:
    """The local names of the functions around, as far as this one uses them."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found: dict[str, Any] = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
    return found
