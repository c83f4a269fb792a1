"""The ledger on DynamoDB: one winner by condition, ages by the store's time, whatever a machine thinks."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemguard import (
    Guard,
    InFlightError,
    InvalidOption,
    LedgerMisconfigured,
    LedgerUnavailable,
    Outcome,
    UnreadableRecordError,
)
from idemguard.clock import Deadline
from idemguard.ledger import Entry, Ledger
from idemguard.ledgers import open_ledger
from idemguard.ledgers.dynamodb import DynamoDBLedger
from idemguard.record import Record, State
from idemguard.testing.contract import LedgerContract
from tests.dynamodb_world import TABLE, Sandbox, Table, create_table, refusal
from tests.servers import REGION, client_for, microburst, ministack
from tests.ssm_world import LEASE, RETENTION, claimed

# Ages are told up to three seconds too young.
_COARSE = 3.0


@pytest.fixture(scope="module")
def moto() -> Iterator[Any]:
    """A client of one table for all of this module: tests keep to names of their own."""
    import boto3
    from moto import mock_aws

    with mock_aws():
        client = boto3.client("dynamodb", region_name=REGION)
        create_table(client)
        yield client


@pytest.fixture(scope="module")
def ministack_url() -> Iterator[str]:
    with ministack("dynamodb") as url:
        create_table(client_for("dynamodb", url))
        yield url


class TestOnMoto(LedgerContract):
    @pytest.fixture(autouse=True)
    def _store(self, moto: Any) -> None:
        self.clock = self.sandbox = Sandbox()
        self.client = moto

    def make_ledger(self) -> Ledger:
        table = Table(self.client, self.sandbox.store)
        return DynamoDBLedger(TABLE, table, clock=self.sandbox)

    def make_unreachable_ledger(self) -> Ledger:
        table = Table(self.client, self.sandbox.store)
        table.lose = 10_000
        return DynamoDBLedger(TABLE, table, clock=self.sandbox)

    def advance(self, seconds: float) -> None:
        self.sandbox.store.advance(seconds + (_COARSE if seconds else 0.0))


class TestOnMinistack(LedgerContract):
    @pytest.fixture(autouse=True)
    def _store(self, ministack_url: str) -> Iterator[None]:
        self.client = client_for("dynamodb", ministack_url, max_pool_connections=32)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            # Connections are accepted by the kernel and never answered.
            self.silent: str = f"http://127.0.0.1:{silent.getsockname()[1]}"
            yield

    def make_ledger(self) -> Ledger:
        return DynamoDBLedger(TABLE, self.client)

    def make_unreachable_ledger(self) -> Ledger:
        return DynamoDBLedger(TABLE, endpoint_url=self.silent)

    def advance(self, seconds: float) -> None:
        if seconds:
            time.sleep(seconds + _COARSE)


@dataclass
class World:
    """One key of one ledger, with the store's time and the machine's in a test's hand."""

    machine: Sandbox
    table: Table
    ledger: DynamoDBLedger
    client: Any
    name: str

    def entry(self) -> Entry:
        entry = self.ledger.read(self.name)
        assert entry is not None
        return entry

    def item(self) -> dict[str, Any]:
        item: dict[str, Any] = self.client.get_item(
            TableName=TABLE, Key={"name": {"S": self.name}}
        )["Item"]
        return item

    def guard(self, **options: Any) -> Guard:
        return Guard(
            ledger=self.ledger,
            namespace=self.name.replace("/", "-"),
            lease=LEASE,
            retention=RETENTION,
            local_cache=False,
            **options,
        )


def world_on(client: Any) -> World:
    machine = Sandbox()
    table = Table(client, machine.store)
    ledger = DynamoDBLedger(TABLE, table, clock=machine)
    return World(machine, table, ledger, client, f"ns/op/{secrets.token_hex(20)}")


@pytest.fixture
def world(moto: Any) -> World:
    return world_on(moto)


def warmed(world: World) -> World:
    """After the first call of a process."""
    world.ledger.read(world.name)
    world.table.calls.clear()
    return world


# What it costs.


def test_a_first_delivery_is_two_calls_and_a_duplicate_is_one(world: World) -> None:
    warmed(world)
    guard = world.guard()
    assert guard.run_exactly_once("k", lambda: 1).outcome is Outcome.EXECUTED
    assert world.table.calls == {"put_item": 2}
    world.table.calls.clear()
    assert guard.run_exactly_once("k", lambda: 2).result == 1
    assert world.table.calls == {"put_item": 1}


def test_the_first_call_of_a_process_reads_and_learns_the_time(world: World) -> None:
    world.ledger.create(world.name, claimed("a"))
    assert world.table.calls == {"get_item": 1, "put_item": 1}
    # Another process, in which it is a duplicate.
    other = Table(world.client, world.machine.store)
    met = DynamoDBLedger(TABLE, other, clock=world.machine).create(world.name, claimed("b"))
    assert met.record == claimed("a")
    assert other.calls == {"get_item": 1}


def test_a_replace_by_a_process_that_knows_no_time_looks_first(world: World) -> None:
    entry = world.ledger.create(world.name, claimed("a"))
    other = DynamoDBLedger(TABLE, Table(world.client, world.machine.store), clock=world.machine)
    done = claimed("a").ended(State.COMPLETED)
    won = other.replace(entry, done)
    assert won is not None
    assert won.record == world.entry().record == done
    third = DynamoDBLedger(TABLE, Table(world.client, world.machine.store), clock=world.machine)
    late = third.replace(entry, claimed("c"))
    assert late is not None
    assert late.record == world.entry().record == done


# Lost answers.


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_create_whose_answer_was_lost_is_known_as_ones_own(world: World, times: int) -> None:
    warmed(world).table.lose = times
    won = world.ledger.create(world.name, claimed("a"))
    assert won.record == claimed("a")
    # And its entry can be expected: the holder goes on with it.
    done = claimed("a").ended(State.COMPLETED)
    after = world.ledger.replace(won, done)
    assert after is not None
    assert after.record == world.entry().record == done


def test_a_replace_whose_answer_was_lost_is_known_as_ones_own(world: World) -> None:
    held = world.ledger.create(world.name, claimed("a"))
    world.table.lose = 1
    done = claimed("a").ended(State.COMPLETED, result="r")
    won = world.ledger.replace(held, done)
    assert won is not None
    assert won.record == world.entry().record == done


def test_a_removal_whose_answer_was_lost_counts(world: World) -> None:
    bar = world.ledger.create(world.name, Record(State.SWEPT, "s", lease=180.0))
    world.table.lose = 1
    assert world.ledger.remove([bar]) == {world.name}
    assert world.ledger.read(world.name) is None


def test_answers_lost_on_the_wire_leave_one_effect(ministack_url: str) -> None:
    lost = [
        {
            "service": "dynamodb",
            "operation": "PutItem",
            "times": 2,
            "response": {"abort_bytes": 0},
        }
    ]
    effects: list[int] = []
    with microburst(ministack_url, lost) as url:
        guard = Guard(
            ledger=DynamoDBLedger(TABLE, endpoint_url=url), namespace=secrets.token_hex(8)
        )
        first = guard.run_exactly_once("k", lambda: effects.append(1))
        again = guard.run_exactly_once("k", lambda: effects.append(2))
    assert (first.outcome, again.outcome) == (Outcome.EXECUTED, Outcome.SKIPPED_COMPLETED)
    assert effects == [1]


def test_a_removal_that_cannot_be_ended_tells_what_is_gone(world: World) -> None:
    names = [f"{world.name}{at}" for at in range(3)]
    bars = [world.ledger.create(name, Record(State.SWEPT, "s", lease=180.0)) for name in names]

    def hang(method: str) -> None:
        if world.table.calls[method] == 2:
            world.table.lose = 10_000

    world.table.before = hang
    gone = world.ledger.remove(bars, deadline=Deadline.after(world.machine, 5.0))
    assert gone == {names[0]}


# Time.


def test_a_lease_is_kept_though_the_machine_stood_still_before_the_claim(world: World) -> None:
    warmed(world)
    world.machine.store.advance(3600, standstill=True)
    claim = world.ledger.create(world.name, claimed("a"))
    assert claim.record == claimed("a")
    assert world.table.calls == {"put_item": 2}, "noted anew, with the time of its own answer"
    world.machine.store.advance(LEASE - 5)
    assert LEASE - 5 - _COARSE <= world.entry().age <= LEASE - 5


def test_a_completed_record_is_kept_though_the_machine_stood_still_in_the_work(
    world: World,
) -> None:
    guard = world.guard()

    def work() -> int:
        world.machine.store.advance(RETENTION * 2, standstill=True)
        return 1

    guard.run_exactly_once("k", work)
    world.machine.store.advance(RETENTION / 2)
    assert guard.run_exactly_once("k", lambda: 2).result == 1


@pytest.mark.parametrize("idle", [0.0, 0.3, 1.7, 100.2])
def test_a_machine_that_did_not_stand_still_notes_the_time_once(world: World, idle: float) -> None:
    # As late in a second as can be: the next call falls into another one.
    world.machine.store.advance(0.9)
    warmed(world)
    world.machine.store.advance(idle)
    world.ledger.create(world.name, claimed("a"))
    assert world.table.calls == {"put_item": 1}


def test_a_lease_is_kept_though_the_answer_was_lost_and_the_machine_stood_still(
    world: World,
) -> None:
    warmed(world).table.lose = 1
    world.machine.store.advance(3600, standstill=True)
    assert world.ledger.create(world.name, claimed("a")).record == claimed("a")
    assert world.table.calls == {"put_item": 3}, "sent, sent again, and noted anew"
    assert world.entry().age == 0


def test_who_is_taken_over_before_its_time_is_right_has_lost(world: World) -> None:
    warmed(world)
    world.machine.store.advance(3600, standstill=True)
    other = DynamoDBLedger(TABLE, Table(world.client, world.machine.store), clock=world.machine)

    def overtake(method: str) -> None:
        world.table.after = lambda method: None
        early = other.read(world.name)
        assert early is not None
        assert early.age > LEASE, "as the first note tells it"
        other.replace(early, claimed("b"))

    world.table.after = overtake
    assert world.ledger.create(world.name, claimed("a")).record == claimed("b")
    assert world.entry().record == claimed("b")


def test_a_time_that_is_never_told_right_is_not_worked_under(world: World) -> None:
    warmed(world)
    took = iter(range(10, 1000, 10))
    world.table.before = lambda method: world.machine.store.advance(next(took), standstill=True)
    with pytest.raises(LedgerUnavailable, match="store's time"):
        world.ledger.create(world.name, claimed("a"))


def test_a_clock_that_ran_ahead_keeps_nobody_out_for_long(world: World) -> None:
    warmed(world)
    # As after a snapshot was restored on another machine.
    world.machine.advance(10 * 365 * 86400)
    world.ledger.create(world.name, claimed("a"))
    world.machine.store.advance(LEASE + _COARSE)
    assert world.entry().age >= LEASE


@given(
    begun=st.floats(0, 1),
    there=st.lists(st.floats(0, 4), min_size=8, max_size=8),
    back=st.lists(st.floats(0, 4), min_size=8, max_size=8),
    stands=st.lists(st.booleans(), min_size=16, max_size=16),
    idle=st.floats(0, 100),
    idle_stands=st.booleans(),
    passed=st.floats(0, 200),
)
def test_an_entry_is_never_told_older_than_its_answer(
    moto: Any,
    begun: float,
    there: list[float],
    back: list[float],
    stands: list[bool],
    idle: float,
    idle_stands: bool,
    passed: float,
) -> None:
    world = world_on(moto)
    store = world.machine.store
    store.advance(begun)
    world.ledger.read(world.name)
    store.advance(idle, standstill=idle_stands)
    delays, standing, answered = iter(there + back), iter(stands), [0.0]

    def on_the_way(method: str) -> None:
        store.advance(next(delays, 0.0), standstill=next(standing, False))

    def answer(method: str) -> None:
        answered[0] = store.wall()
        on_the_way(method)

    world.table.before, world.table.after = on_the_way, answer
    try:
        world.ledger.create(world.name, claimed("a"))
    except LedgerUnavailable:
        return
    written = answered[0]
    store.advance(passed)
    world.table.before = world.table.after = lambda method: None
    age = world.entry().age
    assert age <= store.wall() - written
    assert age >= store.wall() - written - 62.0
    if not idle_stands and not any(stands):
        # Written anew only where a call took longer than the one before.
        assert world.table.calls["put_item"] == 1 or max(there) > 1
    assert world.entry().record == claimed("a")


@pytest.mark.parametrize("wrong", [-3600.0, 3600.0])
def test_a_wrong_clock_of_the_machine_changes_nothing(
    moto: Any, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_on(moto)
    # Its wall clock raises when it is read; so that nobody reads the real one past it:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + wrong)
    world.ledger.create(world.name, claimed("dead"))
    assert world.table.calls == {"get_item": 1, "put_item": 1}
    world.machine.store.advance(LEASE / 2)
    assert LEASE / 2 - _COARSE <= world.entry().age <= LEASE / 2
    told = float(world.item()["written"]["N"])
    assert abs(told - (world.machine.store.wall() - LEASE / 2)) <= 1.0


# What stands in the table.


@pytest.mark.parametrize("state", [State.CLAIMED, State.COMPLETED])
def test_time_to_live_is_over_a_day_after_the_last_that_may_act(world: World, state: State) -> None:
    record = claimed("a").ended(state)
    world.ledger.create(world.name, record)
    expires = int(world.item()["expires"]["N"])
    after = expires - world.machine.store.wall() - record.lease - record.horizon
    assert 86_400 - 2 <= after <= 86_400 + 5


def test_a_listing_tells_state_and_horizon_without_texts(world: World) -> None:
    record = claimed("a").ended(State.COMPLETED, result="secret")
    world.ledger.create(world.name, record)
    # A path is a path, and not any beginning of a name.
    assert not [item for page in world.ledger.scan(world.name[:-1]) for item in page.items]
    items = [item for page in world.ledger.scan("ns/op") for item in page.items]
    (item,) = [item for item in items if item.name == world.name]
    assert (item.state, item.keep) == (State.COMPLETED, RETENTION)
    assert world.table.calls["get_item"] == 1


def test_an_item_of_somebody_elses_is_neither_read_nor_overwritten(world: World) -> None:
    world.client.put_item(TableName=TABLE, Item={"name": {"S": world.name}, "v": {"S": "theirs"}})
    for call in (
        lambda: world.ledger.read(world.name),
        lambda: warmed_create(world),
        lambda: world.ledger.read_many([world.name]),
    ):
        with pytest.raises(UnreadableRecordError) as caught:
            call()
        assert "theirs" not in str(caught.value)
    assert world.item()["v"] == {"S": "theirs"}
    names = [item.name for page in world.ledger.scan("ns") for item in page.items]
    assert world.name in names
    world.client.delete_item(TableName=TABLE, Key={"name": {"S": world.name}})


def warmed_create(world: World) -> Entry:
    world.ledger.read(f"{world.name}-free")
    return world.ledger.create(world.name, claimed("a"))


def test_a_record_without_its_time_is_not_taken_over(world: World) -> None:
    world.ledger.create(world.name, claimed("a"))
    world.client.update_item(
        TableName=TABLE,
        Key={"name": {"S": world.name}},
        UpdateExpression="REMOVE written",
    )
    with pytest.raises(UnreadableRecordError, match="when it was written"):
        world.ledger.read(world.name)


def test_records_up_to_the_limit_of_an_item_fit_and_larger_ones_do_not(world: World) -> None:
    def holding(size: int) -> Record:
        return claimed("a").ended(State.COMPLETED, result="x" * size)

    assert world.ledger.fits(holding(400_000))
    assert not world.ledger.fits(holding(400 * 1024))
    largest = max(size for size in range(400_000, 410_000, 50) if world.ledger.fits(holding(size)))
    long = f"{world.name}/{'n' * (2048 - len(world.name) - 1)}"
    assert world.ledger.create(long, holding(largest)).record == holding(largest)
    with pytest.raises(LedgerMisconfigured):
        world.ledger.create(world.name, holding(410_000))


def test_what_a_batch_leaves_out_is_asked_for_again(world: World) -> None:
    names = [f"{world.name}/{at}" for at in range(230)]
    for name in names:
        world.ledger.create(name, claimed(name))
    real = world.client

    class Stingy:
        """Refuses what AWS refuses, and every other time answers a part of a batch."""

        asked = 0

        def batch_get_item(self, RequestItems: Any) -> Any:
            Stingy.asked += 1
            keys = RequestItems[TABLE]["Keys"]
            assert len({key["name"]["S"] for key in keys}) == len(keys) <= 100
            served, left = (keys[:30], keys[30:]) if Stingy.asked % 2 else (keys, [])
            reply = real.batch_get_item(RequestItems={TABLE: {"Keys": served}})
            return {**reply, "UnprocessedKeys": {TABLE: {"Keys": left}} if left else {}}

    ledger = DynamoDBLedger(TABLE, Stingy(), clock=world.machine)
    found = ledger.read_many([*names[:7], *names, f"{world.name}/free"])
    assert {name: entry.record.token for name, entry in found.items()} == {n: n for n in names}


def test_a_batch_that_is_never_answered_in_full_ends_at_the_deadline(world: World) -> None:
    class Throttled:
        def batch_get_item(self, RequestItems: Any) -> Any:
            world.machine.store.advance(0.01)
            header = {"HTTPHeaders": {"date": "Tue, 01 Dec 2026 03:23:08 GMT"}}
            return {"Responses": {}, "UnprocessedKeys": RequestItems, "ResponseMetadata": header}

    ledger = DynamoDBLedger(TABLE, Throttled(), clock=world.machine)
    for deadline in (None, Deadline.after(world.machine, 3.0)):
        with pytest.raises(LedgerUnavailable):
            ledger.read_many([world.name], deadline=deadline)


def test_a_stand_in_that_does_not_say_what_stands_is_read(world: World) -> None:
    class Silent(Table):
        def _answer(self, method: str, request: dict[str, Any]) -> Any:
            request.pop("ReturnValuesOnConditionCheckFailure", None)
            return super()._answer(method, request)

    ledger = DynamoDBLedger(TABLE, Silent(world.client, world.machine.store), clock=world.machine)
    first = ledger.create(world.name, claimed("a"))
    assert ledger.create(world.name, claimed("b")).record == claimed("a")
    ledger.replace(first, claimed("c"))
    late = ledger.replace(first, claimed("d"))
    assert late is not None
    assert late.record == claimed("c")


# What goes wrong, with its cure.


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (
            "AccessDeniedException",
            "dynamodb:PutItem on arn:aws:dynamodb:REGION:ACCOUNT:table/ledger",
        ),
        ("ResourceNotFoundException", "no DynamoDB table ledger .*partition key `name`"),
        ("ValidationException", "dynamodb:PutItem on the table ledger .*partition key `name`"),
        ("UnrecognizedClientException", "DynamoDB refuses the credentials"),
        ("SomethingNewException", "SomethingNewException"),
    ],
)
def test_a_refusal_for_good_is_not_retried_and_names_its_cure(
    world: World, code: str, named: str
) -> None:
    warmed(world).table.fail = [refusal(code)]
    with pytest.raises(LedgerMisconfigured, match=named) as caught:
        world.ledger.create(world.name, claimed("a"))
    assert "a payload" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert world.table.calls == {"put_item": 1}


@pytest.mark.parametrize(
    ("call", "action"),
    [
        (lambda ledger, entry: ledger.read(entry.name), "GetItem"),
        (lambda ledger, entry: ledger.read_many([entry.name]), "BatchGetItem"),
        (lambda ledger, entry: list(ledger.scan()), "Scan"),
        (lambda ledger, entry: ledger.remove([entry]), "DeleteItem"),
    ],
)
def test_a_denied_call_names_its_action(
    world: World, call: Callable[[Ledger, Entry], object], action: str
) -> None:
    entry = world.ledger.create(world.name, claimed("a"))
    world.table.fail = [refusal("AccessDeniedException")]
    with pytest.raises(LedgerMisconfigured, match=f"allow dynamodb:{action} on arn:"):
        call(world.ledger, entry)


def test_a_table_that_is_named_by_its_arn_is_named_so_in_errors(world: World) -> None:
    arn = f"arn:aws:dynamodb:{REGION}:123456789012:table/orders"
    ledger = DynamoDBLedger(arn, world.table, clock=world.machine)
    world.table.fail = [refusal("AccessDeniedException")]
    with pytest.raises(LedgerMisconfigured, match=f"on {arn}$"):
        ledger.read(world.name)


@pytest.mark.parametrize(
    "passing",
    [
        refusal("ProvisionedThroughputExceededException"),
        refusal("ThrottlingException"),
        refusal("RequestLimitExceeded"),
        refusal("ReplicatedWriteConflictException"),
        refusal("InternalServerError", 500),
        refusal("InvalidSignatureException"),
    ],
    ids=lambda error: error.response["Error"]["Code"],
)
def test_what_passes_is_tried_again(world: World, passing: Exception) -> None:
    warmed(world).table.fail = [passing]
    assert world.ledger.create(world.name, claimed("a")).record == claimed("a")
    assert world.table.calls == {"put_item": 2}


def test_what_does_not_pass_is_given_up_before_the_deadline(world: World) -> None:
    world.table.fail = [refusal("ThrottlingException")] * 1000
    before = world.machine.monotonic()
    with pytest.raises(LedgerUnavailable, match="ThrottlingException"):
        world.ledger.create(world.name, claimed("a"), deadline=Deadline.after(world.machine, 4.0))
    assert world.machine.monotonic() - before < 4.0


def test_a_store_without_the_time_is_named(world: World) -> None:
    class Timeless:
        def get_item(self, **_: Any) -> Any:
            return {"ResponseMetadata": {"HTTPHeaders": {}}}

        def put_item(self, **_: Any) -> Any:
            raise refusal("ConditionalCheckFailedException")

    ledger = DynamoDBLedger(TABLE, Timeless(), clock=world.machine)
    entry = Entry(world.name, claimed("a"), 0.0, "0123")
    calls: list[Callable[[], object]] = [
        lambda: ledger.read(world.name),
        lambda: ledger.replace(entry, claimed("a")),
    ]
    for call in calls:
        with pytest.raises(LedgerMisconfigured, match=r"Date header.*AWS_ENDPOINT_URL_DYNAMODB"):
            call()


# By URL.


def test_a_url_opens_a_table_of_the_environments_endpoint(
    ministack_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", ministack_url)
    guard = Guard(ledger=f"dynamodb:///{TABLE}?region={REGION}", namespace=secrets.token_hex(8))
    assert guard.run_exactly_once("k", lambda: {"n": 1}).result == {"n": 1}
    again = guard.run_exactly_once("k", lambda: {"n": 2})
    assert (again.outcome, again.result) == (Outcome.SKIPPED_COMPLETED, {"n": 1})
    by_url = open_ledger(f"dynamodb:///{TABLE}?endpoint_url={ministack_url}")
    assert isinstance(by_url, DynamoDBLedger)
    assert by_url.table == TABLE


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("dynamodb://ledger", "three slashes"),
        ("dynamodb:///", "table: ''"),
        ("dynamodb:///ab", "3 to 255"),
        ("dynamodb:///a/b/c", "'a/b/c'"),
        (
            "dynamodb:///ledger?tier=Advanced",
            "unknown setting tier; known are endpoint_url, region",
        ),
        ("dynamo:///ledger", "dynamodb:///TABLE"),
    ],
)
def test_a_url_that_names_no_table_is_refused(url: str, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        open_ledger(url)


_DECORATED = """
import sys
from idemguard import Guard
from idemguard.ledgers import open_ledger

open_ledger("dynamodb:///ledger")
Guard(ledger="dynamodb:///ledger").idempotent(key="id")(lambda event: 1)
print(sorted({"boto3", "botocore"} & set(sys.modules)))
"""


def test_opening_a_ledger_loads_no_sdk() -> None:
    command = [sys.executable, "-c", _DECORATED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


# Races, on a server with real connections.

_RACERS = 32
_ROUNDS = 50


@pytest.mark.parametrize("stale", [False, True], ids=["first claim", "takeover"])
def test_of_many_threads_one_runs_the_work_in_every_round(ministack_url: str, stale: bool) -> None:
    ledger = DynamoDBLedger(TABLE, endpoint_url=ministack_url)
    namespace = secrets.token_hex(8)

    def guard(**options: Any) -> Guard:
        return Guard(ledger=ledger, namespace=namespace, local_cache=False, **options)

    if stale:
        abandoned = guard(lease=0.001, operation="work")
        for number in range(_ROUNDS):
            abandoned.claim(number)
        time.sleep(_COARSE + 0.5)
    barrier = threading.Barrier(_RACERS)
    effects: list[int] = []
    racer = guard(operation="work")

    def race(_: int) -> list[str]:
        endings = []
        for number in range(_ROUNDS):
            barrier.wait(60)
            try:
                ended = racer.run_exactly_once(number, lambda: effects.append(number))  # noqa: B023
                endings.append(ended.outcome.name)
            except InFlightError:
                endings.append("IN_FLIGHT")
        return endings

    with ThreadPoolExecutor(_RACERS) as pool:
        endings = Counter(one for all_ in pool.map(race, range(_RACERS)) for one in all_)
    assert Counter(effects) == dict.fromkeys(range(_ROUNDS), 1)
    assert endings["EXECUTED"] == _ROUNDS
    assert endings.total() == _ROUNDS * _RACERS
