"""A handler with an effect that its author did not think of."""

from __future__ import annotations

from typing import Any

from idemguard import effect_key, idempotent, step


class Provider:
    """The client of a payment provider, which drops repeats by its key."""

    def charge(self, amount: int, *, idempotency_key: str) -> str:
        return "PAY-1"


class Repository:
    """The orders' database."""

    def mark_paid(self, order_id: str) -> None:
        # Marking a row twice does no harm. But this came later:
        mailer.send(f"Order {order_id} is paid")


class Mailer:
    def send(self, text: str) -> None: ...


provider, repository, mailer = Provider(), Repository(), Mailer()


@idempotent(key="order_id", operation="pay-order")
def handler(event: dict[str, Any], context: Any) -> str:
    payment = step("charge", charge, event["amount"])
    repository.mark_paid(event["order_id"])
    return payment


def charge(amount: int) -> str:
    return provider.charge(amount, idempotency_key=effect_key("charge"))
