"""The Idempotency-Key header: a decorator for plain handlers, a middleware for Powertools' resolvers.

```python
@idempotent_http()
def handler(event, context): ...


app = APIGatewayRestResolver()


@app.post("/orders", middlewares=[IdempotencyKey()])
def place_order(): ...
```

Both follow https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/:

| request | answer |
|---|---|
| GET, HEAD, OPTIONS, TRACE | passes through |
| no key, or a malformed one | 400 |
| its first is still at work | 409, with `Retry-After` where known |
| its first is done, and its reply was not kept | 409, without `Retry-After` |
| its key came with another payload | 422 |
| the ledger throttles or does not answer | 503, with `Retry-After`; nothing was run |
| its first is done | the first reply, with `Idempotency-Replayed: true` |

Refusals are ``application/problem+json``. A 5xx reply is given and not stored, as is what the handler
raises: the client may try again. Of 4xx replies, `store_4xx` decides.

The header's value is a quoted string of RFC 8941; a bare token (a UUID as it is) is taken too and is
the same key. It has at most 255 characters, and is sent once.

A key is unique to its client only, so the identity is caller, method, path and key. The fingerprint
is taken of the decoded body: the order of its JSON attributes and base64 do not matter.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import InvalidOption
from .http_endpoint import CALLER, Endpoint, Kind
from .http_messages import Reply, marked, shaped

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..decorator import KeySource
    from ..options import OptionArgs

E = TypeVar("E")
C = TypeVar("C")
R = TypeVar("R")


def idempotent_http(
    *,
    caller: KeySource | None = CALLER,
    header: str = "Idempotency-Key",
    store_4xx: bool = False,
    documentation: str | None = None,
    **options: Unpack[OptionArgs],
) -> Callable[[Callable[[E, C], R]], Callable[[E, C], R]]:
    """Make a plain handler of HTTP requests, ``handler(event, context)``, answer a key once.

    Args:
        caller: who sends the request: a JMESPath expression or a callable over the event. A request
            without one is an error of the set-up and raises `MissingKeyError`. Without an authorizer,
            name what tells callers apart (behind a load balancer that authenticates:
            ``"header(@, 'x-amzn-oidc-identity')"``); None lets all clients share their keys, which
            is right only where a reply is no secret.
        header: the name of the header.
        store_4xx: whether replies from 400 to 499 are stored and replayed too.
        documentation: a URL that explains the API's keys; it becomes the problems' `type`.
        options: as for `idemguard.idempotent`. `fingerprint` is ``"http_body(@)"`` unless given;
            ``on_missing_key="run"`` makes the header optional; `on_duplicate` is called with event and
            context for a duplicate whose reply was not kept; ``on_in_flight="skip"`` is as good as
            ``"raise"``.

    Raises:
        InvalidOption, InvalidKeyExpression: an option cannot be used, or the handler is async.
    """
    endpoint = Endpoint(caller, header, store_4xx, documentation, options)

    def decorate(handler: Callable[[E, C], R]) -> Callable[[E, C], R]:
        if inspect.iscoroutinefunction(handler):
            raise InvalidOption(
                "idempotent_http: Lambda does not await a handler; pass a plain one"
            )
        operation = f"{handler.__module__}.{handler.__qualname__}"

        @functools.wraps(handler)
        def wrapper(event: E, context: C) -> R:
            kind, reply = endpoint.answer(
                operation, event, context, lambda: handler(event, context)
            )
            if kind is Kind.OWN:
                return cast(R, reply)
            return cast(R, shaped(reply if kind is Kind.PROBLEM else marked(reply, event), event))

        return wrapper

    return decorate


class IdempotencyKey:
    """A middleware for Powertools' HTTP resolvers: for an app, ``app.use([IdempotencyKey()])``, or a route.

    Takes what `idempotent_http` takes. Replies are stored as the route's `Response` is: status,
    headers, cookies and the serialized body, which middlewares outside of this one see too. Best put
    on the routes that have an effect; on a whole app it also asks requests that no route answers
    for a key.

    Raises:
        InvalidOption, InvalidKeyExpression: an option cannot be used.
    """

    def __init__(
        self,
        *,
        caller: KeySource | None = CALLER,
        header: str = "Idempotency-Key",
        store_4xx: bool = False,
        documentation: str | None = None,
        **options: Unpack[OptionArgs],
    ) -> None:
        # Powertools asks every middleware for its name.
        self.__name__ = "IdempotencyKey"
        self._store_4xx = store_4xx
        self._endpoint = Endpoint(caller, header, store_4xx, documentation, options)

    def __call__(self, app: Any, next_middleware: Callable[[Any], Any]) -> Any:
        """Answer one request of a resolver."""
        event = app.current_event.raw_event
        own: Any = None

        def work() -> Reply:
            nonlocal own
            own = self._respond(app, next_middleware)
            return _to_reply(app, own)

        kind, reply = self._endpoint.answer("http", event, app.lambda_context, work)
        if kind is Kind.OWN:
            return own
        return _to_response(reply if kind is Kind.PROBLEM else marked(reply, event))

    def _respond(self, app: Any, next_middleware: Callable[[Any], Any]) -> Any:
        try:
            return next_middleware(app)
        except Exception as error:
            if not self._store_4xx:
                raise
            # Powertools would make a reply of it outside of the middlewares, where it is too late.
            builder = app._call_exception_handler(error, app.context.get("_route"))
            if builder is None:
                raise
            return builder.response


def _to_reply(app: Any, response: Any) -> Reply:
    """A Powertools Response as plain data; its body is serialized in place, as it would be later."""
    if response.is_json() and not isinstance(response.body, str):
        response.body = app._serializer(response.body)
    return {
        "statusCode": response.status_code,
        "headers": dict(response.headers),
        "body": response.body,
        "cookies": [str(cookie) for cookie in response.cookies],
        "compress": response.compress,
    }


def _to_response(reply: Reply) -> Any:
    from aws_lambda_powertools.event_handler import Response

    return Response(
        status_code=reply["statusCode"],
        body=reply.get("body"),
        headers=reply.get("headers"),
        cookies=reply.get("cookies"),
        compress=reply.get("compress"),
    )
