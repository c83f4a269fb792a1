"""Expires a registration once, however often its event is delivered.

EventBridge delivers at least once, Lambda tries a failed asynchronous call twice more, and the
producer may send the same expiry again under a new event id. So the key is what the event is about,
not its id: kind, record and date. Everything else of the event may differ.

Deploy it from this folder: `sam build && sam deploy --guided`. Run it without AWS: `make demo`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import boto3
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard import effect_key, idempotent

logger = Logger(service="registration-expiry")


@logger.inject_lambda_context
@idempotent(
    key='["detail-type", detail.recordId, detail.effectiveDate]',
    operation="registration-expiry",
    logger=logger,
)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    record_id = event["detail"]["recordId"]
    publish("RegistrationClosed", record_id)
    publish("OwnerNoticeDue", record_id)
    logger.info("registration expired")
    return {"recordId": record_id, "status": "EXPIRED"}


#: Stands in for the topic where there is none, as in the demo: it drops repeats as a FIFO topic does.
published: dict[str, dict[str, str]] = {}


def publish(kind: str, record_id: str) -> None:
    """Send one message.

    An attempt that is killed after sending is done again when its lease is over. The effect key is
    the same then, so the topic drops the second message (for five minutes, and subscribers can
    tell it by the same id for ever).
    """
    message = {
        "Message": json.dumps({"kind": kind, "recordId": record_id}),
        "MessageGroupId": record_id,
        "MessageDeduplicationId": effect_key(kind),
    }
    if topic := os.environ.get("TOPIC_ARN"):
        boto3.client("sns").publish(TopicArn=topic, **message)
    else:
        published.setdefault(message["MessageDeduplicationId"], message)
