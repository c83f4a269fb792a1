from __future__ import annotations

from typing import Any

import pytest

from samples.local import LocalContext, event_of

from . import handler as sample

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def tick() -> Any:
    sample.closed.clear()
    return event_of("scheduled_job")


def test_a_tick_that_comes_twice_closes_the_day_once(tick: Any, context: LocalContext) -> None:
    assert sample.handler(tick, context) == "2026-06-01"
    assert sample.handler({**tick, "id": "another"}, context) == "2026-06-01"
    assert sample.closed == ["2026-06-01"]


def test_the_next_night_is_new_work(tick: Any, context: LocalContext) -> None:
    sample.handler(tick, context)
    sample.handler({**tick, "time": "2026-06-02T02:00:00Z"}, context)
    assert sample.closed == ["2026-06-01", "2026-06-02"]


def test_another_rule_at_the_same_time_is_other_work(tick: Any, context: LocalContext) -> None:
    sample.handler(tick, context)
    sample.handler({**tick, "resources": [tick["resources"][0] + "-other"]}, context)
    assert len(sample.closed) == 2
