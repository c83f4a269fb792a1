"""JMESPath functions for key and fingerprint expressions.

Every built-in function of JMESPath works too. Null in gives null out, so that an absent part is a
missing key and not an error.

| function | gives |
|---|---|
| `powertools_json(text)` | the decoded JSON; what is decoded already passes through |
| `powertools_base64(text)` | the decoded text |
| `powertools_base64_gzip(text)` | the decoded and decompressed text, of at most 10 MB |
| `header(event or map, 'Name')` | the header, in any case of its name; null where it is empty |
| `http_body(event)` | the decoded body: base64 undone, JSON parsed, else the text as it is |
| `unwrap_sns(record or body)` | the message, whether SNS wrapped it or delivered it raw |
| `url_decode(text)` | the text, `+` as a space: for the object names in S3 notifications |

The first three have the names and results of Powertools' functions, so expressions carry over.
"""

from __future__ import annotations

import binascii
import json
import zlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NoReturn

import jmespath
from jmespath.functions import Functions as BuiltIn
from jmespath.functions import signature

#: Bytes that a compressed value may unpack to: CloudWatch Logs and Kinesis stay well below.
MAX_UNPACKED = 10 * 1024 * 1024


class FunctionError(ValueError):
    """A function was given what it cannot decode; the text says what, without the data."""


class Functions(BuiltIn):
    """JMESPath's own functions and those of this module."""

    @signature({"types": []})
    def _func_powertools_json(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return _from_json(value)
        except (ValueError, RecursionError):
            raise FunctionError("powertools_json() was given text that is not JSON") from None

    @signature({"types": []})
    def _func_powertools_base64(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return _text(_unbase64(value, "powertools_base64()"), "powertools_base64()")

    @signature({"types": []})
    def _func_powertools_base64_gzip(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        name = "powertools_base64_gzip()"
        return _text(_unpacked(_unbase64(value, name), name), name)

    @signature({"types": []}, {"types": ["string"]})
    def _func_header(self, value: Any, name: str) -> Any:
        if not isinstance(value, Mapping):
            return None
        maps = [value.get("headers", value), value.get("multiValueHeaders")]
        if isinstance(maps[0], str):  # A header of that name, in a map of headers.
            maps = [value]
        for headers in maps:
            found = _any_case(headers, name)
            if isinstance(found, list):
                found = found[0] if found else None
            # An empty header identifies nobody's request: it counts as absent.
            if found not in (None, ""):
                return found
        return None

    @signature({"types": []})
    def _func_http_body(self, event: Any) -> Any:
        if not isinstance(event, Mapping):
            return None
        body = event.get("body")
        if isinstance(body, str) and event.get("isBase64Encoded") is True:
            try:
                body = binascii.a2b_base64(body).decode()
            except ValueError:
                return body  # Binary content is compared as the text it came as.
        return _json_or_text(body)

    @signature({"types": []})
    def _func_unwrap_sns(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            value = value.get("Sns", value.get("body", value))
        value = _json_or_text(value)
        if isinstance(value, Mapping) and "TopicArn" in value and "Message" in value:
            value = value["Message"]
        return _json_or_text(value)

    @signature({"types": []})
    def _func_url_decode(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        from urllib.parse import unquote_plus  # Slow to import, and seldom needed.

        return unquote_plus(value)

    # JMESPath does not know Decimal: it would cut one down to an integer, and quote one.

    @signature({"types": []})
    def _func_to_number(self, value: Any) -> Any:
        return value if isinstance(value, Decimal) else _built_in("to_number")(self, value)

    @signature({"types": []})
    def _func_to_string(self, value: Any) -> Any:
        return str(value) if isinstance(value, Decimal) else _built_in("to_string")(self, value)


def _built_in(name: str) -> Any:
    return BuiltIn.FUNCTION_TABLE[name]["function"]


OPTIONS = jmespath.Options(custom_functions=Functions())


def _any_case(headers: Any, name: str) -> Any:
    if not isinstance(headers, Mapping):
        return None
    if name in headers:
        return headers[name]
    wanted = name.lower()
    for candidate, value in headers.items():
        if isinstance(candidate, str) and candidate.lower() == wanted:
            return value
    return None


def _json_or_text(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return _from_json(text)
    except (ValueError, RecursionError):
        return text


def _from_json(text: str) -> Any:
    return json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_no_number)


def _float(text: str) -> float | Decimal:
    """A float where it holds the number in full, for JMESPath's functions know only those."""
    number, exact = float(text), Decimal(text)
    return number if Decimal(repr(number)) == exact else exact


def _int(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:  # Python refuses to parse more than 4,300 digits.
        return Decimal(text)


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _unbase64(value: str, function: str) -> bytes:
    try:
        return binascii.a2b_base64(value)
    except ValueError:
        raise FunctionError(f"{function} was given text that is not base64") from None


def _text(data: bytes, function: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FunctionError(f"{function} was given data that is not UTF-8 text") from None


def _unpacked(data: bytes, function: str) -> bytes:
    out = bytearray()
    while data:  # A gzip file may be several, one after another.
        unpacker = zlib.decompressobj(wbits=31)
        try:
            out += unpacker.decompress(data, MAX_UNPACKED + 1 - len(out))
        except zlib.error:
            raise FunctionError(f"{function} was given data that is not gzip") from None
        if len(out) > MAX_UNPACKED:
            raise FunctionError(f"{function} was given data that unpacks to more than 10 MB")
        if not unpacker.eof:
            raise FunctionError(f"{function} was given gzip data that is cut off")
        data = unpacker.unused_data.lstrip(b"\0")
    return bytes(out)
