"""Ready-made key expressions, one per event source, and what kind of duplicate each one stops.

```python
@idempotent(key=sources.SQS_MESSAGE, argument="record")
def handle(record): ...
```

They are plain JMESPath and compose: ``f"unwrap_sns(@).Records[].{sources.S3_OBJECT}"``.

"Per record" expressions are for a batch source: decorate what handles one record, so that one bad
record does not run the others again. "Per event" ones are for the handler itself.

Two rules of thumb. An id that the *source* gives stops the source's own redelivery; work that the
*producer* sends twice has two such ids and needs one from the payload. And an id from a client
(an ``Idempotency-Key`` header) is unique to that client only, so the caller belongs into the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .keys import Selector

_IDEMPOTENCY_KEY = "header(@, 'Idempotency-Key')"
# The users of a Cognito identity pool share one ARN: their own identity comes before it.
_REST_CALLER = (
    "not_null(requestContext.authorizer.claims.sub, requestContext.authorizer.principalId, "
    "requestContext.identity.cognitoIdentityId, requestContext.identity.userArn)"
)
_HTTP_CALLER = (
    "not_null(requestContext.authorizer.jwt.claims.sub, "
    "requestContext.authorizer.iam.cognitoIdentity.identityId, "
    "requestContext.authorizer.iam.userArn)"
)

#: SQS, per record: the message. Stops redelivery; a message sent again is new work.
SQS_MESSAGE = "messageId"
#: SQS, per record: the JSON content, so two messages with the same content are one piece of work.
#: Stops the producer's retry too. Select an id in it where there is one:
#: ``powertools_json(body).order_id``.
SQS_BODY = "powertools_json(body)"
#: SQS FIFO, per record: the producer's deduplication id within its group. Stops redelivery, and a
#: producer's retry later than the five minutes for which the queue itself remembers.
SQS_FIFO = "[eventSourceARN, attributes.MessageGroupId, attributes.MessageDeduplicationId]"
#: SNS, per event (it always holds one record): the published message. Stops redelivery by SNS.
SNS = "Records[].Sns.MessageId"
#: SNS over SQS, per record: the published message. Stops redelivery by SQS and by SNS. Needs the
#: SNS envelope; raw delivery has no such id.
SNS_IN_SQS = "powertools_json(body).MessageId"
#: SNS over SQS, per record: the content, the same for wrapped and for raw delivery, so that a key
#: survives a change of the subscription. Select an id in it where there is one:
#: ``unwrap_sns(@).order_id``.
SNS_IN_SQS_CONTENT = "unwrap_sns(@)"
#: S3 notification, per record: one write of one object. Stops a repeated notification; uploading to
#: the same name again is new work. The ``s3:TestEvent`` has no such key.
S3_OBJECT = "s3.[bucket.name, url_decode(object.key), object.sequencer]"
#: S3 over EventBridge, per event: the same identity as `S3_OBJECT` gives for the same write.
S3_OBJECT_EVENTBRIDGE = "detail.[bucket.name, object.key, object.sequencer]"
#: S3 over SQS, with or without SNS between, per record of the queue: the writes that it tells of.
S3_IN_SQS = f"unwrap_sns(@).Records[].{S3_OBJECT}"
#: EventBridge, per event: stops redelivery by the bus. A producer's retry has another id: take one
#: from the detail, such as ``detail.metadata.idempotency_key``.
EVENTBRIDGE = "id"
#: EventBridge scheduled rule, per event: one tick of one rule. Stops the double tick; tomorrow's is
#: new work.
EVENTBRIDGE_SCHEDULE = "[resources[0], time]"
#: EventBridge Scheduler, per event: one tick of one schedule, where its input was set to
#: ``{"schedule_arn": "<aws.scheduler.schedule-arn>", "scheduled_time":
#: "<aws.scheduler.scheduled-time>"}``.
SCHEDULER = "[schedule_arn, scheduled_time]"
#: DynamoDB stream, per record: one change of one item. Stops the retry of a batch.
DYNAMODB_STREAM = "eventID"
#: Kinesis, per record: one record of one stream. Stops the retry of a batch; a producer's retry has
#: another sequence number: take an id from ``powertools_json(powertools_base64(kinesis.data))``.
KINESIS = "[eventSourceARN, eventID]"
#: Kafka (MSK or self-managed), per record: one place in one topic. A topic that is
#: deleted and made again counts from 0 again; give clusters operations of their own.
KAFKA = "[topic, partition, offset]"
#: Amazon MQ for ActiveMQ, per message. Stops redelivery.
ACTIVEMQ = "messageID"
#: Amazon MQ for RabbitMQ, per message, where the publisher sets a message id.
RABBITMQ = "basicProperties.messageId"
#: Amazon MQ for RabbitMQ, per message without an id: its JSON content, so two messages with the
#: same content are one piece of work.
RABBITMQ_BODY = "powertools_json(powertools_base64(data))"
#: CloudWatch Logs subscription, per event: the log events in it. Stops redelivery, which may come
#: for up to 24 hours.
CLOUDWATCH_LOGS = "powertools_json(powertools_base64_gzip(awslogs.data)).logEvents[].id"
#: IoT rule, per event: an example, for a device that numbers its messages. Stops QoS 1 repeats.
IOT = "[device_id, msg_seq]"
#: Step Functions task, per event, with the execution id and the state's name from the context
#: object in its input. Stops the task's retry. Not for a state that a loop or a Map enters twice.
STEP_FUNCTIONS = "[execution, state]"
#: The same inside a Map state, with the item's index from the context object.
STEP_FUNCTIONS_MAP = "[execution, state, map_index]"
#: Cognito trigger, per event: one trigger of one user. Stops Cognito's three attempts.
COGNITO = "[userPoolId, userName, triggerSource]"
#: Lambda destination of an asynchronous call, per event: that call.
LAMBDA_DESTINATION = "requestContext.requestId"
#: API Gateway REST API, per event: caller (authorizer subject or principal, else IAM ARN), method,
#: path and the client's Idempotency-Key. Stops the client's retry, for each caller by itself.
APIGW_REST = f"[{_REST_CALLER}, httpMethod, path, {_IDEMPOTENCY_KEY}]"
#: API Gateway HTTP API, per event: the same; the caller is the JWT's subject, else the IAM ARN.
APIGW_HTTP = f"[{_HTTP_CALLER}, requestContext.http.method, rawPath, {_IDEMPOTENCY_KEY}]"
#: Function URL with IAM authorisation, per event: the same; the caller is the IAM ARN.
FUNCTION_URL = (
    "[requestContext.authorizer.iam.userArn, requestContext.http.method, rawPath, "
    f"{_IDEMPOTENCY_KEY}]"
)
#: Application Load Balancer with OIDC authentication, per event: the same; the caller is the
#: authenticated subject, which the balancer sets and a client cannot.
ALB = f"[header(@, 'x-amzn-oidc-identity'), httpMethod, path, {_IDEMPOTENCY_KEY}]"
#: Load balancer or REST API that does not authenticate: no caller is known, so all clients share
#: their Idempotency-Keys. Only where a reply is no secret; else add what tells your tenants apart.
HTTP_V1_NO_CALLER = f"[httpMethod, path, {_IDEMPOTENCY_KEY}]"
#: The same for an HTTP API or a function URL that does not authenticate.
HTTP_V2_NO_CALLER = f"[requestContext.http.method, rawPath, {_IDEMPOTENCY_KEY}]"

#: Every expression by its name.
ALL: Mapping[str, str] = MappingProxyType(
    {
        name: value
        for name, value in list(globals().items())
        if name.isupper() and not name.startswith("_")
    }
)


# What tells an event's source, the first that selects something. A batch is told by its records.
_TELLING = (
    ("SNS", "Records[0].Sns"),
    ("S3_IN_SQS", "eventSource == 'aws:sqs' && unwrap_sns(@).Records[].s3"),
    ("SQS_FIFO", "eventSource == 'aws:sqs' && attributes.MessageDeduplicationId"),
    ("SNS_IN_SQS", "eventSource == 'aws:sqs' && powertools_json(body).TopicArn"),
    ("SQS_MESSAGE", "eventSource == 'aws:sqs'"),
    ("S3_OBJECT", "eventSource == 'aws:s3'"),
    ("DYNAMODB_STREAM", "eventSource == 'aws:dynamodb'"),
    ("KINESIS", "eventSource == 'aws:kinesis'"),
    ("KAFKA", "topic && contains(keys(@), 'partition') && contains(keys(@), 'offset')"),
    ("ACTIVEMQ", "messageID && destination"),
    ("RABBITMQ", "basicProperties.messageId"),
    ("RABBITMQ_BODY", "basicProperties"),
    ("CLOUDWATCH_LOGS", "awslogs"),
    ("LAMBDA_DESTINATION", "requestContext.functionArn && requestContext.condition"),
    ("ALB", "requestContext.elb && header(@, 'x-amzn-oidc-identity')"),
    ("HTTP_V1_NO_CALLER", "requestContext.elb"),
    (
        "FUNCTION_URL",
        "contains(requestContext.domainName, '.lambda-url.') && "
        "requestContext.http && requestContext.authorizer.iam.userArn",
    ),
    ("HTTP_V2_NO_CALLER", "contains(requestContext.domainName, '.lambda-url.')"),
    ("APIGW_HTTP", f"requestContext.http && {_HTTP_CALLER}"),
    ("HTTP_V2_NO_CALLER", "requestContext.http"),
    ("APIGW_REST", f"requestContext.httpMethod && {_REST_CALLER}"),
    ("HTTP_V1_NO_CALLER", "requestContext.httpMethod"),
    ("COGNITO", "triggerSource && userPoolId"),
    ("EVENTBRIDGE_SCHEDULE", "source == 'aws.events' && \"detail-type\" == 'Scheduled Event'"),
    ("S3_OBJECT_EVENTBRIDGE", "source == 'aws.s3' && detail.object.sequencer"),
    ("EVENTBRIDGE", '"detail-type" && source'),
    ("SCHEDULER", "schedule_arn && scheduled_time"),
    ("STEP_FUNCTIONS_MAP", "execution && state && contains(keys(@), 'map_index')"),
    ("STEP_FUNCTIONS", "execution && state"),
    ("IOT", "device_id && contains(keys(@), 'msg_seq')"),
)


def suggest(event: Any) -> tuple[str, str] | None:
    """Name and expression for an event, or for one record of a batch, told by its shape.

    For a batch the expression is the one for each of its `records`. None where the shape is not
    known.
    """
    first = next(iter(records(event)), None)
    for name, expression in _TELLING:
        if Selector(expression).select(first):
            return name, ALL[name]
    return None


def records(event: Any) -> list[Any]:
    """What the suggested expression is for: the records of a batch, else the event alone."""
    # SNS calls with one record, and its expression is for the event.
    if Selector("Records[0].Sns").select(event):
        return [event]
    batch = Selector(
        "Records || eventSource && (messages || (records || rmqMessagesByQueue).*[])"
    ).select(event)
    return batch if isinstance(batch, list) else [event]
