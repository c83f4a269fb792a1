"""Single values that JSON does not know: each has a tag, a writer and a reader.

Only exact types are written: of a subclass, the type would be lost.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import UUID

from .refusal import Refused


def write_scalar(value: Any) -> tuple[str, Any] | None:
    """Tag and payload of a single value, or None when it is not one."""
    known = _WRITERS.get(type(value))
    return (known[0], known[1](value)) if known else None


def read_scalar(tag: str, payload: Any) -> Any:
    """The value of a tag in `SCALAR_TAGS`; raises whatever the payload makes it raise."""
    return _READERS[tag](payload)


def _write_decimal(value: Decimal) -> str:
    return str(value)


def _read_decimal(text: str) -> Decimal:
    value = Decimal(text)
    # Where the context does not trap it, nonsense is read as NaN.
    if str(value) != text:
        raise ValueError("not a decimal")
    return value


def _write_moment(value: datetime | time) -> Any:
    zone = value.tzinfo
    if value.fold == 0 and (zone is None or _is_iso(zone)):
        return value.isoformat()
    if isinstance(value, datetime) and zone is not None and _dateutil_name(zone) == "tzlocal":
        # This machine's zone may not be the reader's: keep the moment.
        return [value.astimezone(timezone.utc).isoformat(), _write_zone(zone), 0]
    return [value.replace(tzinfo=None, fold=0).isoformat(), _write_zone(zone), value.fold]


def _read_datetime(payload: Any) -> datetime:
    if isinstance(payload, str):
        return datetime.fromisoformat(payload)
    text, zone, fold = payload
    value = datetime.fromisoformat(text)
    if value.tzinfo is not None:
        return value.astimezone(_read_zone(zone))
    return value.replace(tzinfo=_read_zone(zone), fold=fold)


def _read_time(payload: Any) -> time:
    if isinstance(payload, str):
        return time.fromisoformat(payload)
    text, zone, fold = payload
    return time.fromisoformat(text).replace(tzinfo=_read_zone(zone), fold=fold)


def _is_iso(zone: tzinfo) -> bool:
    """Whether ISO 8601 text holds all of it; Python misreads offsets with parts of a second."""
    if type(zone) is not timezone or not _is_unnamed(zone):
        return False
    return zone.utcoffset(None).microseconds == 0


def _is_unnamed(zone: timezone) -> bool:
    return zone.tzname(None) == timezone(zone.utcoffset(None)).tzname(None)


def _dateutil_name(zone: tzinfo) -> str | None:
    """Which of dateutil's zones this is: botocore's timestamps carry them."""
    cls = type(zone)
    if cls.__module__ == "dateutil.tz.tz" and cls.__name__ in ("tzutc", "tzlocal"):
        return cls.__name__
    return None


def _write_zone(zone: tzinfo | None) -> Any:
    from zoneinfo import ZoneInfo

    if zone is None:
        return None
    if type(zone) is timezone:
        offset = _write_timedelta(zone.utcoffset(None))
        return [offset] if _is_unnamed(zone) else [offset, zone.tzname(None)]
    if type(zone) is ZoneInfo and zone.key:
        return zone.key
    if name := _dateutil_name(zone):
        return [name]
    raise Refused(type(zone), "is a time zone that has no name to be found by; use zoneinfo")


def _read_zone(payload: Any) -> tzinfo | None:
    if payload is None:
        return None
    if isinstance(payload, str):
        from zoneinfo import ZoneInfo

        return ZoneInfo(payload)
    if payload in (["tzutc"], ["tzlocal"]):
        found: tzinfo = getattr(import_module("dateutil.tz"), payload[0])()
        return found
    offset, *name = payload
    return timezone(_read_timedelta(offset), *name)


def _write_timedelta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _read_timedelta(payload: list[int]) -> timedelta:
    days, seconds, microseconds = payload
    return timedelta(days, seconds, microseconds)


def _write_bytes(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _read_int(text: str) -> int:
    return int(text, 16)


def _read_float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("JSON writes all other numbers itself")
    return float(text)


_WRITERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    # Python refuses to write or read long decimal numbers, but not hexadecimal ones.
    int: ("int", hex),
    float: ("float", repr),
    Decimal: ("decimal", _write_decimal),
    datetime: ("datetime", _write_moment),
    date: ("date", date.isoformat),
    time: ("time", _write_moment),
    timedelta: ("timedelta", _write_timedelta),
    UUID: ("uuid", str),
    bytes: ("bytes", _write_bytes),
    bytearray: ("bytearray", _write_bytes),
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _read_int,
    "float": _read_float,
    "decimal": _read_decimal,
    "datetime": _read_datetime,
    "date": date.fromisoformat,
    "time": _read_time,
    "timedelta": _read_timedelta,
    "uuid": UUID,
    "bytes": _read_bytes,
    "bytearray": lambda text: bytearray(_read_bytes(text)),
}

SCALAR_TAGS = frozenset(_READERS)
