from __future__ import annotations

from collections.abc import Iterator

import pytest
from orders import handler

from idemguard import MissingKeyError
from idemguard.testing import Effects, deliver, deliver_concurrently, deliver_with_crashes

EVENT = {
    "id": "17dbf0fa-850a-4120-b6cf-88253a8163c8",
    "detail-type": "OrderPlaced",
    "detail": {"order_id": "ORD-1", "amount": 1250},
}


@pytest.fixture
def effects() -> Iterator[Effects]:
    """Counts what leaves the handler; requests with one effect key count once."""
    effects = Effects()
    with (
        effects.watch(
            "orders.provider.charge", key=lambda amount, idempotency_key: idempotency_key
        ),
        effects.watch("orders.mailer.send", key=lambda text, idempotency_key: idempotency_key),
    ):
        yield effects


def test_a_duplicate_gets_the_first_ones_answer(effects: Effects) -> None:
    deliveries = deliver(handler, EVENT, effects=effects)
    assert deliveries.outcomes == ["EXECUTED", "SKIPPED_COMPLETED"]
    assert deliveries.results[0] == deliveries.results[1]
    assert deliveries.counts == {"charge": 1, "send": 1}


def test_the_producers_second_event_is_the_same_order(effects: Effects) -> None:
    def both(event: dict[str, object], context: object) -> None:
        handler(event, context)
        handler({**event, "id": "another"}, context)

    assert deliver(both, EVENT, times=1, effects=effects).counts == {"charge": 1, "send": 1}


def test_two_at_one_moment_do_the_work_once(effects: Effects) -> None:
    deliveries = deliver_concurrently(handler, EVENT, effects=effects)
    assert deliveries.outcomes == ["EXECUTED", "SKIPPED_IN_FLIGHT"]
    assert deliveries.counts == {"charge": 1, "send": 1}


def test_a_crash_anywhere_repeats_nothing(effects: Effects) -> None:
    deliver_with_crashes(handler, EVENT, effects=effects).assert_once()


@pytest.mark.usefixtures("idempotency_ledger")
def test_an_event_without_an_order_is_refused(effects: Effects) -> None:
    with pytest.raises(MissingKeyError):
        handler({"detail": {}}, None)
    assert not effects.made
