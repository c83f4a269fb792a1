"""DynamoDB's calls, as many as the ledger makes, and what the store's time is. Knows nothing of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..clock import Clock, Deadline
from ..errors import LedgerMisconfigured
from .aws_calls import PATIENCE, Calls, date_of

# Keys that one BatchGetItem takes
# (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html).
_BATCH = 100
# Items looked at for one page of a scan.
_PAGE = 200
_LONGEST_WAIT = 0.5

_REFUSED = "ConditionalCheckFailedException"
_OLD = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


class _Refused(Exception):
    """A condition did not hold; with the item that stands, and the store's time."""

    def __init__(self, standing: Stored | None, date: float) -> None:
        super().__init__(_REFUSED)
        self.standing = standing
        self.date = date


@dataclass(frozen=True, slots=True)
class Stored:
    """One item.

    Attributes:
        name: its key.
        write: a random identity of the write that made it; what conditions compare.
        written: the store's time, as its writer knew it; seconds since the epoch. None if missing.
        text: empty where it was not asked for.
        state, keep: for listings.
        expires: from when on DynamoDB may delete it (seconds since the epoch).
    """

    name: str
    write: str
    written: float | None
    text: str = ""
    state: str = ""
    keep: float = 0.0
    expires: int = 0


class Store(Calls):
    """The calls, with the store's own time (the response's ``Date``) beside every answer."""

    service = "dynamodb"
    title = "DynamoDB"
    methods: ClassVar[Mapping[str, str]] = {
        "GetItem": "get_item",
        "PutItem": "put_item",
        "DeleteItem": "delete_item",
        "BatchGetItem": "batch_get_item",
        "Scan": "scan",
    }

    def __init__(self, client: Callable[[Deadline], Any], clock: Clock, *, table: str) -> None:
        super().__init__(client, clock)
        self._table = table
        # The latest `Date`, and when the call that brought it was begun.
        self._heard: tuple[float, float] | None = None

    def now(self) -> float | None:
        """No earlier than the store's time now, unless the machine's clock stood still; None at first."""
        if self._heard is None:
            return None
        date, begun = self._heard
        # A `Date` is cut to whole seconds, and was told after the call was begun.
        return round(date + 1.0 + self._clock.monotonic() - begun, 3)

    def get(self, name: str, *, deadline: Deadline | None) -> tuple[Stored | None, float]:
        """The item, and the store's time."""
        request = {"Key": _key(name), "ConsistentRead": True}
        reply, date = self._on_table("GetItem", deadline, request)
        return _stored(reply.get("Item")), date

    def get_many(
        self, names: Sequence[str], *, deadline: Deadline | None
    ) -> Iterator[tuple[Stored, float]]:
        """Those items that there are, each with the store's time when it was read."""
        deadline = deadline or Deadline.after(self._clock, PATIENCE)
        pending = [_key(name) for name in dict.fromkeys(names)]
        while pending:
            batch, pending = pending[:_BATCH], pending[_BATCH:]
            request = {"RequestItems": {self._table: {"Keys": batch, "ConsistentRead": True}}}
            reply, date = self._timed("BatchGetItem", deadline, request)
            for items in reply.get("Responses", {}).values():
                for item in items:
                    yield _parsed(item), date
            for left in (reply.get("UnprocessedKeys") or {}).values():
                pending = [*pending, *left["Keys"]]
                # Too much for one answer, or throttled; which one is not told.
                self._clock.sleep(
                    self._clock.jitter(min(_LONGEST_WAIT, max(0.0, deadline.remaining())))
                )

    def put(
        self, item: Stored, *, over: str | None, deadline: Deadline | None
    ) -> tuple[Stored | None, float]:
        """Write over that write, or over nothing; what stands afterwards, and the store's time.

        A refusal without an item, which AWS gives where nothing stands, is None too.
        """
        request = {"Item": _attributes(item), **_condition(over)}
        try:
            _, date = self._on_table("PutItem", deadline, request)
        except _Refused as refused:
            return refused.standing, refused.date
        return item, date

    def delete(self, name: str, *, over: str, deadline: Deadline | None) -> Stored | None:
        """Delete the item if that write made it; what stands afterwards, as `put` tells it."""
        request = {"Key": _key(name), **_condition(over)}
        try:
            self._on_table("DeleteItem", deadline, request)
        except _Refused as refused:
            return refused.standing
        return None

    def scan(
        self, under: str, *, cursor: str | None, deadline: Deadline | None
    ) -> tuple[Sequence[Stored], str | None, float]:
        """One page of items whose names begin with `under`, without texts; and where to go on."""
        request: dict[str, Any] = {
            "ProjectionExpression": "#name, #write, #written, #state, #keep",
            "ExpressionAttributeNames": {
                f"#{name}": name for name in ("name", "write", "written", "state", "keep")
            },
            "ConsistentRead": True,
            "Limit": _PAGE,
        }
        if under:
            request["FilterExpression"] = "begins_with(#name, :under)"
            request["ExpressionAttributeValues"] = {":under": {"S": under}}
        if cursor:
            request["ExclusiveStartKey"] = _key(cursor)
        reply, date = self._on_table("Scan", deadline, request)
        last = reply.get("LastEvaluatedKey")
        items = [_parsed(item) for item in reply.get("Items", ())]
        return items, last["name"]["S"] if last else None, date

    def _on_table(
        self, action: str, deadline: Deadline | None, request: dict[str, Any]
    ) -> tuple[dict[str, Any], float]:
        return self._timed(action, deadline, {"TableName": self._table, **request})

    def _timed(
        self, action: str, deadline: Deadline | None, request: dict[str, Any]
    ) -> tuple[dict[str, Any], float]:
        begun = self._clock.monotonic()
        try:
            reply = self._call(action, deadline, request)
        except _Refused as refused:
            self._heard = refused.date, begun
            raise
        date = self._date(reply)
        self._heard = date, begun
        return reply, date

    def _named(self, code: str, error: Exception, action: str) -> Exception | None:
        if code == _REFUSED:
            response: Mapping[str, Any] = error.response  # type: ignore[attr-defined]
            date = date_of(response)
            return (
                self._timeless() if date is None else _Refused(_stored(response.get("Item")), date)
            )
        if code == "ResourceNotFoundException":
            return LedgerMisconfigured(
                f"there is no DynamoDB table {self._table} in this account and Region: create it, with "
                "a partition key `name` of type S, or check the ledger's table and region"
            )
        return None

    def _resource(self, action: str) -> str:
        if self._table.startswith("arn:"):
            return self._table
        return f"arn:aws:dynamodb:REGION:ACCOUNT:table/{self._table}"

    def _refused(self, code: str, action: str) -> str:
        return (
            f"DynamoDB refuses dynamodb:{action} on the table {self._table} with {code}: check that "
            "its key is a partition key `name` of type S without a sort key, that it is active, and "
            "that its KMS key can be used"
        )


def _key(name: str) -> dict[str, Any]:
    return {"name": {"S": name}}


def _condition(over: str | None) -> dict[str, Any]:
    """That the write `over` still stands, or nothing; with what stands in the answer if it does not."""
    if over is None:
        return {
            "ConditionExpression": "attribute_not_exists(#name)",
            "ExpressionAttributeNames": {"#name": "name"},
            **_OLD,
        }
    return {
        "ConditionExpression": "#write = :over",
        "ExpressionAttributeNames": {"#write": "write"},
        "ExpressionAttributeValues": {":over": {"S": over}},
        **_OLD,
    }


def _attributes(item: Stored) -> dict[str, Any]:
    return {
        "name": {"S": item.name},
        "write": {"S": item.write},
        "written": {"N": f"{item.written:.3f}"},
        "text": {"S": item.text},
        "state": {"S": item.state},
        "keep": {"N": f"{item.keep:.3f}"},
        "expires": {"N": str(item.expires)},
    }


def _stored(attributes: Mapping[str, Any] | None) -> Stored | None:
    return None if attributes is None else _parsed(attributes)


def _parsed(attributes: Mapping[str, Any]) -> Stored:
    """The item, as far as it is one: whoever reads its text finds out."""

    def text(name: str) -> str:
        return str(attributes.get(name, {}).get("S", ""))

    def number(name: str) -> float | None:
        value = attributes.get(name, {}).get("N")
        return None if value is None else float(value)

    return Stored(
        name=text("name"),
        write=text("write"),
        written=number("written"),
        text=text("text"),
        state=text("state"),
        keep=number("keep") or 0.0,
        expires=int(number("expires") or 0),
    )
