"""Ships each order of an SQS batch once; only the messages that failed are delivered again.

The record handler is decorated, not the handler of the batch: one bad message would otherwise run
the nine good ones again. The key is an id in the body, so a message that the producer sent twice
is one order too; `idemguard.sources.SQS_MESSAGE` would only stop the queue's own redelivery.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard import idempotent

logger = Logger(service="shipping")
processor = BatchProcessor(event_type=EventType.SQS)

#: Stands in for the call that ships an order.
shipped: list[str] = []


# Powertools hands the context over under this name. It tells the lease: the time that is left.
@idempotent(
    key="powertools_json(body).order_id",
    argument="record",
    operation="ship-order",
    logger=logger,
)
def ship(record: SQSRecord, lambda_context: LambdaContext) -> str:
    order = record.json_body
    if not order["address"]:
        raise ValueError("an order without an address cannot be shipped")
    shipped.append(order["order_id"])
    return f"shipment of {order['order_id']}"


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    return process_partial_response(
        event=event, record_handler=ship, processor=processor, context=context
    )
