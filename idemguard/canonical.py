"""One text per value: what makes two keys, or two payloads, equal.

The rule:

- Null, ``true``, ``false``, strings, lists and maps are written as JSON without white space, the
  names of a map sorted by code point. Quoting keeps neighbours apart: ``["a|b","c"]`` is not
  ``["a","b|c"]``, and ``1``, ``"1"`` and ``true`` are three values.
- Strings count as they are: no Unicode normalisation, no trimming, no change of case.
- Numbers count by their exact decimal value, however spelled or typed: ``1``, ``1.0``, ``1e0`` and
  ``Decimal("1.00")`` are one, and so are ``0`` and ``-0.0``. A float stands for the shortest decimal
  that reads back as it, so ``0.1`` is ``Decimal("0.1")``. Integers of any size count in full. NaN
  and infinity are refused.
- A tuple counts as a list; an Enum member as its value; a date, time or UUID as its ISO text, with
  ``Z`` for UTC; a dataclass, a Pydantic model and an event source data class as the map that it
  stands for. Bytes are told apart from every string.
- Everything else is refused by name: sets have no order, and other objects no stable text. So are
  maps whose names are not strings, more than 200 levels and more than 100,000 digits.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, NoReturn

from .errors import InvalidKeyExpression

MAX_DEPTH = 200
MAX_DIGITS = 100_000

_JSON_TYPES = frozenset((dict, list, str, int, float, bool, type(None)))
_EXACT_TYPES = frozenset((str, int, bool, type(None)))

_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode

# Where a value stands, innermost step first; spelled out only when there is something to say.
_Where = tuple[Any, ...]


def canonical(value: Any) -> bytes:
    """`value` in the one form that equal values share; this module's docstring holds the rule.

    Raises:
        InvalidKeyExpression: `value` holds something that has no canonical form; the text names
            its type and its place, never the value.
    """
    # The C encoder is many times faster than a walk in Python and right for nearly every key; it
    # comes first because it stops at a cycle, which the check after it would not.
    try:
        text = _encode(value)
        if not _encodes_exactly(value):
            text = ""
    except (TypeError, ValueError, RecursionError):
        text = ""
    if not text:
        pieces: list[str] = []
        _write(value, pieces, (), 0)
        text = "".join(pieces)
    # Lone surrogates are valid in Python's and in JSON's strings, but not in strict UTF-8.
    return text.encode("utf-8", "surrogatepass")


def plain(value: Any) -> Any:
    """`value` as JSON-like data, one level deep, and itself where it is that already.

    Data classes of Powertools give their raw event, Pydantic models their JSON form by alias,
    dataclasses their fields; told by their attributes, so that neither library is imported.
    """
    kind = type(value)
    if kind in _JSON_TYPES:
        return value
    if isinstance(value, tuple):
        return list(value)
    if hasattr(kind, "raw_event"):
        return value.raw_event
    if hasattr(kind, "model_dump"):
        try:
            return value.model_dump(mode="json", by_alias=True)
        except ValueError:
            # Bytes that are not UTF-8 have no JSON form; they have a canonical one.
            return value.model_dump(mode="python", by_alias=True)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return dict(value)
    return value


def _encodes_exactly(value: Any) -> bool:
    """Whether the JSON encoder's text of this (finite) value is already the canonical one."""
    if type(value) in _EXACT_TYPES:
        return True
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for item in level:
            kind = type(item)
            if kind in _EXACT_TYPES:
                continue
            if kind is dict:
                if not all(type(name) is str for name in item):
                    return False
                inner.extend(item.values())
            elif kind is list or kind is tuple:
                inner.extend(item)
            elif kind is not float or item.is_integer():
                return False
        if not inner:
            return True
        level = inner
    return False


def _write(value: Any, out: list[str], where: _Where, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidKeyExpression(
            f"a key or fingerprint is nested more than {MAX_DEPTH} levels deep; select the part "
            "of it that identifies the work"
        )
    if isinstance(value, Enum):
        _write(value.value, out, where, depth + 1)
    elif value is None or isinstance(value, (bool, str)):
        out.append(_encode(value))
    elif isinstance(value, (int, float, Decimal)):
        out.append(_number(value, where))
    elif isinstance(value, (bytes, bytearray, memoryview)):
        out.append(f'b"{base64.b64encode(value).decode()}"')
    elif isinstance(value, (datetime, date, time)):
        text = value.isoformat()
        out.append(_encode(text[:-6] + "Z" if text.endswith("+00:00") else text))
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, out, (index, where), depth + 1)
        out.append("]")
    elif isinstance(value, dict):
        _write_map(value, out, where, depth)
    elif (data := plain(value)) is not value:
        _write(data, out, where, depth + 1)
    elif type(value).__module__ == "uuid" and type(value).__name__ == "UUID":
        out.append(_encode(str(value)))
    else:
        kind = type(value)
        ordered = not isinstance(value, (set, frozenset))
        cure = "select a part of it" if ordered else "sort it into a list"
        _refuse(f"a {kind.__module__}.{kind.__qualname__}", where, cure)


def _write_map(value: dict[Any, Any], out: list[str], where: _Where, depth: int) -> None:
    for name in value:
        if not isinstance(name, str):
            _refuse(f"a map with a name of type {type(name).__name__}", where, "use strings")
    separator = "{"
    for name in sorted(value):
        out.append(f"{separator}{_encode(name)}:")
        _write(value[name], out, (name, where), depth + 1)
        separator = ","
    out.append("}" if value else "{}")


def _number(value: int | float | Decimal, where: _Where) -> str:
    """The one spelling of a number: what the JSON encoder writes, wherever it writes it exactly."""
    # Before the conversion, whose time grows with the square of the length.
    if isinstance(value, int) and value.bit_length() > MAX_DIGITS * 3.33:
        _refuse("a number of more than 100,000 digits", where, "use a string")
    number = Decimal(float.__repr__(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        _refuse("a number that is NaN or infinite", where, "leave it out")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # It is a letter for NaN and infinity alone.
    text = "".join(map(str, digits))
    significant = text.rstrip("0")
    if not significant:
        return "0"
    exponent += len(text) - len(significant)
    minus = "-" if sign else ""
    if exponent < 0:
        short = repr(float(number))
        return short if Decimal(short) == number else f"{minus}{significant}e{exponent}"
    if len(significant) + exponent > MAX_DIGITS:
        _refuse("a number of more than 100,000 digits", where, "use a string")
    return minus + significant + "0" * exponent


def _refuse(what: str, where: _Where, cure: str) -> NoReturn:
    steps: list[str] = []
    while where:
        step, where = where
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    place = "$" + "".join(reversed(steps))
    raise InvalidKeyExpression(
        f"a key or fingerprint holds {what} at {place}, which has no canonical form; {cure}"
    )
