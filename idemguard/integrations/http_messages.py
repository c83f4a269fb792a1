"""What idempotency reads in a request and writes in a reply, over every source of HTTP requests.

REST API and load balancer (payload 1.0), HTTP API and function URL (payload 2.0). Where a source
knows several values of a header, they all count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil
from typing import Any

from ..keys import Selector

#: A reply as Lambda gives it to API Gateway, a load balancer or a function URL.
Reply = dict[str, Any]

REPLAYED = "Idempotency-Replayed"
LONGEST_KEY = 255

_METHOD = Selector("requestContext.http.method || httpMethod")
_PATH = Selector("rawPath || path")
_HEADERS = Selector("headers")
_MULTI_VALUE = Selector("multiValueHeaders")
_BALANCER = Selector("requestContext.elb")
_VERSION_2 = Selector("requestContext.http")

# https://www.rfc-editor.org/rfc/rfc8941#section-3.3.3, with its parameters, which say nothing here.
_QUOTED = re.compile(r'"((?:[ !\x23-\x5b\x5d-\x7e]|\\["\\])*)"(?: *;[ -~]*)?')
# Without a comma, which would join two header lines, and without what begins a string or parameter.
_BARE = re.compile(r"[!#-+\x2d-:<-~]+")


class MalformedKey(ValueError):
    """The header is there, and is no key; the text says why, without its value."""


def method_of(event: Any) -> str:
    """The request's method, in capitals; empty where the event is no HTTP request."""
    return str(_METHOD.select(event) or "").upper()


def path_of(event: Any) -> str:
    """The request's path, as the client sent it."""
    return str(_PATH.select(event) or "")


def idempotency_key(event: Any, name: str) -> str | None:
    """The key in the header `name`; None where there is no such header.

    The draft asks for a string of RFC 8941, in quotes. Many clients send a bare token: it is taken
    as well, and is the same key as the quoted one.

    Raises:
        MalformedKey: it is neither, is empty, too long, or sent twice.
    """
    values = _values(_MULTI_VALUE.select(event), name) or _values(_HEADERS.select(event), name)
    if not values:
        return None
    if len(values) > 1:
        raise MalformedKey("it was sent more than once")
    text = values[0].strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    if quoted is None and text and not _BARE.fullmatch(text):
        raise MalformedKey("it is neither a quoted string of printable ASCII nor a bare token")
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    if not key.strip():
        raise MalformedKey("it is empty")
    if len(key) > LONGEST_KEY:
        raise MalformedKey(f"it is longer than {LONGEST_KEY} characters")
    return key


def _values(headers: Any, name: str) -> list[str]:
    if not isinstance(headers, Mapping):
        return []
    found: list[str] = []
    for key, value in headers.items():
        if str(key).lower() == name.lower() and value is not None:
            found += (
                [str(one) for one in value] if isinstance(value, (list, tuple)) else [str(value)]
            )
    return found


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal in the words of RFC 9457, ``application/problem+json``.

    Attributes:
        status: the HTTP status.
        title: what kind of problem it is.
        detail: what the client can do.
        retry_after: seconds after which it is worth another try, if known.
    """

    status: int
    title: str
    detail: str
    retry_after: float | None = None

    def reply(self, documentation: str | None) -> Reply:
        """The reply of payload 1.0 with single headers; `documentation` is the problem's type."""
        headers = {"Content-Type": "application/problem+json"}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, ceil(self.retry_after)))
        body = {
            "type": documentation or "about:blank",
            # The title that the type "about:blank" asks for is the status's own.
            "title": self.title if documentation else HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return {
            "statusCode": self.status,
            "headers": headers,
            "body": json.dumps(body),
            "isBase64Encoded": False,
        }


def status_of(reply: Any) -> int:
    """The status of a reply; 200 where it does not say, as payload 2.0 has it."""
    status = reply.get("statusCode") if isinstance(reply, Mapping) else None
    try:
        return int(status) if status is not None else 200
    except (TypeError, ValueError):
        return 200


def marked(reply: Any, event: Any) -> Any:
    """A stored reply, marked as replayed; what is no reply of its source's kind stays as it is."""
    if not isinstance(reply, Mapping) or "statusCode" not in reply:
        if not _VERSION_2.select(event):
            return reply
        # https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
        # tells what a reply without a status stands for.
        reply = {
            "statusCode": 200,
            "headers": {"Content-Type": "application/json"},
            "body": reply if isinstance(reply, str) else json.dumps(reply),
            "isBase64Encoded": False,
        }
    return {**reply, "headers": {**(reply.get("headers") or {}), REPLAYED: "true"}}


def shaped(reply: Any, event: Any) -> Any:
    """A reply whose single headers are moved to where the request's source reads them.

    A load balancer that was set up for multi-value headers reads `multiValueHeaders` alone.
    """
    many_valued = _BALANCER.select(event) and _MULTI_VALUE.select(event) is not None
    if not many_valued or not isinstance(reply, Mapping):
        return reply
    rest = dict(reply)
    headers = {name: [value] for name, value in (rest.pop("headers", None) or {}).items()}
    return {**rest, "multiValueHeaders": {**headers, **(rest.get("multiValueHeaders") or {})}}
