"""Places an order by HTTP; a client may send the same request again until it has an answer.

The identity is caller, method, path and the client's Idempotency-Key, for a key is unique to its
client only: taken alone, it would hand one caller's reply to another. The body must not change
under a key. A reply is stored and given again; an exception is not, so the client may try again.
"""

from __future__ import annotations

import json
from math import ceil
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard import (
    InFlightError,
    LedgerUnavailable,
    MissingKeyError,
    PayloadMismatchError,
    ResultNotStoredError,
    idempotent,
    sources,
)

logger = Logger(service="orders")

#: Stands in for the orders' database.
placed: list[str] = []


@idempotent(
    key=sources.APIGW_HTTP,
    fingerprint="http_body(@)",
    operation="place-order",
    logger=logger,
)
def place_order(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    order = APIGatewayProxyEventV2(event).json_body
    placed.append(order["order_id"])
    return reply(201, {"order_id": order["order_id"], "status": "PLACED"})


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    try:
        return place_order(event, context)
    except MissingKeyError:
        return problem(400, "Send an Idempotency-Key header")
    except PayloadMismatchError:
        return problem(422, "This Idempotency-Key was used with another body")
    except InFlightError as busy:
        wait = ceil(busy.retry_after or 1)
        return problem(409, "The first request is still at work", {"Retry-After": str(wait)})
    except ResultNotStoredError:
        return problem(409, "The request is done, and its reply was not kept")
    except LedgerUnavailable:
        return problem(503, "Nothing was done; send the request again", {"Retry-After": "1"})


def reply(status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "statusCode": status,
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps(body),
    }


def problem(status: int, title: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "statusCode": status,
        "headers": {"Content-Type": "application/problem+json", **(headers or {})},
        "body": json.dumps({"status": status, "title": title}),
    }
