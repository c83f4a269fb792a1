"""Users' own types: what one holds, and building it again from that.

Built as `copy` and `pickle` do it: neither a constructor nor a validator runs, so that what was
kept is what is given back, whatever they would make of it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from enum import Enum, Flag
from typing import Any

from .refusal import Refused

# A subclass of one of these holds more than its fields say.
_HAS_CONTENT = (
    str, int, float, bytes, bytearray, list, dict, tuple, set, frozenset, BaseException,
)  # fmt: skip


class TypeChanged(Exception):
    """The type of today cannot hold what was kept."""


def type_name(cls: type) -> str:
    """``module:qualname``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_user_type(cls: type) -> bool:
    """Whether values of this type can be kept: Enum, dataclass, named tuple or Pydantic model."""
    if issubclass(cls, Enum):
        return True
    if is_model(cls) or is_named_tuple(cls):
        return True
    return dataclasses.is_dataclass(cls) and not issubclass(cls, _HAS_CONTENT)


def is_model(cls: type) -> bool:
    """Whether it is a Pydantic model (version 2), told without importing Pydantic."""
    return hasattr(cls, "model_construct") and hasattr(cls, "model_fields")


def is_named_tuple(cls: type) -> bool:
    """Whether it is a `collections.namedtuple` or `typing.NamedTuple`, or derived from one."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


def field_names(cls: Any) -> tuple[str, ...]:
    """The names of the fields, in their order."""
    if is_model(cls):
        return tuple(cls.model_fields)
    if is_named_tuple(cls):
        return tuple(cls._fields)
    return tuple(field.name for field in dataclasses.fields(cls))


def member_of(value: Enum) -> str | int:
    """What names an Enum member: its name, or the number of a combination of flags."""
    cls = type(value)
    if cls.__members__.get(value.name) is value:  # A combination of flags has no name of its own.
        return value.name
    if isinstance(value, Flag):
        return int(value.value)
    raise Refused(cls, "is a member without a name")


def find_member(cls: type[Enum], member: Any) -> Enum:
    """The member that `member_of` named."""
    try:
        if isinstance(member, str):
            return cls.__members__[member]
        if type(member) is int and issubclass(cls, Flag):
            found = cls(member)
            if type(found) is cls:  # A flag with EJECT gives an int.
                return found
    except (KeyError, ValueError):
        pass
    raise TypeChanged("has no such member any more")


def state_of(value: Any) -> list[Any]:
    """What a dataclass, named tuple or model holds: its fields, then what else there is."""
    cls = type(value)
    names = field_names(cls)
    if is_model(cls):
        held = value.__dict__
        return [_present(cls, names, held), *_model_extras(value, names)]
    try:
        fields = {name: getattr(value, name) for name in names}
    except AttributeError:
        raise Refused(cls, "has a field without a value; give each field one") from None
    others = {
        name: item
        for name, item in getattr(value, "__dict__", {}).items()
        if name not in fields and not _is_cached(cls, name)
    }
    return [fields, others or None]


def build(cls: type, fields: Any, *more: Any) -> Any:
    """The value that held this state; a `TypeChanged` when the type has other fields now."""
    names = field_names(cls)
    if not isinstance(fields, dict):
        raise ValueError("fields are a mapping")
    if set(fields) != set(names):
        raise TypeChanged("has other fields now")
    if is_model(cls):
        return _build_model(cls, fields, *more)
    try:
        if is_named_tuple(cls):
            value: Any = tuple.__new__(cls, [fields[name] for name in names])
        else:
            value = object.__new__(cls)
            _set_all(value, fields)
        (others,) = more or (None,)
        _set_all(value, others or {})
    except (TypeError, AttributeError):
        raise TypeChanged("is built in another way now") from None
    return value


def _set_all(value: Any, attributes: Mapping[str, Any]) -> None:
    for name, item in attributes.items():
        object.__setattr__(value, name, item)  # A frozen dataclass refuses setattr.


def _present(cls: type, names: tuple[str, ...], held: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {name: held[name] for name in names}
    except KeyError:
        raise Refused(cls, "has a field without a value; give each field one") from None


def _is_cached(cls: type, name: str) -> bool:
    return isinstance(getattr(cls, name, None), functools.cached_property)


def _model_extras(value: Any, names: tuple[str, ...]) -> list[Any]:
    """Extra fields, private attributes, and the names set unless that is every one."""
    extra, private = value.__pydantic_extra__, value.__pydantic_private__
    given = value.__pydantic_fields_set__
    return [extra, private, None if given == {*names, *(extra or ())} else sorted(given)]


def _build_model(
    cls: Any, fields: dict[str, Any], extra: Any = None, private: Any = None, given: Any = None
) -> Any:
    # Not model_construct: it takes a value under one field's alias for that field, even where it
    # stands under another field's name.
    value: Any = object.__new__(cls)
    if not isinstance(extra, dict | None) or not isinstance(private, dict | None):
        raise ValueError("a model's extra and private attributes are mappings")
    if (private is None) == bool(cls.__private_attributes__):
        raise TypeChanged("has other private attributes now")
    state = {
        "__dict__": fields,
        "__pydantic_extra__": extra,
        "__pydantic_private__": private,
        "__pydantic_fields_set__": {*fields, *(extra or ())} if given is None else set(given),
    }
    _set_all(value, state)
    return value
