"""What a key is: selection, the missing rule, and which values are equal."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from aws_lambda_powertools.utilities.data_classes import (
    APIGatewayProxyEvent,
    EventBridgeEvent,
    SQSEvent,
)
from aws_lambda_powertools.utilities.jmespath_utils import PowertoolsFunctions
from aws_lambda_powertools.utilities.parser import models
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel

from idemguard import sources
from idemguard.errors import InvalidKeyExpression
from idemguard.functions import Functions
from idemguard.keys import MISSING, Selector, canonical, is_redelivery, make_key

Load = Callable[[str], Any]


def digest(value: Any) -> str:
    return make_key("op", value).digest


def kind(value: Any) -> str:
    """A test's name for values too long, or too odd, to be printed."""
    return type(value).__name__


# Expressions are checked when they are compiled.


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("detail-type", '"detail-type"'),
        ("[detail-type, id]", '"detail-type"'),
        ("headers.Idempotency-Key", '"Idempotency-Key"'),
        ("a.", "position 2"),
        ("[a, b", "too early"),
        ("a ** b", "position 2"),
        ("a = b", "position 2"),
        ("'unclosed", "position"),
        ("powertool_json(body)", "powertools_json()"),
        ("nosuch(a)", "there is no function nosuch()"),
        ("[id, items[?nosuch(@)]]", "nosuch()"),
        ("items[1:2].nosuch(a)", "nosuch()"),
        ("header(@)", "takes 2 argument(s), not 1"),
        ("length(a, b)", "takes 1 argument(s), not 2"),
        ("not_null()", "at least 1"),
        ('header(@, "Idempotency-Key")', "'Idempotency-Key'"),
        ("'order_id'", "constant"),
        ("`1`", "constant"),
        ("['a', to_string(`2`)]", "constant"),
        ("[" * 5000, "invalid"),
    ],
)
def test_an_expression_that_cannot_work_is_refused_with_its_cure(
    expression: str, says: str
) -> None:
    with pytest.raises(InvalidKeyExpression) as raised:
        Selector(expression, "fingerprint")
    assert says in str(raised.value)
    assert "fingerprint" in str(raised.value)
    assert expression.strip() in str(raised.value)


@pytest.mark.parametrize("expression", [None, 7, ["id"], b"id"])
def test_what_is_no_expression_is_refused_by_its_type(expression: Any) -> None:
    with pytest.raises(InvalidKeyExpression, match=type(expression).__name__):
        Selector(expression)


def test_an_async_callable_is_refused() -> None:
    async def key(event: Any) -> Any:
        return event

    with pytest.raises(InvalidKeyExpression, match="async"):
        Selector(key)


# What counts as missing.


@pytest.mark.parametrize("event", [{}, {"id": None}, {"id": ""}, {"id": []}, {"id": {}}])
def test_absent_null_and_empty_are_missing(event: Any) -> None:
    assert Selector("id").key(event) is MISSING
    assert Selector("id").why(event)
    assert Selector(lambda given: given.get("id")).key(event) is MISSING


@pytest.mark.parametrize("value", [0, False, "0", "false", "null", 0.0, " ", [0], {"a": None}])
def test_what_is_falsy_but_there_is_a_key(value: Any) -> None:
    selector = Selector("id")
    assert selector.key({"id": value}) == value
    assert selector.why({"id": value}) == ""
    assert Selector(lambda event: event["id"]).key({"id": value}) == value


def test_falsy_keys_are_all_different_and_never_one_record_for_no_key(event: Load) -> None:
    payloads = event("direct_invoke_payloads_falsy_keys")
    keys = [Selector("id").key(payload) for payload in payloads]
    there = [key for key in keys if key is not MISSING]
    assert [type(key) for key in there] == [type(key) for key in FALSY_BUT_KEYS]
    assert there == FALSY_BUT_KEYS
    assert len({digest(value) for value in there}) == len(there)
    assert len(there) < len(payloads)


FALSY_BUT_KEYS = [0, False, "0", "false", "null"]

A_NULL = {"a": 1, "b": None, "deep": {"x": {"y": None}}, "rows": [{"a": 1, "b": 2}, {"a": 1}]}


@pytest.mark.parametrize(
    "expression",
    [
        "[a, b]",
        "[b]",
        "[b, absent]",
        "{a: a, b: b}",
        "[a, [a, b]]",
        "{a: a, inner: {b: b}}",
        "[a, {b: b}]",
        "rows[].[a, b]",
        "rows[*].{a: a, b: b}",
        "rows[?a].[a, b]",
        "rows[0:2].[a, b]",
        "rows[].deep.[a, b]",
        "rows | [].[a, b]",
        "@ | [a, b]",
        "[a, b] | @",
        "[a, b][]",
        "[a, b][*]",
        "[a, b] | []",
        "[[a, b], [a]][]",
        "[a, b][:1]",
        "{a: a, b: b}.*",
        "deep.[x, z]",
        "absent || [a, b]",
        "[a, b] || a",
        "a && [a, b]",
        "(a && [a, b])",
        "to_string([a, b])",
        "to_string({b: b})",
        "not_null([a, b], a)",
        "map(&[a, b], rows)",
        "join('-', [to_string(a), b])",
    ],
)
def test_a_multi_select_with_a_null_member_is_missing(expression: str) -> None:
    selector = Selector(expression)
    assert selector.key(A_NULL) is MISSING
    assert selector.why(A_NULL)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("deep", {"x": {"y": None}}),
        ("[a, deep]", [1, {"x": {"y": None}}]),
        ("rows", A_NULL["rows"]),
        ("rows[1:]", [{"a": 1}]),
        ("[a, absent || 'none']", [1, "none"]),
        ("[b, a] | [1]", 1),
        ("[b, a][1]", 1),
        ("not_null(b, a)", 1),
        ("b.[x, y] || a", 1),
        ("rows[?contains([a, b], `2`)].a", [1]),
        ("length([a, b])", 2),
        ("rows[0].[a, b]", [1, 2]),
        ("rows[].b", [2]),
    ],
)
def test_nulls_that_are_data_or_do_not_reach_the_key_do_no_harm(
    expression: str, value: Any
) -> None:
    assert Selector(expression).key(A_NULL) == value


def test_a_projected_multi_select_over_an_absent_part_is_missing_and_not_left_out() -> None:
    event = {"rows": [{"x": {"a": 1}}, {}]}
    assert Selector("rows[].x.[a]").key(event) is MISSING
    assert Selector("rows[?`true`].x.[a]").key(event) is MISSING
    assert Selector("map(&x.[a], rows)").key(event) is MISSING
    assert Selector("map(&(x.[a] || [`0`]), rows)").key(event) == [[1], [0]]


@pytest.mark.parametrize("value", [(1, None), [None], (None, None), (), b""])
def test_a_callable_is_held_to_the_same_rule(value: Any) -> None:
    assert Selector(lambda _: value).key({}) is MISSING


def test_a_callable_gets_the_event_as_it_came_and_its_own_error_leaves_unchanged() -> None:
    event = SQSEvent({"Records": []})
    assert Selector(lambda given: id(given)).key(event) == id(event)
    error = KeyError("mine")

    def key(_: Any) -> Any:
        raise error

    with pytest.raises(KeyError) as raised:
        Selector(key).key({})
    assert raised.value is error


SECRET = "4111-1111"


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("powertools_json(text)", "not JSON"),
        ("powertools_base64(text)", "powertools_base64()"),
        ("powertools_base64(binary)", "not UTF-8"),
        ("powertools_base64_gzip(encoded)", "not gzip"),
        ("powertools_base64_gzip(cut)", "cut off"),
        ("powertools_base64_gzip(bomb)", "10 MB"),
        ("length(number)", "length() does not take number"),
        ("sort(mixed)", "sort()"),
        ("ceil(endless)", "OverflowError"),
        ("join('-', mixed)", "join()"),
        ("header(headers, headers.name)", "header() does not take number"),
    ],
)
def test_what_cannot_be_evaluated_is_missing_for_a_reason_without_payload(
    expression: str, says: str
) -> None:
    packed = gzip.compress(SECRET.encode())
    event = {
        "text": SECRET + "é",
        "binary": base64.b64encode(b"\xff" + SECRET.encode()).decode(),
        "encoded": base64.b64encode(SECRET.encode()).decode(),
        "cut": base64.b64encode(packed[:-9]).decode(),
        "bomb": base64.b64encode(gzip.compress(bytes(11 * 1024 * 1024))).decode(),
        "number": 41111111,
        "endless": float("inf"),
        "mixed": [SECRET, 1],
        "headers": {"name": 41111111},
    }
    for wrapped in (expression, f"[`1`, {expression}]"):
        selector = Selector(wrapped)
        assert selector.key(event) is MISSING
        assert selector.select(event) is MISSING
        assert says in selector.why(event)
        assert "1111" not in selector.why(event)


# Where a key is taken from.


@dataclass
class Line:
    sku: str
    tags: tuple[str, ...] = ()


@dataclass
class Order:
    id: int
    lines: list[Line]
    meta: dict[str, Any]


class Item(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    order_id: int = Field(alias="orderId")
    at: datetime | None = None


def test_an_expression_is_the_same_for_dict_data_class_and_model(event: Load) -> None:
    for name, data_class, model, expression in (
        ("sqs_standard", SQSEvent, models.SqsModel, "Records[].[messageId, eventSourceARN]"),
        ("sqs_standard", SQSEvent, models.SqsModel, "powertools_json(Records[0].body).order_id"),
        ("apigw_rest_v1", APIGatewayProxyEvent, models.APIGatewayProxyEventModel, "http_body(@)"),
        (
            "apigw_rest_v1",
            APIGatewayProxyEvent,
            models.APIGatewayProxyEventModel,
            sources.APIGW_REST,
        ),
        (
            "eventbridge_scheduled_rule_cron",
            EventBridgeEvent,
            models.EventBridgeModel,
            '["detail-type", resources[0], time]',
        ),
    ):
        raw = event(name)
        selector = Selector(expression)
        value = selector.key(raw)
        assert value is not MISSING
        assert selector.key(data_class(raw)) == value
        assert selector.key(model.model_validate(raw)) == value


PARSED: dict[str, type[BaseModel]] = {
    "sqs_standard": models.SqsModel,
    "sqs_fifo_batch": models.SqsModel,
    "sns": models.SnsModel,
    "sns_in_sqs": models.SqsModel,
    "s3_put_urlencoded_key": models.S3Model,
    "s3_in_sns_in_sqs": models.SqsModel,
    "eventbridge_custom": models.EventBridgeModel,
    "eventbridge_s3_object_created": models.S3EventNotificationEventBridgeModel,
    "dynamodb_stream": models.DynamoDBStreamModel,
    "kinesis_batch": models.KinesisDataStreamModel,
    "cloudwatch_logs": models.CloudWatchLogsModel,
    "apigw_http_v2": models.APIGatewayProxyEventV2Model,
    "function_url": models.LambdaFunctionUrlModel,
    "alb_single_value": models.AlbModel,
}


@pytest.mark.parametrize("name", sorted(PARSED))
def test_the_ready_made_key_of_a_source_is_the_same_once_parsed(name: str, event: Load) -> None:
    raw = event(name)
    parsed = PARSED[name].model_validate(raw)
    suggestion = sources.suggest(raw)
    assert suggestion is not None
    assert sources.suggest(parsed) == suggestion
    selector = Selector(suggestion[1])
    keys = [digest(selector.key(record)) for record in sources.records(raw)]
    assert [digest(selector.key(record)) for record in sources.records(parsed)] == keys


def test_the_records_of_a_batch_may_be_data_classes_or_models(event: Load) -> None:
    raw = event("sqs_standard")
    selector = Selector("[messageId, powertools_json(body).order_id]")
    value = selector.key(raw["Records"][0])
    assert selector.key(next(SQSEvent(raw).records)) == value
    assert selector.key(models.SqsModel.model_validate(raw).Records[0]) == value


def test_dataclasses_tuples_and_models_inside_of_plain_data_can_be_selected_from() -> None:
    order = Order(7, [Line("A", ("x", "y"))], {"item": Item(orderId=3)})
    assert Selector("[id, lines[0].sku, lines[0].tags[1]]").key(order) == [7, "A", "y"]
    assert Selector("order.lines[].[sku]").key({"order": order}) == [["A"]]
    assert Selector("meta.item.orderId").key(order) == 3
    assert Selector("[].orderId").key((Item(orderId=1), Item(orderId=2))) == [1, 2]
    assert Selector("[*].[orderId]").key([Item(orderId=1)]) == [[1]]
    assert Selector("[*].[orderId, at]").key([Item(orderId=1)]) is MISSING


def test_a_record_is_turned_into_data_once_however_many_fields_are_selected() -> None:
    class Counted:
        dumps = 0

        def model_dump(self, **_: Any) -> dict[str, int]:
            Counted.dumps += 1
            return {"a": 1, "b": 2, "c": 3}

    assert Selector("[*].[a, b, c]").key([Counted(), Counted()]) == [[1, 2, 3], [1, 2, 3]]
    assert Counted.dumps == 2


def test_a_model_without_a_json_form_is_still_an_event() -> None:
    class Binary(BaseModel):
        id: str
        data: bytes

    assert Selector("id").key(Binary(id="a", data=b"\xff")) == "a"
    assert Selector("[id, data]").key(Binary(id="a", data=b"\xff")) == ["a", b"\xff"]


@pytest.mark.parametrize("event", ["text", 7, 0, False, [1, 2]])
def test_an_event_may_be_a_scalar_or_a_list(event: Any) -> None:
    assert Selector("@").key(event) == event
    assert Selector("id").key(event) is MISSING


def test_selecting_from_a_plain_event_copies_and_changes_nothing() -> None:
    event: dict[str, Any] = {"id": " a1 ", "detail": {"rows": [{"n": 1}, (2,)]}}
    before = repr(event)
    assert Selector("detail").key(event) is event["detail"]
    assert Selector("[id, detail.rows]").key(event)[1] is event["detail"]["rows"]
    assert repr(event) == before


def test_the_key_is_taken_before_the_event_changes() -> None:
    event = {"id": " a1 "}
    key = make_key("op", Selector("@").key(event), event)
    event["id"] = event["id"].strip().upper()
    assert key == make_key("op", {"id": " a1 "}, {"id": " a1 "})


# Functions.


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        ("powertools_json", '{"a": [1, 2.5, null, "é"], "b": 1e3}'),
        ("powertools_json", " 12 "),
        ("powertools_base64", "w6kgdGV4dA=="),
        ("powertools_base64", "dGV4\ndA=="),
        ("powertools_base64_gzip", base64.b64encode(gzip.compress("é".encode())).decode()),
        (
            "powertools_base64_gzip",
            base64.b64encode(gzip.compress(b"one") + gzip.compress(b"two") + b"\0\0").decode(),
        ),
    ],
)
def test_the_powertools_functions_give_what_they_give_in_powertools(
    function: str, argument: str
) -> None:
    expected = PowertoolsFunctions().call_function(function, [argument])
    assert Functions().call_function(function, [argument]) == expected


@pytest.mark.parametrize("function", ["json", "base64", "base64_gzip"])
def test_null_gives_null_and_what_is_decoded_passes_through(function: str) -> None:
    call = Functions().call_function
    assert call(f"powertools_{function}", [None]) is None
    assert call(f"powertools_{function}", [{"a": 1}]) == {"a": 1}


@pytest.mark.parametrize("function", ["http_body", "unwrap_sns", "url_decode"])
def test_the_other_functions_give_null_for_null_too(function: str) -> None:
    assert Functions().call_function(function, [None]) is None


def test_numbers_in_decoded_json_are_exact() -> None:
    selector = Selector("powertools_json(@)")
    for one, other in (
        ("0.1", "0.10000000000000000001"),
        ("9007199254740993", "9007199254740992"),
        ("1e400", "1e401"),
        ("1" * 5000, "1" * 4999 + "2"),
        ("9007199254740993.0", "9007199254740992.0"),
    ):
        assert digest(selector.key(f"[{one}]")) != digest(selector.key(f"[{other}]"))
    assert digest(selector.key("[1.50, 1E0]")) == digest(selector.key("[1.5, 1]"))


def test_builtin_functions_do_not_cut_exact_numbers_down() -> None:
    event = {"n": Decimal("19.99")}
    assert Selector("to_number(n)").key(event) == Decimal("19.99")
    assert Selector("to_string(n)").key(event) == "19.99"
    assert Selector("to_number('7')|[@, to_string(@)]").key({}) == [7, "7"]


def test_constants_of_json_that_are_no_numbers_are_not_json() -> None:
    assert Selector("powertools_json(@)").key("[NaN]") is MISSING
    assert Selector("http_body(@)").key({"body": "[NaN]"}) == "[NaN]"


def test_a_map_of_headers_may_hold_a_header_of_the_name_headers() -> None:
    assert Selector("header(@, 'X-Id')").key({"headers": "text", "x-id": "7"}) == "7"


def test_object_names_are_decoded_with_plus_as_a_space() -> None:
    assert Selector("url_decode(@)").key("a+b%2Bc%26%28%C3%A9") == "a b+c&(é"


def test_a_message_is_taken_out_of_sns_only_where_there_is_an_envelope() -> None:
    unwrap = Selector("unwrap_sns(@)")
    assert unwrap.key("plain text") == "plain text"
    assert unwrap.key({"body": '{"Message": "mine"}'}) == {"Message": "mine"}
    assert unwrap.key({"body": '{"TopicArn": "t", "Message": "text"}'}) == "text"
    assert unwrap.key({"order_id": 1}) == {"order_id": 1}


# Which values are one.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a|b", "c"], ["a", "b|c"]),
        (["a#b"], ["a", "b"]),
        (["1", "23"], ["12", "3"]),
        (["a", ["b"]], [["a"], "b"]),
        ('["a","b"]', ["a", "b"]),
        (["a,b"], ["a", "b"]),
        (['a","b'], ["a", "b"]),
        ({"a": "b"}, ["a", "b"]),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (1, "1"),
        (1, True),
        (0, False),
        (0, None),
        ("null", None),
        ("", None),
        ("a", "A"),
        ("a", "a "),
        ("\u00e9", "e\u0301"),
        ("\ud83d\ude00", "😀"),
        ("\ud800", "?"),
        (b"abc", "abc"),
        (b"abc", base64.b64encode(b"abc").decode()),
        (2**53, 2**53 + 1),
        (10**5000, 10**5000 + 1),
        (0.1, Decimal("0.1000000000000000055511151231257827")),
        ([1, 2], [2, 1]),
        (datetime(2026, 6, 1), datetime(2026, 6, 1, tzinfo=timezone.utc)),
        (date(2026, 6, 1), datetime(2026, 6, 1)),
    ],
    ids=kind,
)
def test_these_are_different(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)
    assert digest([one]) != digest([other])
    # A float beside them makes both take the slower of the two ways to the same text.
    assert digest([one, 1.0]) != digest([other, 1.0])


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, Decimal("1.00")),
        (1, Decimal("1E0")),
        (100, 1e2),
        (100, Decimal("1E+2")),
        (10**300, Decimal("1E+300")),
        (10**6000, Decimal("1E+6000")),
        (0, -0.0),
        (0, Decimal("-0.00")),
        (0.1, Decimal("0.1")),
        (1.5e-7, Decimal("0.00000015")),
        (-12.5, Decimal("-12.50")),
        (1e22, 10**22),
        (json.loads("1e0"), 1),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ((1, ("a",)), [1, ["a"]]),
        (Point(1, 2), [1, 2]),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (Text("a"), "a"),
        ({Text("a"): 1}, {"a": 1}),
        (bytearray(b"a"), b"a"),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (UUID(int=7), str(UUID(int=7))),
        (date(2026, 6, 1), "2026-06-01"),
        (datetime(2026, 6, 1, 2, tzinfo=timezone.utc), "2026-06-01T02:00:00Z"),
        (
            datetime(2026, 6, 1, tzinfo=timezone(timedelta(hours=2))),
            "2026-06-01T00:00:00+02:00",
        ),
        (Line("A", ("x",)), {"sku": "A", "tags": ["x"]}),
        (Item(orderId=1), {"orderId": 1, "at": None}),
        (RootModel[list[int]]([1]), [1]),
        (SQSEvent({"Records": []}), {"Records": []}),
    ],
    ids=kind,
)
def test_these_are_the_same(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)
    assert canonical([one, {"a": one}]) == canonical([other, {"a": other}])
    assert canonical([one, 1.0]) == canonical([other, 1])


def test_the_form_is_pinned_for_records_outlive_releases() -> None:
    value: list[Any] = [
        "é\n",
        1.0,
        0.1,
        Decimal("1.10"),
        None,
        True,
        {"b": [], "a": {}},
        b"\xff",
        "\ud800",
    ]
    text = b'["\xc3\xa9\\n",1,0.1,1.1,null,true,{"a":{},"b":[]},b"/w==","\xed\xa0\x80"]'
    assert canonical(value) == text
    assert canonical(Decimal("0.10000000000000000001")) == b"10000000000000000001e-20"
    key = make_key("orders.handler", ["t", 7], {"amount": 1})
    # printf '14:orders.handler["t",7]' | sha256sum; printf '{"amount":1}' | sha256sum
    assert key.digest == "6f9ac25c47bb26ea12c0055478799a7a8ec48af5"
    assert key.fingerprint == "c2b11e657e12fd177359627ca8941201"


NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30),
    st.sampled_from(
        [0, -0.0, 1, 1.0, Decimal("1.0"), 100, 1e2, 0.1, Decimal("0.1"), 2**53, 2.0**53]
    ),
)
TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=4)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.binary(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(TEXTS, inner, max_size=3),
    ),
    max_leaves=8,
)


def alike(one: Any, other: Any) -> bool:
    """The documented rule once more, by comparing instead of by writing."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    exact = [
        Fraction(repr(value) if isinstance(value, float) else value)
        for value in (one, other)
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    ]
    if exact:
        return len(exact) == 2 and exact[0] == exact[1]
    return type(one) is type(other) and bool(one == other)


def respelled(value: Any) -> Any:
    """The same value in other types, where there are any."""
    if isinstance(value, dict):
        return {name: respelled(value[name]) for name in reversed(value)}
    if isinstance(value, (list, tuple)):
        return tuple(respelled(item) for item in value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value).scaleb(0) if abs(value) < 10**20 else value
    return value


@given(VALUES, VALUES)
def test_two_values_have_one_form_if_and_only_if_they_are_alike(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == alike(one, other)


@given(NUMBERS, NUMBERS)
def test_two_numbers_have_one_form_if_and_only_if_they_are_equal(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == alike(one, other)
    assert canonical([one, 1.0]) == b"[" + canonical(one) + b",1]"


@given(VALUES)
def test_another_spelling_of_a_value_has_the_same_form(value: Any) -> None:
    assert canonical(value) == canonical(respelled(value))


@given(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.text()), st.lists))
def test_without_floats_and_bytes_the_form_is_json(value: Any) -> None:
    assert json.loads(canonical(value)) == value


# What has no form.


def loop() -> Any:
    items: list[Any] = []
    items += [items, items]
    return items


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Odd:
    def __repr__(self) -> str:
        return SECRET


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({SECRET, "b"}, "builtins.set at $.a[0]"),
        (frozenset((SECRET,)), "sort it into a list"),
        (Odd(), "test_keys.Odd at $.a[0]"),
        (float("nan"), "NaN or infinite at $.a[0]"),
        (float("-inf"), "NaN or infinite"),
        (Decimal("NaN"), "NaN or infinite"),
        (Decimal("sNaN"), "NaN or infinite"),
        ({1: SECRET}, "a map with a name of type int at $.a[0]"),
        ({None: 1, "a": 1}, "NoneType"),
        (10**100_001, "100,000 digits"),
        (Decimal("1E+1000000"), "100,000 digits"),
        (nested(100_000), "200 levels"),
        (nested(300), "200 levels"),
        (loop(), "200 levels"),
        (3 + 4j, "complex"),
        (Odd, "builtins.type"),
        (Item, "ModelMetaclass"),
    ],
    ids=kind,
)
def test_what_has_no_form_is_refused_by_type_and_place(value: Any, says: str) -> None:
    for given_value in ({"a": [value]}, {"a": [value, 1.0]}):
        with pytest.raises(InvalidKeyExpression) as raised:
            make_key("op", given_value)
        assert says in str(raised.value)
        assert SECRET not in str(raised.value)
        assert raised.value.operation == "op"


def test_a_deep_but_sane_value_has_a_form() -> None:
    assert canonical(nested(150)) == b"[" * 150 + b"1" + b"]" * 150
    assert canonical([nested(150), 1.0]).endswith(b",1]")


# Keys.


def test_a_digest_tells_operations_and_values_apart() -> None:
    pairs = [("op", "1"), ("op1", ""), ("op", 1), ("other", "1"), ("", "op1"), ("é\ud800", 1)]
    assert len({make_key(*pair).digest for pair in pairs}) == len(pairs)


def test_a_fingerprint_is_there_when_asked_for_and_null_where_nothing_is_selected() -> None:
    plain = make_key("op", 1)
    assert plain.fingerprint is None
    marked = make_key("op", 1, {"amount": 1})
    assert marked.digest == plain.digest
    assert marked.fingerprint is not None
    assert len(marked.fingerprint) == 32
    assert make_key("op", 1, None) == make_key("op", 1, MISSING)
    assert make_key("op", 1, None).fingerprint not in (None, marked.fingerprint)
    assert make_key("op", 1, {"amount": 1.0}) == marked


# Redelivery.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sqs_standard", False),
        ("sqs_standard_redelivery", True),
        ("sqs_fifo_batch", False),
        ("mq_activemq", False),
        ("mq_rabbitmq_redelivered", True),
        ("apigw_rest_v1", False),
        ("cloudwatch_logs", False),
    ],
)
def test_a_redelivery_is_known_where_the_source_says_so(
    name: str, expected: bool, event: Load
) -> None:
    assert is_redelivery(event(name)) is expected


def test_a_single_record_says_so_too(event: Load) -> None:
    first, *_, last = event("sqs_batch_dup_and_poison")["Records"]
    assert not is_redelivery(first)
    assert is_redelivery(last)
    again = SQSEvent(event("sqs_standard_redelivery"))
    assert is_redelivery(again)
    assert is_redelivery(next(again.records))
    activemq = event("mq_activemq")
    activemq["messages"][0]["redelivered"] = True
    assert is_redelivery(activemq)
    assert is_redelivery(activemq["messages"][0])


@pytest.mark.parametrize(
    "event",
    [
        *(None, 7, "text", [], {}, object(), SQSEvent, {"Records": None}, {"Records": []}),
        {"Records": [None]},
        {"Records": [{"attributes": None}]},
        *({"attributes": {"ApproximateReceiveCount": x}} for x in (None, "x", "²", "-2", "9" * 99)),
        {"rmqMessagesByQueue": {}},
        {"rmqMessagesByQueue": {"q": []}},
        {"rmqMessagesByQueue": {"q": None}},
        {"messages": [[]]},
        {"redelivered": "yes"},
    ],
)
def test_anything_else_is_no_redelivery(event: Any) -> None:
    assert is_redelivery(event) is False


def test_taking_keys_imports_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys, idemguard.keys, idemguard.sources, idemguard.volatile\n"
        "heavy = {'boto3', 'botocore', 'pydantic', 'aws_lambda_powertools'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])
