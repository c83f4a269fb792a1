"""Results of the user's work to JSON values and back, equal in value and in type.

What JSON knows stands for itself. Everything else is an object with one member, named by a tag:

    {"$decimal": "1.10"}                    a single value; see `scalars` for all of them
    {"$tuple": [1, 2]}                      $set, $frozenset, $deque ([items, maxlen])
    {"$dict": [[1, "a"], [2, "b"]]}         keys that are no text, or a lone key that begins with $;
                                            $ordereddict, $counter, $defaultdict ([factory, pairs])
    {"$enum": ["module:Colour", "RED"]}     a member by name, a combination of flags by number
    {"$object": ["module:Order", {...}]}    dataclass, named tuple or model: its fields, then, where
                                            there is any, what else it holds (see `usertypes`)
    {"$zlib": "eJyrVg..."}                  the whole value, compressed; base64
    {"$absent": "too large"}                in the place of a whole value: why it is not there

A record may have been written by anybody: no type is ever built but those that the function's own
annotation and options name.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cached_property
from math import isfinite
from typing import Any

from .annotations import check_annotation, nested_types, returned_types
from .errors import ResultNotStoredError, UnreadableRecordError, UnsupportedResultError
from .failures import error_type, read_error, write_error
from .packing import compress, not_stored, unpack
from .refusal import OMIT, Refused
from .scalars import SCALAR_TAGS, read_scalar, write_scalar
from .usertypes import (
    TypeChanged,
    build,
    find_member,
    is_user_type,
    member_of,
    state_of,
    type_name,
)

__all__ = ["Codec", "check_annotation", "compress", "error_type", "is_lazy", "not_stored"]

#: Levels of lists, dicts and objects in each other: json has a limit, and a cycle has no end.
MAX_DEPTH = 64

_PLAIN = frozenset({str, bool, type(None)})
# 640 digits is the least that Python may be told to refuse in a decimal number.
_WIDEST = 10**600

_LISTS: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}
_PAIRS: dict[type, str] = {OrderedDict: "ordereddict", Counter: "counter"}
_COLLECTIONS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "ordereddict": OrderedDict,
    "counter": lambda pairs: Counter(dict(pairs)),
}
_FACTORIES: dict[str, Callable[[], Any]] = {
    factory.__name__: factory for factory in (list, dict, set, int, float, str, bool, tuple)
}


def is_lazy(value: Any) -> bool:
    """Whether a value is not done yet: a generator, iterator, coroutine, future or open file."""
    cls = type(value)
    return any(hasattr(cls, name) for name in ("__next__", "__anext__", "__await__"))


class Codec:
    """Encodes and decodes what one function returns.

    Args:
        annotations_of: the function; what its return annotation names may be kept. Looked at only
            when the first value that is not plain comes along.
        types: more types that may be kept, with what their fields name.
        errors: exception types that may be rebuilt, and those derived from them.
    """

    def __init__(
        self,
        annotations_of: Callable[..., Any] | None = None,
        types: Sequence[type] = (),
        errors: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._functions: tuple[Callable[..., Any], ...] = (
            (annotations_of,) if annotations_of is not None else ()
        )
        self._types = tuple(types)
        self._errors = errors

    def extended(self, function: Callable[..., Any]) -> Codec:
        """A codec that may keep what another function's return annotation names, too."""
        codec = Codec(types=self._types, errors=self._errors)
        codec._functions = (*self._functions, function)
        return codec

    def encode(self, value: Any) -> Any:
        """A value as JSON; holds nothing of the value that may change later.

        Raises:
            UnsupportedResultError: it holds a value that cannot be kept; says which and where.
        """
        try:
            return self._encode(value, 0)
        except Refused as refused:
            cls, why, where = refused.cls, refused.why, refused.where
        except RecursionError:
            cls, why, where = type(value), f"is nested too deep; flatten it or {OMIT}", "$"
        except Exception:  # Reading an attribute may run the user's code.
            cls, why, where = type(value), f"could not be read; {OMIT}", "$"
        raise UnsupportedResultError(
            f"the result cannot be kept: {type_name(cls)} at {where} {why}",
            type_name=type_name(cls),
            where=where,
        )

    def decode(self, value: Any) -> Any:
        """The value that was encoded; a new one at each call.

        Raises:
            ResultNotStoredError: it was not kept, or a type is gone, has changed or is not allowed.
            UnreadableRecordError: nothing that `encode` or `compress` writes.
        """
        try:
            return self._decode(unpack(value))
        except (ResultNotStoredError, UnreadableRecordError):
            raise
        except Exception:  # Readers of single values raise what they like, and so may user types.
            pass  # Their errors quote the value, so that none must be behind the one raised.
        raise UnreadableRecordError(
            "a broken record: its result is none that this version of idemguard writes"
        )

    def encode_error(self, error: BaseException) -> Any:
        """An exception as JSON: at least its type. Raises nothing."""
        return write_error(error, self.encode)

    def decode_error(self, value: Any) -> BaseException | None:
        """The exception, or None where it was not kept or cannot be rebuilt. Raises nothing."""
        return read_error(value, self._errors, self._decode)

    def _encode(self, value: Any, depth: int) -> Any:
        cls = type(value)
        if cls in _PLAIN:
            return value
        if cls is int and -_WIDEST < value < _WIDEST:
            return value
        if cls is float and isfinite(value):
            return value
        if depth > MAX_DEPTH:
            raise Refused(
                cls,
                f"is nested deeper than {MAX_DEPTH} levels, or holds itself; flatten it or {OMIT}",
            )
        if cls is dict:
            return self._encode_dict(value, depth)
        if cls is list:
            return self._encode_items(value, depth)
        if cls in _LISTS:
            return {f"${_LISTS[cls]}": self._encode_items(value, depth)}
        if cls in _PAIRS:
            return {f"${_PAIRS[cls]}": self._encode_pairs(value, depth)}
        if (written := write_scalar(value)) is not None:
            tag, payload = written
            return {f"${tag}": payload}
        if cls is deque:
            return {"$deque": [self._encode_items(value, depth), value.maxlen]}
        if cls is defaultdict:
            return {"$defaultdict": [_factory_name(value), self._encode_pairs(value, depth)]}
        name = type_name(cls)
        if self._class_named(name) is cls:
            return self._encode_object(name, value, depth)
        raise Refused.not_allowed(cls) if is_user_type(cls) else Refused.unknown(cls)

    def _encode_dict(self, value: dict[Any, Any], depth: int) -> Any:
        out: dict[str, Any] = {}
        key: Any = None
        try:
            for key, item in value.items():
                if type(key) is not str:
                    break
                out[key] = item if type(item) in _PLAIN else self._encode(item, depth + 1)
        except Refused as refused:
            refused.under_key(key)
            raise
        if type(key) is not str or (len(out) == 1 and key.startswith("$")):
            return {"$dict": self._encode_pairs(value, depth)} if value else out
        return out

    def _encode_items(self, items: Iterable[Any], depth: int) -> list[Any]:
        out: list[Any] = []
        try:
            for item in items:
                out.append(item if type(item) in _PLAIN else self._encode(item, depth + 1))
        except Refused as refused:
            refused.under_index(len(out))
            raise
        return out

    def _encode_pairs(self, mapping: dict[Any, Any], depth: int) -> list[list[Any]]:
        out: list[list[Any]] = []
        key: Any = None
        try:
            for key, item in mapping.items():
                out.append([self._encode(key, depth + 1), self._encode(item, depth + 1)])
        except Refused as refused:
            refused.under_key(key)
            raise
        return out

    def _encode_object(self, name: str, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            return {"$enum": [name, member_of(value)]}
        state = state_of(value)
        while len(state) > 1 and state[-1] is None:
            state.pop()
        written: list[Any] = [name]
        for part in state:
            written.append(self._encode(part, depth))
        return {"$object": written}

    def _decode(self, wire: Any) -> Any:
        cls = type(wire)
        if cls is dict:
            if len(wire) == 1:
                [tag] = wire
                if tag.startswith("$"):
                    return self._decode_tagged(tag[1:], wire[tag])
            return {
                key: item if type(item) in _PLAIN else self._decode(item)
                for key, item in wire.items()
            }
        if cls is list:
            return [item if type(item) in _PLAIN else self._decode(item) for item in wire]
        return wire

    def _decode_tagged(self, tag: str, payload: Any) -> Any:
        if tag in SCALAR_TAGS:
            return read_scalar(tag, payload)
        if tag == "enum":
            name, member = payload
            return self._built(name, find_member, member)
        if tag == "object":
            name, *state = payload
            return self._built(name, build, *map(self._decode, state))
        if tag == "deque":
            items, maxlen = payload
            return deque(self._decode_list(items), maxlen)
        if tag == "defaultdict":
            factory, pairs = payload
            return defaultdict(
                _FACTORIES[factory] if factory is not None else None, self._decode_list(pairs)
            )
        return _COLLECTIONS[tag](self._decode_list(payload))

    def _decode_list(self, payload: Any) -> list[Any]:
        if type(payload) is not list:
            raise ValueError("a collection is written as a list")
        return [self._decode(item) for item in payload]

    def _built(self, name: Any, how: Callable[..., Any], *parts: Any) -> Any:
        if not isinstance(name, str):
            raise ValueError("a type is written as its name")
        cls = self._class_named(name)
        if cls is None:
            raise ResultNotStoredError(
                "the kept result holds a type that is not among those that the return annotation "
                "and types=[...] name now, or has been moved or renamed",
                reason="type changed",
            )
        try:
            return how(cls, *parts)
        except TypeChanged as change:
            raise ResultNotStoredError(
                f"the kept result holds a {type_name(cls)}, which {change}", reason="type changed"
            ) from None

    def _class_named(self, name: str) -> type | None:
        if name == "http:HTTPStatus":  # What every HTTP handler may return, annotated or not.
            from http import HTTPStatus

            return HTTPStatus
        return self._allowed.get(name)

    @cached_property
    def _allowed(self) -> dict[str, type]:
        allowed = nested_types(self._types)
        for function in self._functions:
            allowed |= returned_types(function)
        return allowed


def _factory_name(value: defaultdict[Any, Any]) -> str | None:
    factory = value.default_factory
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise Refused(
            defaultdict, f"has a factory that is not a built-in type; return a dict or {OMIT}"
        )
    return str(name)
