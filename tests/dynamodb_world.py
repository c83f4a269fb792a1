"""A DynamoDB table on a stand-in, whose answers tell the time that a test sets, and go wrong on demand."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from idemguard.clock import Clock
from idemguard.testing.frozen_clock import FrozenClock

TABLE = "ledger"


def create_table(client: Any) -> None:
    """The table, as `idemguard.ledgers.dynamodb` says that it must be."""
    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
    )
    client.update_time_to_live(
        TableName=TABLE,
        TimeToLiveSpecification={"AttributeName": "expires", "Enabled": True},
    )


class StoreClock(FrozenClock):
    """The store's time. `beside` is a machine's clock, which goes at the same pace while it goes."""

    def __init__(self, beside: FrozenClock) -> None:
        super().__init__()
        self.beside = beside

    def advance(self, seconds: float, *, standstill: bool = False) -> None:
        super().advance(seconds)
        if not standstill:
            self.beside.advance(seconds)


class Sandbox(FrozenClock):
    """A machine whose waits pass at the store too, and whose wall clock nobody may look at."""

    def __init__(self) -> None:
        super().__init__()
        self.store = StoreClock(self)

    def wall(self) -> float:
        raise AssertionError("the machine's wall clock was read")

    def sleep(self, seconds: float) -> None:
        self.store.advance(seconds)


class Table:
    """A client whose calls wait for each other, take time, and are counted.

    Attributes:
        calls: how often each method was called.
        before, after: called with the method's name, ahead of and behind the call at the store.
        lose: how many of the next answers are lost, though the call came through.
        fail: what the next calls raise, instead of being sent.
    """

    def __init__(self, client: Any, clock: Clock) -> None:
        self.calls: Counter[str] = Counter()
        self.before: Callable[[str], None] = lambda method: None
        self.after: Callable[[str], None] = lambda method: None
        self.lose = 0
        self.fail: list[Exception] = []
        self._client = client
        self._clock = clock
        self._lock = threading.RLock()

    def __getattr__(self, method: str) -> Any:
        def call(**request: Any) -> Any:
            with self._lock:
                return self._answer(method, request)

        return call

    def _answer(self, method: str, request: dict[str, Any]) -> Any:
        from botocore.exceptions import ClientError, ReadTimeoutError

        self.calls[method] += 1
        if self.fail:
            raise self.fail.pop(0)
        self.before(method)
        try:
            reply = getattr(self._client, method)(**request)
            self._tell_time(reply)
        except ClientError as error:
            self._tell_time(error.response)
            raise
        finally:
            self.after(method)
            if self.lose:
                self.lose -= 1
                raise ReadTimeoutError(endpoint_url="http://a-table")
        return reply

    def _tell_time(self, reply: dict[str, Any]) -> None:
        date = formatdate(self._clock.wall(), usegmt=True)
        reply["ResponseMetadata"]["HTTPHeaders"]["date"] = date


def refusal(code: str, status: int = 400) -> Exception:
    """What boto3 raises for an error of AWS's; its text may hold a payload."""
    from botocore.exceptions import ClientError

    response: Any = {
        "Error": {"Code": code, "Message": "a payload"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
    }
    error: Exception = ClientError(response, "PutItem")
    return error
