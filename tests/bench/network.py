"""AWS clients with the network taken away: a request is built and signed, a canned answer parsed."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from botocore.awsrequest import AWSResponse

Answer = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]


class _Raw(io.BytesIO):
    def stream(self, **_: Any) -> Any:
        yield self.read()


def answer_with(client: Any, answer: Answer) -> list[str]:
    """Let `answer(operation, request)` answer a client's calls; the list fills with operations."""
    calls: list[str] = []

    def respond(request: Any, **_: Any) -> AWSResponse:
        operation = re.split(rb"\.", request.headers["X-Amz-Target"])[-1].decode()
        calls.append(operation)
        status, body = answer(operation, json.loads(request.body))
        text = json.dumps(body).encode()
        headers = {
            "content-type": "application/x-amz-json-1.1",
            "content-length": str(len(text)),
            "date": formatdate(usegmt=True),
            "x-amzn-requestid": "r",
        }
        return AWSResponse(request.url, status, headers, _Raw(text))

    client.meta.events.register(f"before-send.{client.meta.service_model.endpoint_prefix}", respond)
    return calls


class Parameters:
    """As much of Parameter Store as deliveries need."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[int, str, float]] = {}

    def __call__(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        import time

        name = request["Name"]
        kept = self.kept.get(name)
        if operation == "PutParameter":
            if kept and not request["Overwrite"]:
                return 400, {"__type": "ParameterAlreadyExists"}
            number = kept[0] + 1 if kept else 1
            self.kept[name] = (number, request["Value"], time.time())
            return 200, {"Version": number, "Tier": "Standard"}
        if kept is None:
            return 400, {"__type": "ParameterNotFound"}
        number, value, modified = kept
        return 200, {
            "Parameter": {
                "Name": name,
                "Type": "String",
                "Value": value,
                "Version": number,
                "LastModifiedDate": modified,
            }
        }


class Table:
    """As much of DynamoDB as the peer needs."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    def __call__(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if operation == "PutItem":
            item = request["Item"]
            name = item["id"]["S"]
            kept = self.kept.get(name)
            if kept is not None:
                return 400, {"__type": "ConditionalCheckFailedException", "Item": kept}
            self.kept[name] = item
            return 200, {}
        item = self.kept[request["Key"]["id"]["S"]]
        item["status"] = {"S": "COMPLETED"}
        item["data"] = {"S": '{"statusCode": 200}'}
        return 200, {}
