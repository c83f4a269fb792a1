"""Fulfils an order in three steps, each done once, whichever of them fails or is killed.

What a step returns is kept in the claim's own record. The attempt after a failure or a crash gets
it from there and goes on with the first step that is not done. One gap no record can close: killed
between a call's effect and the note of it, the step is called again. So each call carries an effect
key, the same in every attempt, and the service behind it drops the repeat.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard import effect_key, idempotent, step

logger = Logger(service="fulfilment")


@logger.inject_lambda_context
@idempotent(key="detail.metadata.idempotency_key", operation="fulfil-order", logger=logger)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    order = event["detail"]["data"]
    stock = step("reserve", reserve, order["order_id"])
    payment = step("charge", charge, order["order_id"], order["amount_cents"])
    parcel = step("send", send, stock, payment)
    return {"reservation": stock, "payment": payment, "parcel": parcel}


def reserve(order_id: str) -> str:
    return request("reservation", effect_key("reserve"))


def charge(order_id: str, amount_cents: int) -> str:
    return request("payment", effect_key("charge"))


def send(reservation: str, payment: str) -> str:
    return request("parcel", effect_key("send"))


#: Every call, as the services behind the steps see them.
requests: list[str] = []
#: What they did, by idempotency key: they answer a repeated request with the first one's answer.
effects: dict[str, str] = {}


def request(kind: str, idempotency_key: str) -> str:
    """Stands in for three services that know an idempotency key, as payment providers do."""
    requests.append(kind)
    return effects.setdefault(idempotency_key, f"{kind}-{len(effects) + 1}")
