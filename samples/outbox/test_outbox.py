from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from idemguard.outcome import Phase
from idemguard.testing.frozen_clock import FrozenClock
from samples.local import LocalContext, event_of, killed

from .orders import handler as orders
from .orders import relay
from .orders.database import Database

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    relay.sent.clear()
    relay.published.clear()
    monkeypatch.setenv("DATABASE", json.dumps({"database": str(tmp_path / "orders.db")}))
    database = Database.from_environment()
    database.create_tables()
    return database


def rows(database: Database, sql: str) -> list[tuple[Any, ...]]:
    with database.transaction() as transaction:
        return transaction.execute(sql)


def order(context: LocalContext, number: int = 8001) -> None:
    orders.handler({**event_of("outbox"), "order_id": f"ORD-{number}"}, context)


ORDERS = "SELECT order_id, amount_cents FROM orders"
MARKS = "SELECT subject, published FROM outbox"


def test_an_order_placed_twice_is_one_row_and_one_event(
    database: Database, context: LocalContext
) -> None:
    order(context)
    order(context)
    assert rows(database, ORDERS) == [("ORD-8001", 1250)]
    assert rows(database, MARKS) == [("ORD-8001", 0)]


def test_the_order_and_its_event_are_committed_together_or_not_at_all(
    database: Database, context: LocalContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(orders, "json", None)  # Missed after the order's row, before the event's.
        with pytest.raises(AttributeError):
            order(context)
    assert rows(database, ORDERS) == rows(database, MARKS) == []
    order(context)
    assert len(rows(database, ORDERS)) == len(rows(database, MARKS)) == 1


def test_an_attempt_killed_after_its_commit_is_not_an_order_more(
    database: Database, context: LocalContext, clock: FrozenClock
) -> None:
    assert killed(lambda: order(context), Phase.COMPLETE)
    clock.advance(32)
    order(context)
    assert rows(database, ORDERS) == [("ORD-8001", 1250)]
    assert rows(database, MARKS) == [("ORD-8001", 0)]


def test_the_relay_publishes_each_row_once_and_marks_it(
    database: Database, context: LocalContext
) -> None:
    order(context, 8001)
    order(context, 8002)
    assert relay.handler({}, context) == 2
    assert relay.handler({}, context) == 0
    assert [message["MessageGroupId"] for message in relay.published.values()] == [
        "ORD-8001",
        "ORD-8002",
    ]
    assert len(relay.sent) == 2


def test_one_run_takes_the_oldest_rows_and_leaves_the_rest_to_the_next(
    database: Database, context: LocalContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "BATCH", 2)
    for number in (3, 1, 2):
        order(context, number)
    assert relay.handler({}, context) == 2
    assert rows(database, MARKS + " WHERE published = 0") == [("ORD-2", 0)]
    assert relay.handler({}, context) == 1


def test_a_relay_killed_between_publishing_and_marking_does_not_publish_again(
    database: Database, context: LocalContext
) -> None:
    order(context)
    assert killed(lambda: relay.handler({}, context), Phase.COMPLETE, done=True)
    assert rows(database, MARKS) == [("ORD-8001", 0)]
    assert relay.handler({}, context) == 1
    assert rows(database, MARKS) == [("ORD-8001", 1)]
    assert len(relay.sent) == 1


def test_a_relay_killed_before_its_record_sends_again_under_the_same_id(
    database: Database, context: LocalContext, clock: FrozenClock
) -> None:
    order(context)
    assert killed(lambda: relay.handler({}, context), Phase.COMPLETE)
    assert relay.handler({}, context) == 0, "the killed relay may still be at it"
    clock.advance(32)
    assert relay.handler({}, context) == 1
    assert len(relay.sent) == 2
    assert len(relay.published) == 1


def test_a_row_that_cannot_be_published_stays_and_holds_up_no_other(
    database: Database, context: LocalContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(context, 8001)
    order(context, 8002)

    class Topic:
        def publish(self, **message: str) -> None:
            if message["MessageGroupId"] == "ORD-8001":
                raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setenv("TOPIC_ARN", "arn:aws:sns:eu-west-1:111122223333:events.fifo")
        patch.setattr("boto3.client", lambda service: Topic())
        assert relay.handler({}, context) == 1
    assert sorted(rows(database, MARKS)) == [("ORD-8001", 0), ("ORD-8002", 1)]
    assert relay.handler({}, context) == 1


class Driver:
    """A driver with the placeholders of one style, and no other, over SQLite."""

    def __init__(self, paramstyle: str) -> None:
        self.paramstyle = paramstyle
        self.mark = {
            "qmark": r"\?",
            "format": r"%s",
            "numeric": r":\d+",
            "named": r":(v\d+)",
            "pyformat": r"%\((v\d+)\)s",
        }[paramstyle]

    def connect(self, **arguments: Any) -> Any:
        driver = self

        class Cursor(sqlite3.Cursor):
            def execute(self, sql: str, values: Any = ()) -> Any:
                assert isinstance(values, dict) == (driver.paramstyle in ("named", "pyformat"))
                names = re.findall(driver.mark, sql)
                if isinstance(values, dict):
                    values = tuple(values[name] for name in names)
                assert len(names) == len(values)
                return super().execute(re.sub(driver.mark, "?", sql), values)

        class Connection(sqlite3.Connection):
            def cursor(self, factory: Any = None) -> Any:
                return Cursor(self)

        return sqlite3.connect(**arguments, factory=Connection)


@pytest.mark.parametrize("paramstyle", ["qmark", "numeric", "named", "format", "pyformat"])
def test_the_driver_may_want_its_placeholders_in_any_style(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: LocalContext, paramstyle: str
) -> None:
    database = Database(Driver(paramstyle), database=str(tmp_path / "orders.db"))
    database.create_tables()
    monkeypatch.setattr(Database, "from_environment", lambda: database)
    order(context)
    relay.published.clear()
    assert relay.handler({}, context) == 1
    assert rows(database, MARKS) == [("ORD-8001", 1)]
