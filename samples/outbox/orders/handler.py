"""Places an order: the row and the event that tells of it are committed together.

A database and a topic cannot commit together, so a crash between them would leave an order of which
nobody hears, or an event of an order that is not there. The event is therefore written into the
same database in the same transaction, and the relay (`relay.py`) publishes it from there.

The event's id is an effect key, the same in every attempt: an attempt after a crash finds the row of
the one before it, and the relay and the subscribers know a repeat by it. The tables are in
`database.py`; `Database.from_environment().create_tables()` makes them where they are not there.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard import effect_key, idempotent

from .database import Database, Transaction

logger = Logger(service="orders")


@logger.inject_lambda_context
@idempotent(key="order_id", operation="place-order", logger=logger)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    with Database.from_environment().transaction() as transaction:
        place(transaction, event["order_id"], event["amount_cents"], effect_key("OrderPlaced"))
    return {"order_id": event["order_id"], "status": "PLACED"}


def place(transaction: Transaction, order_id: str, amount_cents: int, event_id: str) -> None:
    if transaction.execute("SELECT 1 FROM outbox WHERE effect_key = ?", event_id):
        return  # An earlier attempt was killed after its commit.
    transaction.execute("INSERT INTO orders VALUES (?, ?)", order_id, amount_cents)
    transaction.execute(
        "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, 0)",
        event_id,
        datetime.now(timezone.utc).isoformat(),
        "OrderPlaced",
        order_id,
        json.dumps({"order_id": order_id, "amount_cents": amount_cents}),
    )
