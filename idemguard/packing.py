"""What stands in the place of an encoded value that does not fit or is not there."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from .errors import ResultNotStoredError, UnreadableRecordError

#: Bytes that a compressed value may unpack to: a record from elsewhere may be a bomb.
MAX_UNPACKED = 8 * 1024 * 1024

_REASONS = {
    "too large": "the result was too large to be kept",
    "unsupported type": "the result holds a type that cannot be kept",
    "omitted": 'results are not kept (result="omit")',
}


def not_stored(reason: str) -> dict[str, str]:
    """The mark that says why a result was not kept; see `ResultNotStoredError.reason`."""
    return {"$absent": reason}


def compress(value: Any) -> Any:
    """An encoded value in fewer characters, as far as it lends itself to that.

    What could not be unpacked again, being too large, is returned as it is.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    if len(text) > MAX_UNPACKED:
        return value
    return {"$zlib": base64.b64encode(zlib.compress(text, 9)).decode("ascii")}


def unpack(value: Any) -> Any:
    """An encoded value as it was before `compress`.

    Raises:
        ResultNotStoredError: it is the mark of `not_stored`.
        UnreadableRecordError: it cannot be unpacked.
    """
    if type(value) is dict and len(value) == 1:
        if "$zlib" in value:
            return _inflate(value["$zlib"])
        if "$absent" in value:
            reason = value["$absent"]
            if type(reason) is not str or reason not in _REASONS:
                raise UnreadableRecordError("a broken record: it does not say why it has no result")
            raise ResultNotStoredError(
                f"the work is done, but its result cannot be replayed: {_REASONS[reason]}",
                reason=reason,
            )
    return value


def _inflate(payload: Any) -> Any:
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(base64.b64decode(payload, validate=True), MAX_UNPACKED)
        if inflater.eof and not inflater.unused_data:
            return json.loads(text)
    except (TypeError, ValueError, RecursionError, zlib.error):
        pass
    raise UnreadableRecordError("a broken record: its compressed value cannot be unpacked")
