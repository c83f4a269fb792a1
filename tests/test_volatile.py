"""Keys that change from delivery to delivery are named at decoration, and good keys are not."""

from __future__ import annotations

from typing import Any

import pytest

from idemguard import sources
from idemguard.keys import Selector
from idemguard.volatile import findings


def fields(expression: Any) -> list[str]:
    return [finding.field for finding in findings(Selector(expression))]


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("receiptHandle", "receiptHandle"),
        ("Records[0].receiptHandle", "receiptHandle"),
        ("Records[].[messageId, receiptHandle]", "receiptHandle"),
        ("{id: messageId, n: attributes.ApproximateReceiveCount}", "ApproximateReceiveCount"),
        ("Records[?body].attributes.SentTimestamp", "SentTimestamp"),
        ("join('-', [messageId, attributes.ApproximateFirstReceiveTimestamp])", "FirstReceive"),
        ("Records[0].attributes", "attributes"),
        ("Records[0]", "Records"),
        ("Records[0].Sns.Timestamp", "Sns.Timestamp"),
        ("Sns.[MessageId, Signature]", "Sns.Signature"),
        ("Records[].Sns", "Sns"),
        ("powertools_json(body).[MessageId, Timestamp]", "body().Timestamp"),
        ("Records[0].[s3.object.key, eventTime]", "eventTime"),
        ('responseElements."x-amz-request-id"', "responseElements"),
        ("kinesis.approximateArrivalTimestamp", "approximateArrivalTimestamp"),
        ("Records[].[eventID, dynamodb.ApproximateCreationDateTime]", "ApproximateCreation"),
        ("records.*[].[topic, partition, offset, timestamp]", "timestamp"),
        ("messages[0].[messageID, redelivered]", "redelivered"),
        ("messages[0].brokerInTime", "brokerInTime"),
        ('rmqMessagesByQueue."q::/"[0].redelivered', "redelivered"),
        ("[messageID, brokerOutTime]", "brokerOutTime"),
        ("[execution, state, retry_count]", "retry_count"),
        ("[execution, state_entered]", "state_entered"),
        ("powertools_json(body).[order_id, retry_count]", "retry_count"),
        ("[device_id, received_at]", "received_at"),
        ("[httpMethod, path, requestContext.requestId]", "requestContext.requestId"),
        ("[requestContext.http.method, requestContext.requestId]", "requestContext.requestId"),
        ("[header(@, 'Idempotency-Key'), requestContext.requestTime]", "requestTime"),
        ("requestContext.timeEpoch", "requestContext.timeEpoch"),
        ("requestContext", "requestContext"),
        ("requestContext.identity.[sourceIp, userAgent]", "sourceIp"),
        ("requestContext.http.userAgent", "userAgent"),
        ("[path, requestContext.authorizer.claims]", "claims"),
        ("requestContext.authorizer.jwt.claims.[sub, exp]", "exp"),
        ("[path, header(@, 'X-Amzn-Trace-Id')]", "x-amzn-trace-id"),
        ('[path, multiValueHeaders."X-Amzn-Trace-Id"[0]]', "x-amzn-trace-id"),
        ("[path, header(headers, 'User-Agent')]", "user-agent"),
        ("headers", "headers"),
        ('["detail-type", detail.id, time]', "time"),
        ("[userName, request.clientMetadata]", "request.clientMetadata"),
        ("[requestPayload.order_id, timestamp]", "timestamp"),
        ("@", "@"),
        ("to_string(@)", "@"),
        ("[id, @]", "@"),
        ("id || receiptHandle", "receiptHandle"),
        ("map(&receiptHandle, Records)", "receiptHandle"),
    ],
)
def test_a_field_that_changes_is_named_with_a_better_one(expression: str, field: str) -> None:
    found = findings(Selector(expression))
    assert any(field in finding.field for finding in found), found
    assert all(finding.why and finding.better for finding in found)
    assert all(
        finding.field in str(finding) and finding.better in str(finding) for finding in found
    )


@pytest.mark.parametrize(
    "expression",
    [
        *sorted(sources.ALL.values()),
        "id",
        "[id, time]",
        "timestamp",
        "[resources[0], time]",
        '["detail-type", resources[0], time]',
        "requestContext.requestId",
        "[requestContext.requestId, requestPayload.order_id]",
        "RequestId",
        "Records[].messageId",
        "Records[?attributes.ApproximateReceiveCount > '1'].messageId",
        "Records[?eventTime].eventID",
        "detail.[eventTime, eventID]",
        "powertools_json(body).eventTime",
        "powertools_json(body).[id, sourceIp]",
        "http_body(@).order_id",
        "unwrap_sns(@).order_id",
        "messages",
        "attributes.colour",
        "detail",
        "[requestContext.authorizer.claims.sub, header(@, 'Idempotency-Key')]",
        '[path, headers."idempotency-key"]',
    ],
)
def test_a_key_that_is_right_draws_nothing(expression: str) -> None:
    assert fields(expression) == []


@pytest.mark.parametrize(
    "expression",
    [
        "header(@, 'Idempotency-Key')",
        "header(headers, 'Idempotency-Key')",
        'headers."idempotency-key"',
        '[multiValueHeaders."Idempotency-Key"[0]]',
        "not_null(header(@, 'Idempotency-Key'), header(@, 'X-Request'))",
    ],
)
def test_a_client_header_alone_is_named_for_another_client_may_send_the_same(
    expression: str,
) -> None:
    (finding,) = findings(Selector(expression))
    assert "another client" in finding.why
    assert "APIGW_REST" in finding.better


def test_the_whole_of_a_scalar_argument_is_a_good_key() -> None:
    assert findings(Selector("@"), whole=False) == []


def test_a_callable_is_not_looked_into() -> None:
    assert fields(lambda event: event["receiptHandle"]) == []


def test_a_field_selected_twice_is_named_once() -> None:
    assert fields("[receiptHandle, Records[0].receiptHandle]") == ["receiptHandle"]
