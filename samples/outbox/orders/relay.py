"""Publishes the rows of the outbox, each one once, and marks them.

Run every minute. Killed between publishing a row and marking it, the relay meets the row again:
its effect key is the ledger's key, so the row is a duplicate that is only marked. Killed between
the topic's answer and the completed record, it sends the row again, with the same deduplication id.
"""

from __future__ import annotations

import os
from typing import Any

import boto3
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard import InFlightError, idempotent

from .database import Database

logger = Logger(service="outbox-relay")

#: Rows of one run: what is left over is the next run's.
BATCH = 100
#: Milliseconds in which a row is published and marked.
ENOUGH = 5_000


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> int:
    """Gives the number of rows marked."""
    database, marked = Database.from_environment(), 0
    for row in waiting(database):
        if context.get_remaining_time_in_millis() < ENOUGH:
            break
        try:
            publish(row, context)
        except InFlightError:
            continue  # Another relay is at this row, and will mark it.
        except Exception:
            # It stays in the outbox, and does not keep the rows behind it from going out.
            logger.exception("a row could not be published")
            continue
        with database.transaction() as transaction:
            transaction.execute(
                "UPDATE outbox SET published = 1 WHERE effect_key = ?", row["effect_key"]
            )
        marked += 1
    return marked


def waiting(database: Database) -> list[dict[str, str]]:
    """The oldest rows that are not marked."""
    with database.transaction() as transaction:
        rows = transaction.execute(
            "SELECT effect_key, kind, subject, payload FROM outbox WHERE published = 0 "
            "ORDER BY created, effect_key",
            most=BATCH,
        )
    return [
        dict(zip(("effect_key", "kind", "subject", "payload"), row, strict=True)) for row in rows
    ]


@idempotent(key="effect_key", operation="publish-event", logger=logger)
def publish(row: dict[str, str], context: LambdaContext) -> None:
    message = {
        "Subject": row["kind"],
        "Message": row["payload"],
        "MessageGroupId": row["subject"],
        "MessageDeduplicationId": row["effect_key"],
    }
    sent.append(row["effect_key"])
    if topic := os.environ.get("TOPIC_ARN"):
        boto3.client("sns").publish(TopicArn=topic, **message)
    else:
        published.setdefault(row["effect_key"], message)


#: Every sending, and what a FIFO topic makes of it where there is none: it drops repeats.
sent: list[str] = []
published: dict[str, dict[str, str]] = {}
