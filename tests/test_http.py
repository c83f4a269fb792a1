"""The Idempotency-Key header, by a plain handler and by Powertools' resolvers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from aws_lambda_powertools.event_handler import (
    ALBResolver,
    APIGatewayHttpResolver,
    APIGatewayRestResolver,
    CORSConfig,
    LambdaFunctionUrlResolver,
    Response,
)
from aws_lambda_powertools.event_handler.exceptions import BadRequestError, InternalServerError
from aws_lambda_powertools.shared.cookies import Cookie
from aws_lambda_powertools.utilities.data_classes import (
    ALBEvent,
    APIGatewayProxyEvent,
    APIGatewayProxyEventV2,
    LambdaFunctionUrlEvent,
    event_source,
)

from idemguard import (
    Guard,
    InFlightError,
    InvalidKeyExpression,
    InvalidOption,
    MissingKeyError,
    StepError,
    current_claim,
    effect_key,
)
from idemguard.cache import forget
from idemguard.integrations.http import IdempotencyKey, idempotent_http
from idemguard.testing.ssm_faults import Fault
from tests.worlds import World, ssm_world

Load = Callable[[str], Any]

# name of the event file, resolver, data class
SOURCES: dict[str, tuple[Any, Any]] = {
    "apigw_rest_v1": (APIGatewayRestResolver, APIGatewayProxyEvent),
    "apigw_http_v2": (APIGatewayHttpResolver, APIGatewayProxyEventV2),
    "function_url": (LambdaFunctionUrlResolver, LambdaFunctionUrlEvent),
    "alb_single_value": (ALBResolver, ALBEvent),
    "alb_multi_value": (ALBResolver, ALBEvent),
}
ANONYMOUS = {"function_url", "alb_single_value", "alb_multi_value"}


@dataclass
class Api:
    """An API of one source, in one of the two forms; its work is `serve`."""

    form: str
    source: str
    world: World
    served: list[Any] = field(default_factory=list[Any])
    work: Callable[[Any], dict[str, Any]] | None = None
    handler: Callable[[Any, Any], Any] | None = None

    def serve(self, body: Any) -> dict[str, Any]:
        self.served.append(body)
        if self.work is not None:
            return self.work(body)
        return {"status": 201, "body": {"order": len(self.served)}}

    def made(self, **options: Any) -> Api:
        options = {"ledger": self.world.ledger, "clock": self.world.clock, **options}
        if self.source in ANONYMOUS:
            options.setdefault("caller", None)
        self.handler = self._plain(options) if self.form == "plain" else self._resolver(options)
        return self

    def _plain(self, options: dict[str, Any]) -> Callable[[Any, Any], Any]:
        many = self.source == "alb_multi_value"

        @idempotent_http(**options)
        def handler(event: Any, context: Any) -> dict[str, Any]:
            answer = self.serve(event["body"])
            shape: dict[str, Any] = (
                {"multiValueHeaders": {"X-Shop": ["a", "b"]}}
                if many
                else {"headers": {"X-Shop": "a"}}
            )
            return {
                "statusCode": answer["status"], "body": json.dumps(answer["body"]), **shape
            }  # fmt: skip

        return handler

    def _resolver(self, options: dict[str, Any]) -> Callable[[Any, Any], Any]:
        app = SOURCES[self.source][0]()
        app.use(middlewares=[IdempotencyKey(**options)])

        def route() -> Response[Any]:
            answer = self.serve(app.current_event.body)
            return Response(
                status_code=answer["status"],
                content_type="application/json",
                body=answer["body"],
                headers={"X-Shop": "a"},
            )

        for method in (app.post, app.get, app.put):
            method("/v1/orders")(route)
        app.post("/v1/refunds")(route)
        return lambda event, context: app.resolve(event, context)

    def __call__(self, event: Any) -> Any:
        assert self.handler is not None
        return self.handler(event, in_time(self.world))


def header(reply: Any, name: str) -> Any:
    """A header of a reply, which must stand in the place that its source reads."""
    for headers in (reply.get("multiValueHeaders"), reply.get("headers")):
        if headers and name in headers:
            return headers[name]
    return None


def in_time(world: World) -> Any:
    """The context of an invocation with 30 seconds left; Powertools wants one of its own type."""
    return world.context()


def said(reply: Any) -> tuple[Any, Any]:
    return reply["statusCode"], json.loads(reply["body"])


def problem(reply: Any) -> dict[str, Any]:
    kind = header(reply, "Content-Type")
    assert kind in ("application/problem+json", ["application/problem+json"])
    body = json.loads(reply["body"])
    assert body["status"] == reply["statusCode"]
    assert body["title"]
    assert body["detail"]
    return dict(body)


@pytest.fixture(params=["plain", "resolver"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=sorted(SOURCES))
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rest(form: str, world: World) -> Api:
    return Api(form, "apigw_rest_v1", world)


def keyed(event: Any, *values: str | None) -> Any:
    """The event with other values of its key's header, or none."""
    for name in ("headers", "multiValueHeaders"):
        headers = event.get(name)
        for old in [key for key in headers or {} if key.lower() == "idempotency-key"]:
            del headers[old]
        if headers is not None and values:
            headers["Idempotency-Key"] = list(values) if "multi" in name else values[-1]
    return event


def test_the_same_request_again_gets_the_first_reply_marked_as_such(
    form: str, source: str, world: World, event: Load
) -> None:
    api = Api(form, source, world).made()

    first, again = api(event(source)), api(event(source))
    forget()
    later = api(event(source))

    assert said(first) == said(again) == said(later) == (201, {"order": 1})
    assert len(api.served) == 1
    assert header(first, "Idempotency-Replayed") is None
    many = source == "alb_multi_value" or (form == "resolver" and source == "apigw_rest_v1")
    for replayed in (again, later):
        assert header(replayed, "Idempotency-Replayed") == (["true"] if many else "true")
        assert header(replayed, "X-Shop") == header(first, "X-Shop")
        assert header(replayed, "Content-Type") == header(first, "Content-Type")
        where = {"headers", "multiValueHeaders"}
        if source == "alb_multi_value":
            assert where & set(replayed) == {"multiValueHeaders"}
        elif source != "apigw_rest_v1":  # which reads both
            assert where & set(replayed) == {"headers"}


def test_a_request_without_a_key_is_refused_in_the_shape_of_its_source(
    form: str, source: str, world: World, event: Load
) -> None:
    api = Api(form, source, world).made()

    reply = api(keyed(event(source)))

    assert reply["statusCode"] == 400
    assert "Idempotency-Key" in problem(reply)["detail"]
    assert (header(reply, "Content-Type") == ["application/problem+json"]) is (
        source == "alb_multi_value" or (form == "resolver" and source == "apigw_rest_v1")
    )
    assert api.served == []
    assert world.names == []


@pytest.mark.parametrize("name", ["apigw_rest_v1_console_test_null_maps", "apigw_rest_v1_no_key"])
def test_a_console_test_with_null_maps_has_no_key(rest: Api, event: Load, name: str) -> None:
    assert problem(rest.made()(event(name)))["status"] == 400
    assert rest.served == []


@pytest.mark.parametrize(
    "value",
    ["", "  ", '""', '"  "', '"open', 'a"b', "a,b", "q z", "kéy", "a\x01b", '"a\x7f"', '"a\\x"',
     "k" * 256, f'"{"k" * 256}"', '"a" b'],
)  # fmt: skip
def test_a_malformed_key_is_refused(rest: Api, event: Load, value: str) -> None:
    reply = rest.made(on_missing_key="run")(keyed(event("apigw_rest_v1"), value))

    assert problem(reply)["status"] == 400
    assert rest.served == []
    if value.strip('" '):
        assert value not in reply["body"]


def test_a_key_that_is_sent_twice_is_malformed(rest: Api, event: Load) -> None:
    reply = rest.made()(keyed(event("apigw_rest_v1"), "one", "two"))
    assert problem(reply)["status"] == 400


def test_a_quoted_key_and_its_bare_token_are_the_same_key(rest: Api, event: Load) -> None:
    api = rest.made()

    for value in ("k-1", '"k-1"', ' "k-1" ', '"k-1";p=1'):
        assert said(api(keyed(event("apigw_rest_v1"), value))) == (201, {"order": 1})
    for value in ('"k 1"', '"k\\"1"', '"k\\\\1"', "k\\1", "k:1", "k" * 255):
        api(keyed(event("apigw_rest_v1"), value))
    assert len(api.served) == 6  # the backslash is one key, escaped in quotes and bare


def test_a_header_is_found_in_any_case_and_may_have_another_name(rest: Api, event: Load) -> None:
    api = rest.made()
    api(event("apigw_rest_v1"))
    assert said(api(event("apigw_rest_v1_upper_case_header"))) == (201, {"order": 1})

    named = rest.made(header="X-Request-Key")
    request = event("apigw_rest_v1")
    assert "X-Request-Key" in problem(named(request))["detail"]
    request["headers"]["x-request-key"] = "r-1"
    assert said(named(request)) == (201, {"order": 2})


def test_the_key_can_be_made_optional(rest: Api, world: World, event: Load) -> None:
    api = rest.made(on_missing_key="run")

    def work(body: Any) -> dict[str, Any]:
        with pytest.raises(StepError):
            effect_key("mail")
        return {"status": 201, "body": {}}

    api.work = work
    for _ in range(2):
        assert api(event("apigw_rest_v1_no_key"))["statusCode"] == 201
    assert len(api.served) == 2
    assert world.names == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_safe_methods_pass_through(world: World, event: Load, method: str) -> None:
    api = Api("plain", "apigw_rest_v1", world).made()
    request = keyed(event("apigw_rest_v1"))
    request["httpMethod"] = request["requestContext"]["httpMethod"] = method

    for number in (1, 2):
        assert said(api(request)) == (201, {"order": number})
    assert world.names == []


def test_safe_routes_pass_through(world: World, event: Load) -> None:
    api = Api("resolver", "apigw_http_v2", world).made()
    request = keyed(event("apigw_http_v2"))
    request["requestContext"]["http"]["method"] = "GET"

    for number in (1, 2):
        assert said(api(request)) == (201, {"order": number})
    assert world.names == []


# Who, where, what


def test_another_caller_method_or_path_with_the_same_key_is_other_work(
    rest: Api, event: Load
) -> None:
    api = rest.made()
    others = [event("apigw_rest_v1") for _ in range(4)]
    others[1] = event("apigw_rest_v1_same_key_other_tenant")
    others[2]["path"] = "/v1/refunds"
    others[3]["httpMethod"] = others[3]["requestContext"]["httpMethod"] = "PUT"

    orders = [said(api(request)) for request in others]
    assert orders == [(201, {"order": number}) for number in (1, 2, 3, 4)]
    for request, order in zip(others, orders, strict=True):
        assert said(api(request)) == order


@pytest.mark.parametrize(
    ("authorizer", "identity"),
    [
        ({"claims": {"sub": "WHO"}}, {}),
        ({"jwt": {"claims": {"sub": "WHO"}}}, {}),
        ({"principalId": "WHO"}, {}),
        ({"iam": {"userArn": "WHO", "cognitoIdentity": None}}, {}),
        ({"iam": {"userArn": "shared", "cognitoIdentity": {"identityId": "WHO"}}}, {}),
        (None, {"userArn": "WHO", "cognitoIdentityId": None}),
        (None, {"userArn": "shared", "cognitoIdentityId": "WHO"}),
    ],
)
def test_each_kind_of_authorizer_tells_the_caller(
    world: World, event: Load, authorizer: Any, identity: Any
) -> None:
    api = Api("plain", "apigw_rest_v1", world).made()

    def request(who: str) -> Any:
        made = event("apigw_rest_v1")
        for name, value in (("authorizer", authorizer), ("identity", identity)):
            made["requestContext"][name] = json.loads(json.dumps(value).replace("WHO", who))
        return made

    assert [said(api(request(who)))[1]["order"] for who in "abab"] == [1, 2, 1, 2]


def test_a_request_without_a_caller_is_an_error_of_the_set_up(rest: Api, event: Load) -> None:
    request = event("apigw_rest_v1")
    del request["requestContext"]["authorizer"]

    with pytest.raises(MissingKeyError, match="caller="):
        rest.made()(request)
    assert rest.served == []
    assert said(rest.made(caller=None)(request)) == (201, {"order": 1})


def test_the_caller_can_be_an_expression_or_a_callable(rest: Api, event: Load) -> None:
    tenant = 'requestContext.authorizer.claims."custom:tenant"'
    for caller in (
        tenant,
        lambda request: request["requestContext"]["authorizer"]["claims"]["custom:tenant"],
    ):
        api = rest.made(caller=caller, operation=str(callable(caller)))
        rest.served.clear()
        colleague = event("apigw_rest_v1")
        colleague["requestContext"]["authorizer"]["claims"]["sub"] = "user-43"
        other = event("apigw_rest_v1_same_key_other_tenant")
        for request in (event("apigw_rest_v1"), colleague, other):
            api(request)
        assert len(rest.served) == 2


def test_the_same_body_in_another_spelling_is_the_same_request(rest: Api, event: Load) -> None:
    api = rest.made()
    encoded = event("apigw_rest_v1")
    encoded.update(body=base64.b64encode(encoded["body"].encode()).decode(), isBase64Encoded=True)

    for request in (
        event("apigw_rest_v1"),
        event("apigw_rest_v1_same_key_reordered_body"),
        encoded,
    ):
        assert said(api(request)) == (201, {"order": 1})


def test_another_body_under_a_key_is_refused_done_or_in_flight(rest: Api, event: Load) -> None:
    refused: list[Any] = []

    def other() -> Any:
        return api(event("apigw_rest_v1_same_key_other_body"))

    def work(body: Any) -> dict[str, Any]:
        with ThreadPoolExecutor(1) as elsewhere:
            refused.append(elsewhere.submit(other).result())
        return {"status": 201, "body": {}}

    rest.work = work
    api = rest.made()
    api(event("apigw_rest_v1"))
    refused.append(other())
    forget()
    refused.append(other())

    assert [problem(reply)["status"] for reply in refused] == [422] * 3
    assert len(api.served) == 1


def test_what_the_fingerprint_is_taken_of_is_a_choice(rest: Api, event: Load) -> None:
    api = rest.made(fingerprint="http_body(@).order_id")
    other = event("apigw_rest_v1_same_key_other_body")
    same = json.loads(other["body"])["order_id"] == "ORD-6001"
    api(event("apigw_rest_v1"))
    assert (api(other)["statusCode"] == 201) is same

    none = rest.made(fingerprint=None, operation="no fingerprint")
    none(event("apigw_rest_v1"))
    assert none(event("apigw_rest_v1_same_key_other_body"))["statusCode"] == 201


# In flight


def test_a_request_whose_first_is_at_work_is_told_when_to_come_back(rest: Api, event: Load) -> None:
    refused: list[Any] = []

    def work(body: Any) -> dict[str, Any]:
        with ThreadPoolExecutor(1) as elsewhere:
            refused.append(elsewhere.submit(api, event("apigw_rest_v1")).result())
        return {"status": 201, "body": {}}

    rest.work = work
    for on_in_flight, retry_after in (("raise", "31"), ("skip", None)):
        api = rest.made(on_in_flight=on_in_flight, operation=on_in_flight)
        assert api(event("apigw_rest_v1"))["statusCode"] == 201
        reply = refused.pop()
        assert problem(reply)["status"] == 409
        assert header(reply, "Retry-After") in (retry_after, [retry_after])
    assert len(rest.served) == 2


def test_a_refusal_by_work_inside_the_work_is_not_about_the_requests_key(
    world: World, event: Load
) -> None:
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="inner")
    guard.claim("stock")

    @idempotent_http(ledger=world.ledger, clock=world.clock)
    def handler(event: Any, context: Any) -> Any:
        return guard.run_exactly_once("stock", lambda: 1).result

    with pytest.raises(InFlightError) as refused:
        handler(event("apigw_rest_v1"), in_time(world))
    assert refused.value.operation == "inner"


# What is stored


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_5xx_reply_is_given_and_the_next_request_tries_again(
    rest: Api, event: Load, status: int
) -> None:
    rest.work = lambda body: (
        {"status": status, "body": {"failed": 1}}
        if len(rest.served) == 1
        else {"status": 201, "body": {}}
    )
    api = rest.made(permanent=(Exception,), store_4xx=True)

    assert said(api(event("apigw_rest_v1"))) == (status, {"failed": 1})
    assert said(api(event("apigw_rest_v1"))) == (201, {})
    assert header(api(event("apigw_rest_v1")), "Idempotency-Replayed") is not None
    assert len(rest.served) == 2


@pytest.mark.parametrize("store", [False, True])
def test_whether_a_4xx_reply_is_stored_is_a_choice(rest: Api, event: Load, store: bool) -> None:
    rest.work = lambda body: {"status": 404, "body": {"n": len(rest.served)}}
    api = rest.made(store_4xx=store)

    replies = [said(api(event("apigw_rest_v1"))) for _ in range(2)]

    assert replies == [(404, {"n": 1}), (404, {"n": 1 if store else 2})]


def test_what_the_handler_raises_leaves_unchanged_and_is_not_stored(
    world: World, event: Load
) -> None:
    runs: list[int] = []

    @idempotent_http(ledger=world.ledger, clock=world.clock)
    def handler(event: Any, context: Any) -> Any:
        runs.append(1)
        if len(runs) == 1:
            raise ConnectionError("no stock")
        return {"statusCode": 201}

    with pytest.raises(ConnectionError, match="no stock"):
        handler(event("apigw_rest_v1"), in_time(world))
    assert handler(event("apigw_rest_v1"), in_time(world)) == {"statusCode": 201}


@pytest.mark.parametrize("store", [False, True])
def test_errors_that_a_resolver_makes_replies_of_follow_the_same_rule(
    world: World, event: Load, store: bool
) -> None:
    app = APIGatewayRestResolver()
    runs: list[int] = []
    options: Any = {"ledger": world.ledger, "clock": world.clock}

    def not_there(error: LookupError) -> Response[Any]:
        return Response(status_code=404, content_type="text/plain", body=f"no {len(runs)}")

    app.exception_handler(LookupError)(not_there)

    @app.post("/v1/orders", middlewares=[IdempotencyKey(store_4xx=store, **options)])
    def order() -> dict[str, Any]:
        runs.append(1)
        if len(runs) < 3:
            raise InternalServerError("down") if len(runs) == 1 else BadRequestError("bad")
        raise LookupError

    def post() -> Any:
        return app.resolve(event("apigw_rest_v1"), in_time(world))

    assert post()["statusCode"] == 500
    first, second = post(), post()
    assert said(first) == (400, {"statusCode": 400, "message": "bad"})
    if store:
        assert said(second) == said(first)
        assert header(second, "Idempotency-Replayed") == ["true"]
        assert len(runs) == 2
    else:
        assert (second["statusCode"], second["body"]) == (404, "no 3")


def test_an_error_that_no_resolver_handles_leaves_unchanged(world: World, event: Load) -> None:
    app = APIGatewayRestResolver()

    @app.post("/v1/orders", middlewares=[IdempotencyKey(store_4xx=True, ledger=world.ledger)])
    def order() -> dict[str, Any]:
        raise ConnectionError("no stock")

    with pytest.raises(ConnectionError, match="no stock"):
        app.resolve(event("apigw_rest_v1"), in_time(world))


def test_a_reply_too_large_to_be_kept_is_not_repeated(event: Load, form: str) -> None:
    world = ssm_world()
    rest = Api(form, "apigw_rest_v1", world)
    noise = Random(1).randbytes(6_000).hex()
    rest.work = lambda body: {"status": 201, "body": {"noise": noise}}
    api = rest.made(local_cache=False)

    assert api(event("apigw_rest_v1"))["statusCode"] == 201
    reply = api(event("apigw_rest_v1"))
    assert problem(reply)["status"] == 409
    assert header(reply, "Retry-After") is None
    assert len(rest.served) == 1

    instead = rest.made(
        local_cache=False, on_duplicate=lambda event, context: {"statusCode": 200, "body": '"done"'}
    )
    reply = instead(event("apigw_rest_v1"))
    assert said(reply) == (200, "done")
    assert header(reply, "Idempotency-Replayed") in ("true", ["true"])


def test_a_ledger_that_throttles_is_a_503_and_nothing_runs(event: Load, form: str) -> None:
    world = ssm_world()
    world.ssm.inject("PutParameter", Fault.throttle(), times=1000)
    rest = Api(form, "apigw_rest_v1", world).made()

    reply = rest(event("apigw_rest_v1"))

    assert problem(reply)["status"] == 503
    assert header(reply, "Retry-After") in ("1", ["1"])
    assert rest.served == []


def test_problems_point_to_the_apis_own_documentation(rest: Api, event: Load) -> None:
    request = event("apigw_rest_v1_no_key")
    plain = problem(rest.made()(request))
    assert (plain["type"], plain["title"]) == ("about:blank", "Bad Request")
    pointed = problem(rest.made(documentation="https://shop.example/keys")(request))
    assert (pointed["type"], pointed["title"]) == ("https://shop.example/keys", "Missing key")


# Plain handlers


@pytest.mark.parametrize("bare", [{"order": 1}, "done", None, [1]])
def test_a_reply_without_a_status_is_replayed_as_the_one_it_stands_for(
    world: World, event: Load, bare: Any
) -> None:
    @idempotent_http(ledger=world.ledger, clock=world.clock)
    def handler(event: Any, context: Any) -> Any:
        return bare

    assert handler(event("apigw_http_v2"), in_time(world)) == bare
    reply = handler(event("apigw_http_v2"), in_time(world))
    assert reply["statusCode"] == 200
    assert reply["headers"]["Content-Type"] == "application/json"
    assert reply["headers"]["Idempotency-Replayed"] == "true"
    assert reply["body"] == (bare if isinstance(bare, str) else json.dumps(bare))
    # A REST API takes no such reply: it is given again as it was.
    assert handler(event("apigw_rest_v1"), in_time(world)) == bare
    assert handler(event("apigw_rest_v1"), in_time(world)) == bare


def test_a_plain_handler_takes_data_classes(source: str, world: World, event: Load) -> None:
    served: list[Any] = []
    caller: Any = {"caller": None} if source in ANONYMOUS else {}

    @event_source(data_class=SOURCES[source][1])
    @idempotent_http(ledger=world.ledger, clock=world.clock, operation="order", **caller)
    def above(event: Any, context: Any) -> Any:
        served.append(event.json_body)
        return {"statusCode": 201, "body": "WHO"}

    @idempotent_http(ledger=world.ledger, clock=world.clock, operation="order", **caller)
    @event_source(data_class=SOURCES[source][1])
    def below(event: Any, context: Any) -> Any:
        served.append(event.json_body)
        return {"statusCode": 201, "body": "WHO"}

    assert above(event(source), in_time(world))["statusCode"] == 201
    assert below(event(source), in_time(world))["statusCode"] == 201
    assert len(served) == 1


def test_the_claim_is_there_for_steps_and_effect_keys(rest: Api, event: Load) -> None:
    claims: list[Any] = []

    def work(body: Any) -> dict[str, Any]:
        claims.append(current_claim())
        return {"status": 201, "body": {}}

    rest.work = work
    rest.made(operation="place-order")(event("apigw_rest_v1"))
    [claim] = claims
    assert (claim.operation, claim.attempt, claim.lease) == ("place-order", 1, 30.5)


def test_name_and_docstring_are_kept() -> None:
    @idempotent_http()
    def handler(event: Any, context: Any) -> Any:
        """Places an order."""

    assert (handler.__name__, handler.__doc__) == ("handler", "Places an order.")


def test_what_cannot_be_is_refused_at_decoration() -> None:
    with pytest.raises(InvalidKeyExpression, match="caller"):
        idempotent_http(caller="a[")
    with pytest.raises(InvalidKeyExpression, match="fingerprint"):
        IdempotencyKey(fingerprint="a[")
    with pytest.raises(InvalidOption, match="on_duplicate"):
        IdempotencyKey(result="omit")
    with pytest.raises(InvalidOption, match="await"):

        @idempotent_http()
        async def handler(event: Any, context: Any) -> Any:
            pass


# Resolvers


@pytest.fixture
def app() -> APIGatewayRestResolver:
    return APIGatewayRestResolver(cors=CORSConfig(allow_origin="https://shop.example"))


def test_a_response_is_rebuilt_with_cookies_bytes_and_cors(
    app: APIGatewayRestResolver, world: World, event: Load
) -> None:
    @app.post("/v1/orders", middlewares=[IdempotencyKey(ledger=world.ledger)])
    def order() -> Response[bytes]:
        return Response(
            status_code=201,
            content_type="application/pdf",
            body=b"\x00\xff",
            headers={"X-Many": ["a", "b"]},
            cookies=[Cookie(name="sid", value="1"), Cookie(name="lang", value="de")],
        )

    request = event("apigw_rest_v1")
    request["headers"]["Origin"] = "https://shop.example"
    request["multiValueHeaders"]["Origin"] = ["https://shop.example"]
    first, again = (app.resolve(request, in_time(world)) for _ in range(2))

    assert again["multiValueHeaders"].pop("Idempotency-Replayed") == ["true"]
    assert again == first
    assert first["isBase64Encoded"] is True
    assert first["multiValueHeaders"]["X-Many"] == ["a", "b"]
    assert len(first["multiValueHeaders"]["Set-Cookie"]) == 2
    assert first["multiValueHeaders"]["Access-Control-Allow-Origin"] == ["https://shop.example"]


def test_middlewares_outside_see_the_same_body_on_replay(world: World, event: Load) -> None:
    class Money:
        """Known to the app's serializer only."""

        def __str__(self) -> str:
            return "12.50 EUR"

    app = APIGatewayRestResolver(serializer=lambda body: json.dumps(body, default=str))
    seen: list[Any] = []

    def outer(app: Any, next_middleware: Any) -> Any:
        response = next_middleware(app)
        seen.append(response.body)
        return response

    app.use(middlewares=[outer, IdempotencyKey(ledger=world.ledger)])

    @app.post("/v1/orders")
    def order() -> dict[str, Any]:
        return {"total": Money()}

    replies = [app.resolve(event("apigw_rest_v1"), in_time(world)) for _ in range(2)]
    assert seen[0] == seen[1]
    assert said(replies[0]) == said(replies[1]) == (200, {"total": "12.50 EUR"})


def test_a_middleware_on_one_route_leaves_the_others_alone(
    app: APIGatewayRestResolver, world: World, event: Load
) -> None:
    runs: list[str] = []

    @app.post("/v1/orders", middlewares=[IdempotencyKey(ledger=world.ledger)])
    def order() -> dict[str, Any]:
        runs.append("order")
        return {}

    @app.post("/v1/search")
    def search() -> dict[str, Any]:
        runs.append("search")
        return {}

    request = keyed(event("apigw_rest_v1"))
    request["path"] = "/v1/search"
    assert app.resolve(request, in_time(world))["statusCode"] == 200
    for _ in range(2):
        app.resolve(event("apigw_rest_v1"), in_time(world))
    assert runs == ["search", "order"]


def test_a_resolver_that_validates_is_guarded_behind_its_validation(
    world: World, event: Load
) -> None:
    from pydantic import BaseModel

    class Order(BaseModel):
        order_id: str
        amount: Decimal

    app = APIGatewayRestResolver(enable_validation=True)
    runs: list[str] = []

    def place(order: Order) -> Order:
        runs.append(order.order_id)
        return order

    place.__annotations__ = {"order": Order, "return": Order}
    app.post("/v1/orders", middlewares=[IdempotencyKey(ledger=world.ledger)])(place)

    broken = event("apigw_rest_v1")
    broken["body"] = "{}"
    assert app.resolve(broken, in_time(world))["statusCode"] == 422
    replies = [app.resolve(event("apigw_rest_v1"), in_time(world)) for _ in range(2)]
    assert (
        said(replies[0]) == said(replies[1]) == (200, {"order_id": "ORD-6001", "amount": "12.50"})
    )
    assert runs == ["ORD-6001"]


async def _resolved(app: Any, event: Any, context: Any) -> Any:
    return await app.resolve_async(event, context)


def test_async_routes_are_guarded_too(world: World, event: Load) -> None:
    import asyncio

    app = APIGatewayRestResolver()
    runs: list[int] = []

    @app.post("/v1/orders", middlewares=[IdempotencyKey(ledger=world.ledger, operation="order")])
    async def order() -> dict[str, Any]:
        await asyncio.sleep(0)
        runs.append(current_claim().attempt)
        return {"order": len(runs)}

    replies = [
        asyncio.run(_resolved(app, event("apigw_rest_v1"), in_time(world))) for _ in range(2)
    ]
    assert said(replies[0]) == said(replies[1]) == (200, {"order": 1})
    assert runs == [1]
