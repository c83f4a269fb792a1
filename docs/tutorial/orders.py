"""Takes the payment of an order and mails the receipt, each once."""

from __future__ import annotations

from typing import Any

from idemguard import effect_key, idempotent, step


@idempotent(key="detail.order_id", operation="pay-order")
def handler(event: dict[str, Any], context: Any) -> dict[str, str]:
    order = event["detail"]
    payment = step("charge", charge, order["order_id"], order["amount"])
    step("mail", mail, order["order_id"], payment)
    return {"order_id": order["order_id"], "payment": payment}


def charge(order_id: str, amount: int) -> str:
    return provider.charge(amount, idempotency_key=effect_key("charge"))


def mail(order_id: str, payment: str) -> None:
    mailer.send(f"Order {order_id} is paid: {payment}", idempotency_key=effect_key("mail"))


class Provider:
    """Stands in for the client of a payment provider."""

    def charge(self, amount: int, *, idempotency_key: str) -> str:
        return f"PAY-{idempotency_key[:4]}"


class Mailer:
    """Stands in for the client of a mail service."""

    def send(self, text: str, *, idempotency_key: str) -> None: ...


provider, mailer = Provider(), Mailer()
