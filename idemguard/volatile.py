"""Warns of keys over fields that change from one delivery of the same work to the next.

Such a key never meets its own record again, so nothing is protected, and nothing fails either.
Only what the expression selects counts: conditions of filters and comparisons do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .expression import Node
from .keys import Selector

# A field's way through the event: names only. "()" stands for decoding, as in powertools_json(body).
_Path = tuple[str, ...]
_DECODED = "()"


class VolatileKeyWarning(UserWarning):
    """A key expression selects a field that changes from delivery to delivery."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One field that does not belong into a key.

    Attributes:
        field: its path in the expression's terms, or `@` for the whole event.
        why: what changes it.
        better: what to use instead.
    """

    field: str
    why: str
    better: str

    def __str__(self) -> str:
        return f"{self.field} {self.why}; better: {self.better}"


_SQS = "messageId, or an id from powertools_json(body)"
_SNS = "Sns.MessageId, or an id from powertools_json(Sns.Message)"
_HTTP = "caller, method, path and header, as in idemguard.sources.APIGW_REST or APIGW_HTTP"
_MQ = "messageID, or an id from powertools_json(powertools_base64(data))"
_STEP = "[execution, state, map_index] (idemguard.sources.STEP_FUNCTIONS_MAP)"
_S3 = "[bucket name, object key, sequencer] (idemguard.sources.S3_OBJECT)"

_NEW_HANDLE = "is new with every receive"
_COUNTS = "counts the attempts"
_PER_REQUEST = "is new with every request, a client's retry too"
_DELIVERY_TIME = "is a time of delivery"
_SENT_TIME = "is new when a producer sends the same again"

# Names that AWS gives to one thing only; they count wherever they stand outside of a payload.
_NAMES: dict[str, tuple[str, str]] = {
    "receiptHandle": (_NEW_HANDLE, _SQS),
    "ApproximateReceiveCount": (_COUNTS, _SQS),
    "ApproximateFirstReceiveTimestamp": (_DELIVERY_TIME, _SQS),
    "SentTimestamp": (_SENT_TIME, _SQS),
    "approximateArrivalTimestamp": (_SENT_TIME, "[eventSourceARN, eventID]"),
    "ApproximateCreationDateTime": ("is rounded and no identity", "eventID"),
    "brokerInTime": (_SENT_TIME, _MQ),
    "brokerOutTime": (_DELIVERY_TIME, _MQ),
    "redelivered": ("changes with the second delivery", _MQ),
    "received_at": (_DELIVERY_TIME, "what the device numbers, such as [device_id, msg_seq]"),
    "state_entered": (_DELIVERY_TIME, _STEP),
    "approximateInvokeCount": (_COUNTS, "requestContext.requestId"),
    "eventTime": ("is a time, not an identity", _S3),
    "sourceIPAddress": ("follows the network", _S3),
    "responseElements": ("holds the ids of one request", _S3),
}

# Attempt counters mean the same inside of a payload.
_COUNTERS = frozenset(("retry_count", "retryCount"))

# Below these the names are the user's own.
_PAYLOADS = frozenset((_DECODED, "detail", "requestPayload"))

# Whole paths, from the event or from a record of a batch.
_PATHS: dict[_Path, tuple[str, str]] = {
    ("Sns", "Timestamp"): (_SENT_TIME, _SNS),
    ("Sns", "Signature"): (_SENT_TIME, _SNS),
    ("body", _DECODED, "Timestamp"): (_SENT_TIME, "powertools_json(body).MessageId"),
    ("body", _DECODED, "Signature"): (_SENT_TIME, "powertools_json(body).MessageId"),
    ("request", "userAttributes"): ("follows the user's profile", "[userPoolId, userName]"),
    ("request", "clientMetadata"): ("is what one call brought", "[userPoolId, userName]"),
    **{
        ("requestContext", *name.split(".")): (why, _HTTP)
        for why, names in (
            (_PER_REQUEST, "extendedRequestId requestTime requestTimeEpoch time timeEpoch"),
            ("follows the network", "identity.sourceIp http.sourceIp"),
            ("follows the client's version", "identity.userAgent http.userAgent"),
        )
        for name in names.split()
    },
    **{
        ("requestContext", "authorizer", *claims, claim): ("is new with every token", _HTTP)
        for claims in (("claims",), ("jwt", "claims"))
        for claim in ("auth_time", "exp", "iat", "jti", "nbf")
    },
    **{
        ("headers", name): (_PER_REQUEST, _HTTP)
        for name in ("x-amzn-trace-id", "x-forwarded-for", "user-agent", "x-amzn-requestid")
    },
}

# Maps that hold volatile fields; selecting one selects them.
_WHOLE: dict[_Path, str] = {
    ("Records",): "a field of each record, such as Records[].messageId",
    ("Records", "attributes"): _SQS,
    ("Sns",): _SNS,
    ("kinesis",): "[eventSourceARN, eventID]",
    ("dynamodb",): "eventID",
    ("rmqMessagesByQueue",): _MQ,
    ("headers",): _HTTP,
    ("requestContext",): _HTTP,
    ("requestContext", "http"): _HTTP,
    ("requestContext", "identity"): _HTTP,
    ("requestContext", "authorizer"): _HTTP,
    ("requestContext", "authorizer", "claims"): _HTTP,
    ("requestContext", "authorizer", "jwt"): _HTTP,
    ("requestContext", "authorizer", "jwt", "claims"): _HTTP,
}

_HTTP_CONTEXT = frozenset(
    f"requestContext.{name}"
    for name in ("authorizer", "http", "httpMethod", "identity", "path", "resourcePath", "routeKey")
)

# A field that is right in one company and wrong in another: (field, with any of, without, why).
_COMPANY: tuple[tuple[_Path, frozenset[str], str, str, str], ...] = (
    (
        ("requestContext", "requestId"),
        frozenset(("httpMethod", "path", "rawPath", "routeKey", "headers", "body", "resource"))
        | _HTTP_CONTEXT,
        "",
        _PER_REQUEST,
        _HTTP,
    ),
    (
        ("time",),
        frozenset(("detail", "detail-type")),
        "resources",
        _SENT_TIME,
        "an id from the detail",
    ),
    (
        ("timestamp",),
        frozenset(("topic", "partition", "offset")),
        "",
        _SENT_TIME,
        "[topic, partition, offset]",
    ),
    (("timestamp",), frozenset(("messageID", "destination")), "", _SENT_TIME, _MQ),
    (
        ("timestamp",),
        frozenset(("requestContext", "requestPayload")),
        "",
        _DELIVERY_TIME,
        "requestContext.requestId",
    ),
)


def findings(selector: Selector, *, whole: bool = True) -> list[Finding]:
    """What in a key expression changes between deliveries; nothing for a callable.

    Args:
        selector: the compiled key.
        whole: whether `@` is an event; False where it is known to be a scalar argument.
    """
    if selector.tree is None:
        return []
    paths = [_from_record(path) for path in dict.fromkeys(_paths(selector.tree, ()))]
    found = [finding for path in paths if (finding := _judge(path, paths))]
    if () in paths and whole:
        found.append(
            Finding(
                "@",
                "is the whole event, with all that changes from delivery to delivery",
                "the fields that identify the work",
            )
        )
    if not found and paths and all(len(path) == 2 and path[0] == "headers" for path in paths):
        found.append(
            Finding(
                " and ".join(f"header {path[1]}" for path in paths),
                "is the client's choice, and another client may send the same",
                _HTTP,
            )
        )
    return list(dict.fromkeys(found))


def _judge(path: _Path, paths: list[_Path]) -> Finding | None:
    shown = ".".join(path).replace("." + _DECODED, _DECODED)
    if better := _WHOLE.get(path):
        return Finding(shown, "as a whole holds fields that change", better)
    if path in _PATHS:
        return Finding(shown, *_PATHS[path])
    names = {".".join(other[:length]) for other in paths for length in (1, 2)}
    for field, company, without, why, better in _COMPANY:
        if path == field and names & company and without not in names:
            return Finding(shown, why, better)
    if not _COUNTERS.isdisjoint(path):
        return Finding(shown, _COUNTS, f"what the attempts share, such as {_STEP}")
    for name in path:
        if name in _PAYLOADS:
            break
        if name in _NAMES:
            return Finding(shown, *_NAMES[name])
    return None


def _from_record(path: _Path) -> _Path:
    """The path as seen from one record of a batch; all headers in one map, in lower case."""
    if path in _WHOLE:
        return path
    if len(path) > 1 and path[0] in ("Records", "messages"):
        path = path[1:]
    elif len(path) > 2 and path[0] in ("records", "rmqMessagesByQueue"):
        path = path[2:]
    if path[:1] in (("headers",), ("multiValueHeaders",)):
        return ("headers", *(name.lower() for name in path[1:]))
    return path


def _paths(node: Node, at: _Path) -> Iterator[_Path]:
    """The ways to all that the expression puts into its result."""
    kind, children = node["type"], node["children"]
    if kind == "field":
        yield (*at, node["value"])
    elif kind in ("current", "identity", "index", "slice"):
        yield at
    elif kind in ("pipe", "subexpression", "index_expression", "projection", "value_projection"):
        star = ("*",) if kind == "value_projection" else ()
        ways = [at]
        for number, child in enumerate(children):
            step = star if number else ()
            ways = [way for before in ways for way in _paths(child, (*before, *step))]
        yield from ways
    elif kind == "filter_projection":
        for way in _paths(children[0], at):
            yield from _paths(children[1], way)
    elif kind == "function_expression":
        yield from _call(node["value"], children, at)
    elif kind not in ("literal", "comparator", "not_expression", "expref"):
        for child in children:
            yield from _paths(child, at)


def _call(name: str, arguments: list[Node], at: _Path) -> Iterator[_Path]:
    if name == "header":
        for way in _paths(arguments[0], at):
            base = way if way and way[-1] in ("headers", "multiValueHeaders") else (*way, "headers")
            yield (*base, str(arguments[1].get("value")))
    elif name == "map":
        for way in _paths(arguments[1], at):
            yield from _paths(arguments[0]["children"][0], way)
    elif name in ("http_body", "unwrap_sns"):
        for way in _paths(arguments[0], at):
            body = way if way and way[-1] in ("body", "Sns", _DECODED) else (*way, "body")
            yield (*body, _DECODED)
    elif name.startswith("powertools_"):
        for way in _paths(arguments[0], at):
            yield way if way[-1:] == (_DECODED,) else (*way, _DECODED)
    else:
        for argument in arguments:
            yield from _paths(argument, at)
