from __future__ import annotations

import json
from typing import Any

from idemguard.integrations.metrics import metric_name
from idemguard.outcome import Happening
from samples.local import SAMPLES

# Put it into an account with
#   aws cloudwatch put-dashboard --dashboard-name idempotency --dashboard-body file://dashboard.json


def dashboard() -> Any:
    return json.loads((SAMPLES / "dashboard.json").read_text(encoding="utf-8"))


def test_every_metric_is_shown_once_and_none_that_is_not_counted() -> None:
    shown = [
        metric[1]
        for widget in dashboard()["widgets"]
        for metric in widget["properties"].get("metrics", ())
    ]
    assert sorted(shown) == sorted(metric_name(happening) for happening in Happening)


def test_no_widget_covers_another() -> None:
    covered = [
        (x, y)
        for widget in dashboard()["widgets"]
        for x in range(widget["x"], widget["x"] + widget["width"])
        for y in range(widget["y"], widget["y"] + widget["height"])
    ]
    assert len(covered) == len(set(covered))
    assert all(x < 24 for x, _ in covered)
