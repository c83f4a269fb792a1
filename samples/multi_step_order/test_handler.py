from __future__ import annotations

from typing import Any

import pytest

from idemguard import InFlightError
from idemguard.outcome import Phase
from idemguard.testing.frozen_clock import FrozenClock
from samples.local import LocalContext, event_of, killed

from . import handler as sample

STEPS = ["reservation", "payment", "parcel"]
DONE = {"reservation": "reservation-1", "payment": "payment-2", "parcel": "parcel-3"}


@pytest.fixture
def event() -> Any:
    sample.requests.clear()
    sample.effects.clear()
    return event_of("multi_step_order")


@pytest.mark.parametrize(
    ("phase", "step", "done", "repeated"),
    [
        (Phase.STEP, "reserve", False, []),
        (Phase.STEP, "reserve", True, ["reservation"]),
        (Phase.STEP, "charge", False, []),
        (Phase.STEP, "charge", True, ["payment"]),
        (Phase.STEP, "send", False, []),
        (Phase.STEP, "send", True, ["parcel"]),
        (Phase.COMPLETE, "", False, []),
    ],
)
def test_killed_anywhere_the_next_attempt_goes_on_and_each_effect_counts_once(
    event: Any,
    context: LocalContext,
    clock: FrozenClock,
    phase: Phase,
    step: str,
    done: bool,
    repeated: list[str],
) -> None:
    assert killed(lambda: sample.handler(event, context), phase, step=step, done=done)
    with pytest.raises(InFlightError):
        sample.handler(event, context)
    clock.advance(32)
    assert sample.handler(event, context) == DONE
    assert sample.handler(event, context) == DONE
    # Only a step that was killed before it could be noted is requested again.
    assert sorted(sample.requests) == sorted(STEPS + repeated)
    assert list(sample.effects.values()) == list(DONE.values())


def test_killed_after_completing_the_order_is_done(
    event: Any, context: LocalContext, clock: FrozenClock
) -> None:
    assert killed(lambda: sample.handler(event, context), Phase.COMPLETE, done=True)
    assert sample.handler(event, context) == DONE
    assert sample.requests == STEPS


def test_killed_in_every_attempt_the_order_is_still_fulfilled_once(
    event: Any, context: LocalContext, clock: FrozenClock
) -> None:
    for step in ("reserve", "charge", "send"):
        assert killed(lambda: sample.handler(event, context), Phase.STEP, step=step, done=True)
        clock.advance(32)
    assert sample.handler(event, context) == DONE
    assert list(sample.effects.values()) == list(DONE.values())


def test_a_step_that_fails_is_tried_again_without_those_before_it(
    event: Any, context: LocalContext, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declined(order_id: str, amount_cents: int) -> str:
        raise TimeoutError("the payment provider does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(sample, "charge", declined)
        with pytest.raises(TimeoutError):
            sample.handler(event, context)
    assert sample.handler(event, context) == DONE
    assert sample.requests == STEPS
