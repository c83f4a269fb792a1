from __future__ import annotations

from typing import Any

import pytest

from samples.local import LocalContext, event_of

from . import handler as sample

pytestmark = pytest.mark.usefixtures("clock")

NAME = "2026/06/R&D notes (1) c++.pdf"


@pytest.fixture
def notified() -> Any:
    sample.indexed.clear()
    return event_of("s3_upload")


@pytest.fixture
def created() -> Any:
    return event_of("s3_upload", "event_eventbridge")


def test_an_upload_told_of_on_both_ways_is_indexed_once(
    notified: Any, created: Any, context: LocalContext
) -> None:
    sample.handler(notified, context)
    sample.handler(created, context)
    sample.handler(notified, context)
    assert sample.indexed == [NAME]


def test_the_way_that_comes_first_does_not_matter(
    notified: Any, created: Any, context: LocalContext
) -> None:
    sample.handler(created, context)
    sample.handler(notified, context)
    assert sample.indexed == [NAME]


def test_a_new_upload_to_the_same_name_is_indexed_again(
    notified: Any, context: LocalContext
) -> None:
    sample.handler(notified, context)
    notified["Records"][0]["s3"]["object"]["sequencer"] = "0066A1B2C3D4E5F602"
    sample.handler(notified, context)
    assert sample.indexed == [NAME, NAME]


def test_the_test_event_of_a_new_notification_indexes_nothing(
    notified: Any, context: LocalContext
) -> None:
    sample.handler({"Service": "Amazon S3", "Event": "s3:TestEvent"}, context)
    assert sample.indexed == []
