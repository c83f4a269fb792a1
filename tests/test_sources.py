"""The ready-made expressions, and the inputs of real sources: what is one work and what is two."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idemguard import sources
from idemguard.keys import MISSING, Selector, make_key

Load = Callable[[str], Any]

EVENTS = sorted(path.stem for path in (Path(__file__).parent / "events").glob("*.json"))


def digest(expression: str, event: Any) -> str:
    selector = Selector(expression)
    value = selector.key(event)
    assert value is not MISSING, selector.why(event)
    return make_key("op", value).digest


# The expression that an event's documentation would give.
DOCUMENTED = {
    "sqs_standard": "Records[0].messageId",
    "sqs_standard_redelivery": "powertools_json(Records[0].body).order_id",
    "sqs_standard_republished": "powertools_json(Records[0].body).order_id",
    "sqs_batch_dup_and_poison": "Records[].messageId",
    "sqs_fifo_batch": "Records[].attributes.MessageDeduplicationId",
    "sns": "Records[0].Sns.MessageId",
    "sns_in_sqs": "powertools_json(powertools_json(Records[0].body).Message).order_id",
    "sns_in_sqs_raw_delivery": "powertools_json(Records[0].body).order_id",
    "s3_put_urlencoded_key": "Records[0].s3.[bucket.name, object.key, object.sequencer]",
    "s3_put_same_key_new_upload": "Records[0].s3.[bucket.name, object.key, object.sequencer]",
    "s3_put_versioned_duplicate_notification": (
        "Records[].s3.[bucket.name, object.key, object.versionId, object.sequencer]"
    ),
    "s3_in_sns_in_sqs": (
        "powertools_json(powertools_json(Records[0].body).Message).Records[0].s3.object.key"
    ),
    "s3_test_event": "RequestId",
    "eventbridge_custom": "detail.metadata.idempotency_key",
    "eventbridge_custom_producer_retry": "detail.metadata.idempotency_key",
    "eventbridge_scheduled_rule_cron": "[resources[0], time]",
    "eventbridge_scheduled_rule_cron_next_day": "[resources[0], time]",
    "eventbridge_scheduler_templated_input": "[schedule_arn, scheduled_time]",
    "eventbridge_s3_object_created": "detail.[bucket.name, object.key, object.sequencer]",
    "parameter_store_change": "id",
    "dynamodb_stream": "Records[].eventID",
    "kinesis_batch": "Records[].[eventSourceARN, eventID]",
    "msk": "records.*[].[topic, partition, offset]",
    "mq_activemq": "messages[0].messageID",
    "mq_rabbitmq_redelivered": (
        'powertools_json(powertools_base64(rmqMessagesByQueue."refunds::/"[0].data)).refund_id'
    ),
    "cloudwatch_logs": "powertools_json(powertools_base64_gzip(awslogs.data)).logEvents[].id",
    "apigw_rest_v1": (
        '[requestContext.authorizer.claims.sub, httpMethod, path, headers."Idempotency-Key"]'
    ),
    "apigw_http_v2": (
        '[requestContext.authorizer.jwt.claims.sub, routeKey, headers."idempotency-key"]'
    ),
    "apigw_http_v2_base64_body": 'headers."idempotency-key"',
    "apigw_http_v2_webhook": "powertools_json(body).id",
    "function_url": 'headers."idempotency-key"',
    "alb_single_value": 'headers."idempotency-key"',
    "alb_multi_value": 'multiValueHeaders."idempotency-key"[0]',
    "stepfunctions_task": "[execution, state, map_index]",
    "stepfunctions_task_retry": "[execution, state, map_index]",
    "stepfunctions_bare_input": "order_id",
    "cognito_post_confirmation_signup": "[userPoolId, userName, triggerSource]",
    "cognito_post_confirmation_forgot_password": "[userPoolId, userName, triggerSource]",
    "iot_rule": "[device_id, msg_seq]",
    "async_invoke_lambda_destination": "requestContext.requestId",
}

SUGGESTED = {
    "sqs_standard": "SQS_MESSAGE",
    "sqs_standard_redelivery": "SQS_MESSAGE",
    "sqs_standard_republished": "SQS_MESSAGE",
    "sqs_batch_dup_and_poison": "SQS_MESSAGE",
    "sqs_fifo_batch": "SQS_FIFO",
    "sns": "SNS",
    "sns_in_sqs": "SNS_IN_SQS",
    "sns_in_sqs_raw_delivery": "SQS_MESSAGE",
    "s3_put_urlencoded_key": "S3_OBJECT",
    "s3_put_same_key_new_upload": "S3_OBJECT",
    "s3_put_versioned_duplicate_notification": "S3_OBJECT",
    "s3_in_sns_in_sqs": "S3_IN_SQS",
    "eventbridge_custom": "EVENTBRIDGE",
    "eventbridge_custom_producer_retry": "EVENTBRIDGE",
    "eventbridge_scheduled_rule_cron": "EVENTBRIDGE_SCHEDULE",
    "eventbridge_scheduled_rule_cron_next_day": "EVENTBRIDGE_SCHEDULE",
    "eventbridge_scheduler_templated_input": "SCHEDULER",
    "eventbridge_s3_object_created": "S3_OBJECT_EVENTBRIDGE",
    "parameter_store_change": "EVENTBRIDGE",
    "dynamodb_stream": "DYNAMODB_STREAM",
    "kinesis_batch": "KINESIS",
    "msk": "KAFKA",
    "mq_activemq": "ACTIVEMQ",
    "mq_rabbitmq_redelivered": "RABBITMQ_BODY",
    "cloudwatch_logs": "CLOUDWATCH_LOGS",
    "apigw_rest_v1": "APIGW_REST",
    "apigw_rest_v1_upper_case_header": "APIGW_REST",
    "apigw_rest_v1_same_key_other_body": "APIGW_REST",
    "apigw_rest_v1_same_key_other_tenant": "APIGW_REST",
    "apigw_rest_v1_same_key_reordered_body": "APIGW_REST",
    "apigw_http_v2": "APIGW_HTTP",
    "apigw_http_v2_base64_body": "APIGW_HTTP",
    "function_url": "HTTP_V2_NO_CALLER",
    "alb_single_value": "HTTP_V1_NO_CALLER",
    "alb_multi_value": "HTTP_V1_NO_CALLER",
    "stepfunctions_task": "STEP_FUNCTIONS_MAP",
    "stepfunctions_task_retry": "STEP_FUNCTIONS_MAP",
    "cognito_post_confirmation_signup": "COGNITO",
    "cognito_post_confirmation_forgot_password": "COGNITO",
    "iot_rule": "IOT",
    "async_invoke_lambda_destination": "LAMBDA_DESTINATION",
}


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_the_documented_key_of_each_source_resolves(name: str, event: Load) -> None:
    assert digest(DOCUMENTED[name], event(name))


@pytest.mark.parametrize("name", sorted(SUGGESTED))
def test_a_source_is_known_by_its_shape_and_its_expression_resolves(name: str, event: Load) -> None:
    suggestion = sources.suggest(event(name))
    assert suggestion is not None
    assert suggestion == (SUGGESTED[name], sources.ALL[SUGGESTED[name]])
    for record in sources.records(event(name)):
        assert digest(suggestion[1], record)


@pytest.mark.parametrize("name", sorted(SUGGESTED))
def test_one_record_is_known_as_its_batch_is(name: str, event: Load) -> None:
    for record in sources.records(event(name)):
        assert sources.suggest(record) == sources.suggest(event(name))


@pytest.mark.parametrize("value", [{}, [], None, "text", 7, {"order_id": "1"}, {"Records": []}])
def test_nothing_is_suggested_for_an_unknown_shape(value: Any) -> None:
    assert sources.suggest(value) is None


def test_the_s3_test_event_is_no_upload_and_has_no_key(event: Load) -> None:
    test_event = event("s3_test_event")
    assert sources.suggest(test_event) is None
    assert Selector(f"Records[0].{sources.S3_OBJECT}").key(test_event) is MISSING
    assert Selector(f"Records[].{sources.S3_OBJECT}").key(test_event) is MISSING


def test_a_function_url_with_a_caller_has_the_caller_in_its_key(event: Load) -> None:
    url = event("function_url")
    url["requestContext"]["authorizer"] = {"iam": {"userArn": "arn:a"}}
    assert sources.suggest(url) == ("FUNCTION_URL", sources.FUNCTION_URL)
    assert Selector(sources.FUNCTION_URL).key(url)[0] == "arn:a"


def test_a_load_balancer_with_a_caller_has_the_caller_in_its_key(event: Load) -> None:
    call = event("alb_single_value")
    call["headers"]["x-amzn-oidc-identity"] = "user-42"
    assert sources.suggest(call) == ("ALB", sources.ALB)
    assert Selector(sources.ALB).key(call)[0] == "user-42"


def test_all_holds_every_constant_with_a_comment_before_it() -> None:
    source = Path(sources.__file__).read_text()
    constants = re.findall(r"^([A-Z][A-Z0-9_]*) = ", source, re.MULTILINE)
    commented = re.findall(r"^#: .*\n(?:#: .*\n)*([A-Z][A-Z0-9_]*) = ", source, re.MULTILINE)
    assert constants == commented == list(sources.ALL)
    assert all(getattr(sources, name) == value for name, value in sources.ALL.items())


# What is one piece of work, and what is two.


def test_an_sqs_redelivery_is_the_same_work_and_a_message_sent_again_is_new(event: Load) -> None:
    first, again, sent_again = (
        digest(sources.SQS_MESSAGE, event(name)["Records"][0])
        for name in ("sqs_standard", "sqs_standard_redelivery", "sqs_standard_republished")
    )
    assert first == again != sent_again


def test_by_its_body_a_message_sent_again_is_the_same_work(event: Load) -> None:
    names = ("sqs_standard", "sqs_standard_redelivery", "sqs_standard_republished")
    bodies = {digest(sources.SQS_BODY, event(name)["Records"][0]) for name in names}
    assert len(bodies) == 1


def test_a_batch_holds_as_many_pieces_of_work_as_different_messages(event: Load) -> None:
    batch = event("sqs_batch_dup_and_poison")["Records"]
    assert len({digest(sources.SQS_MESSAGE, record) for record in batch}) == 4
    assert len({digest("powertools_json(body).order_id", record) for record in batch}) == 3
    fifo = event("sqs_fifo_batch")["Records"]
    assert len({digest(sources.SQS_FIFO, record) for record in fifo}) == len(fifo)


def test_wrapped_and_raw_delivery_of_a_message_are_the_same_work(event: Load) -> None:
    wrapped = event("sns_in_sqs")["Records"][0]
    raw = event("sns_in_sqs_raw_delivery")["Records"][0]
    for expression in (sources.SNS_IN_SQS_CONTENT, "unwrap_sns(@).order_id", "unwrap_sns(body)"):
        assert digest(expression, wrapped) == digest(expression, raw)
    direct = event("sns")["Records"][0]
    assert digest("unwrap_sns(@).order_id", direct) == digest("unwrap_sns(@).order_id", raw)


def test_three_levels_of_wrapping_come_undone(event: Load) -> None:
    record = event("s3_in_sns_in_sqs")["Records"][0]
    assert Selector(sources.S3_IN_SQS).key(record) == [
        ["invoices-example", "in/a b.csv", "0066A1B2C3D4E5FA00"]
    ]


def test_an_object_is_the_same_by_notification_and_by_eventbridge(event: Load) -> None:
    notified = digest(sources.S3_OBJECT, event("s3_put_urlencoded_key")["Records"][0])
    bridged = digest(sources.S3_OBJECT_EVENTBRIDGE, event("eventbridge_s3_object_created"))
    again = digest(sources.S3_OBJECT, event("s3_put_same_key_new_upload")["Records"][0])
    assert notified == bridged != again


def test_a_notification_given_twice_is_the_same_work(event: Load) -> None:
    records = event("s3_put_versioned_duplicate_notification")["Records"]
    assert len({digest(sources.S3_OBJECT, record) for record in records}) == 1


def test_stream_records_with_equal_images_or_offsets_are_different_work(event: Load) -> None:
    for name in ("dynamodb_stream", "kinesis_batch", "msk"):
        expression = sources.ALL[SUGGESTED[name]]
        records = sources.records(event(name))
        assert len({digest(expression, record) for record in records}) == len(records) > 1


def test_a_producer_retry_to_kinesis_is_the_same_work_by_its_payload(event: Load) -> None:
    first, second, *_ = event("kinesis_batch")["Records"]
    expression = "powertools_json(powertools_base64(kinesis.data)).reading_id"
    assert digest(expression, first) == digest(expression, second)


def test_records_that_cannot_be_decoded_are_missing_and_do_not_crash(event: Load) -> None:
    selector = Selector("powertools_json(powertools_base64(kinesis.data)).reading_id")
    found = [selector.key(record) for record in event("kinesis_batch")["Records"]]
    assert "r-1" in found
    assert MISSING in found
    kafka = Selector("powertools_json(powertools_base64(value)).payment_id")
    found = [kafka.key(record) for record in sources.records(event("msk"))]
    assert found == ["P-1", "P-2", "P-3", MISSING]
    assert Selector("records.*[].key").key(event("msk")) is not MISSING


def test_a_producer_retry_to_eventbridge_is_new_by_id_and_the_same_by_its_own_key(
    event: Load,
) -> None:
    first, retry = event("eventbridge_custom"), event("eventbridge_custom_producer_retry")
    assert digest(sources.EVENTBRIDGE, first) != digest(sources.EVENTBRIDGE, retry)
    own = "detail.metadata.idempotency_key"
    assert digest(own, first) == digest(own, retry)


def test_a_schedule_runs_once_a_tick_and_every_tick(event: Load) -> None:
    today, tomorrow = (
        event("eventbridge_scheduled_rule_cron"),
        event("eventbridge_scheduled_rule_cron_next_day"),
    )
    again = event("eventbridge_scheduled_rule_cron") | {"id": "another"}
    expression = sources.EVENTBRIDGE_SCHEDULE
    assert digest(expression, today) == digest(expression, again) != digest(expression, tomorrow)
    assert Selector("detail").key(today) is MISSING


HEADER_EVENTS = (
    "apigw_rest_v1",
    "apigw_rest_v1_upper_case_header",
    "apigw_http_v2",
    "function_url",
    "alb_single_value",
    "alb_multi_value",
)


@pytest.mark.parametrize("name", HEADER_EVENTS)
@pytest.mark.parametrize("spelling", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_a_header_is_found_in_any_case_over_every_http_source(
    name: str, spelling: str, event: Load
) -> None:
    value = "3f2b8c1e-9d7a-4c55-8f10-2a6b7c8d9e0f"
    assert Selector(f"header(@, '{spelling}')").key(event(name)) == value
    maps = "not_null(headers, multiValueHeaders)"
    assert Selector(f"header({maps}, '{spelling}')").key(event(name)) == value


@pytest.mark.parametrize(
    "name", ["apigw_rest_v1_console_test_null_maps", "apigw_rest_v1_no_key", "iot_rule"]
)
@pytest.mark.parametrize("argument", ["@", "headers", "multiValueHeaders"])
def test_a_header_that_is_not_there_is_missing(name: str, argument: str, event: Load) -> None:
    assert Selector(f"header({argument}, 'Idempotency-Key')").key(event(name)) is MISSING
    assert Selector(f"[id, header({argument}, 'X')]").key(event(name) | {"id": 1}) is MISSING


def test_an_empty_header_is_missing_in_a_composite_too(event: Load) -> None:
    call = event("alb_single_value")
    call["headers"]["idempotency-key"] = ""
    assert Selector(sources.HTTP_V1_NO_CALLER).key(call) is MISSING


def test_the_same_header_from_another_caller_path_or_method_is_other_work(event: Load) -> None:
    call = event("apigw_rest_v1")
    expression = sources.APIGW_REST
    digests = {
        digest(expression, call),
        digest(expression, event("apigw_rest_v1_same_key_other_tenant")),
        digest(expression, call | {"path": "/v1/refunds"}),
        digest(expression, call | {"httpMethod": "PUT"}),
    }
    assert len(digests) == 4
    assert digest(expression, event("apigw_rest_v1_same_key_other_body")) in digests


@pytest.mark.parametrize("expression", ["http_body(@)", "http_body(@).items"])
def test_the_body_counts_by_its_content_and_not_its_spelling(expression: str, event: Load) -> None:
    same = (
        "apigw_rest_v1",
        "apigw_rest_v1_same_key_reordered_body",
        "apigw_http_v2",
        "apigw_http_v2_base64_body",
    )
    assert len({digest(expression, event(name)) for name in same}) == 1
    other = event("apigw_rest_v1_same_key_other_body")
    assert Selector("http_body(@)").key(other) != Selector("http_body(@)").key(event(same[0]))


def test_a_body_that_is_not_json_counts_as_the_text_it_is() -> None:
    body = Selector("http_body(@)")
    assert body.key({"body": "a=1&b=2"}) == "a=1&b=2"
    assert body.key({"body": "YT0x", "isBase64Encoded": True}) == "a=1"
    assert body.key({"body": "//79", "isBase64Encoded": True}) == "//79"
    assert body.key({"body": None}) is MISSING
    assert body.key({"body": {"a": 1}}) == {"a": 1}
    assert body.key(["no map"]) is MISSING


def test_a_step_retry_is_the_same_work(event: Load) -> None:
    expression = sources.STEP_FUNCTIONS_MAP
    first, retry = event("stepfunctions_task"), event("stepfunctions_task_retry")
    assert digest(expression, first) == digest(expression, retry)
    assert digest(expression, first) != digest(expression, first | {"map_index": 0})


def test_sign_up_and_password_reset_are_different_work(event: Load) -> None:
    names = ("cognito_post_confirmation_signup", "cognito_post_confirmation_forgot_password")
    assert len({digest(sources.COGNITO, event(name)) for name in names}) == 2


def test_a_rabbitmq_message_without_an_id_is_missing_and_falls_to_its_body(event: Load) -> None:
    (message,) = sources.records(event("mq_rabbitmq_redelivered"))
    assert Selector(sources.RABBITMQ).key(message) is MISSING
    assert Selector(sources.RABBITMQ_BODY).key(message) == {"refund_id": "RF-5001"}


def test_every_event_file_is_spoken_for() -> None:
    variants = {name for name in EVENTS if name not in DOCUMENTED}
    assert all(name.startswith(("apigw_rest_v1_", "direct_invoke_")) for name in variants)


def test_users_of_one_identity_pool_are_callers_of_their_own(event: Load) -> None:
    shared = "arn:aws:sts::111122223333:assumed-role/app/CognitoIdentityCredentials"
    rest, http = event("apigw_rest_v1"), event("apigw_http_v2")
    rest["requestContext"]["authorizer"] = None
    rest["requestContext"]["identity"].update(userArn=shared, cognitoIdentityId="pool:user-1")
    http["requestContext"]["authorizer"] = {
        "iam": {"userArn": shared, "cognitoIdentity": {"identityId": "pool:user-1"}}
    }
    for expression, call in ((sources.APIGW_REST, rest), (sources.APIGW_HTTP, http)):
        assert Selector(expression).key(call)[0] == "pool:user-1"
