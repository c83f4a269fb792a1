"""Indexes each upload once, whether S3 tells of it directly, by EventBridge, or by both.

One write of one object is bucket, name and sequencer. In a direct notification the name is URL
encoded and in EventBridge it is not; the key decodes it, so the same write has the same key on both
ways, and one may move from the one to the other while uploads go on.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_plus

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard import idempotent, sources

logger = Logger(service="uploads")

#: Stands in for the index.
indexed: list[str] = []


@idempotent(
    key=f"{sources.S3_OBJECT} || {sources.S3_OBJECT_EVENTBRIDGE}",
    operation="index-upload",
    logger=logger,
)
def index(upload: dict[str, Any], context: LambdaContext) -> None:
    if "s3" in upload:
        name = unquote_plus(upload["s3"]["object"]["key"])
    else:
        name = upload["detail"]["object"]["key"]
    indexed.append(name)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> None:
    if event.get("Event") == "s3:TestEvent":
        return  # Sent once when the notification is set up; it tells of no upload.
    for upload in event.get("Records", [event]):
        index(upload, context)
