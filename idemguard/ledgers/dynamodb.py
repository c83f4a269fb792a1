"""The ledger on a DynamoDB table: a condition on each write, for whoever outgrows Parameter Store.

One item a key. The table has a partition key and no sort key, and an attribute for time to live:

```yaml
Ledger:
  Type: AWS::DynamoDB::Table
  Properties:
    BillingMode: PAY_PER_REQUEST
    AttributeDefinitions: [{AttributeName: name, AttributeType: S}]
    KeySchema: [{AttributeName: name, KeyType: HASH}]
    TimeToLiveSpecification: {AttributeName: expires, Enabled: true}
```

Handlers need the first two actions, sweepers and the person on call need all of them:

```json
{
  "Effect": "Allow",
  "Action": ["dynamodb:GetItem", "dynamodb:PutItem",
             "dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:Scan"],
  "Resource": "arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE"
}
```

Each write is made on a condition: that the name is free, or that the very write that was seen still
stands, which a random identity (`write`) tells. So there is one winner, and a late write changes
nothing. What the condition cannot tell is the age of an entry: DynamoDB keeps no time of an item's
last write. The writer notes it (`written`), from the store's time as it knows it: the ``Date`` of
the latest answer, and its own monotonic time since. That estimate decides nothing by itself:

    a write counts for its writer only if its note is not earlier than the Date of its own answer.

Otherwise, because the machine stood still between two calls, the writer notes the time of that
answer in a second write, over its first; if somebody took the entry over in between, it has lost.
Readers compare the note with the ``Date`` of their read, and take off the second that a ``Date`` is
cut by. So an entry is never told to be older than the time since its writer's answer was made,
whatever any machine's clock does. It may be told to be younger: by three seconds, by as long as the
call before its write took, and by a minute or so at most. For so long a takeover waits. All that
rests on one assumption: the hosts that answer for a Region agree on the time. Where they differ by
`x` seconds, a lease may be cut by `x`.

Time to live deletes an item a day or more after anybody may act on it, so that no sweeper is needed;
that DynamoDB goes by the item as it stands at that moment is assumed too. The table must not be a
global table that is written in several Regions, unless it is one of strong consistency: conditions
hold in one Region. There is no sort key, for a namespace in the partition key would put all of a function's
traffic on one partition; the price is that a scan reads all of the table.

Calls: 2 for a first delivery (one more, a read, for the first of a process), 1 for a duplicate.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock, Deadline
from ..errors import InvalidOption, LedgerUnavailable, UnreadableRecordError
from ..ledger import Entry, Ledger, Listed, Page
from ..record import Record, State, from_text, to_text
from . import check_settings
from .aws_client import ClientMaker, Given
from .dynamodb_store import Store, Stored

# Bytes of an item (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html),
# and of them for its name, which takes 2,048 at most, its other attributes, and some to spare.
_MAX_BYTES = 400 * 1024
_BESIDES = 8 * 1024

# Seconds by which a `Date` may be behind the moment it was made.
_CUT = 1.0
# Seconds by which a note may be later than its answer; a later one would keep others out for too long.
_LATE = 60.0
_TRIES = 3
_DAY = 24 * 3600.0

_TABLE = re.compile(
    r"[a-zA-Z0-9_.-]{3,255}|arn:[a-z0-9-]+:dynamodb:[a-z0-9-]+:[0-9]{12}:table/[a-zA-Z0-9_.-]{3,255}"
)


class DynamoDBLedger(Ledger):
    """Records as items of a DynamoDB table of their own, one per key; up to 400 KB each.

    Args:
        table: the table's name or ARN.
        client: any boto3 DynamoDB client (not a resource); without one, a client is made on first
            use from the environment, with short timeouts.
        region, endpoint_url: for the client made here; by default the environment tells them
            (``AWS_DEFAULT_REGION``, ``AWS_ENDPOINT_URL_DYNAMODB``).
        clock: its monotonic time is used between two answers, its wall clock never.

    Raises:
        InvalidOption: the table's name is none that AWS accepts.
    """

    def __init__(
        self,
        table: str,
        client: Any = None,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not _TABLE.fullmatch(table):
            raise InvalidOption(
                f"table: {table!r} is not the name of a DynamoDB table, which has 3 to 255 letters, "
                "digits and _ . -, nor a table's ARN"
            )
        self.table = table
        if client is None:
            client = ClientMaker("dynamodb", region=region, endpoint_url=endpoint_url)
        else:
            client = Given(client)
        self._store = Store(client, clock, table=table)

    @classmethod
    def from_url(cls, host: str, path: str, settings: Mapping[str, str]) -> DynamoDBLedger:
        """The ledger of ``dynamodb:///TABLE?region=&endpoint_url=``."""
        check_settings("dynamodb", host, path, settings, ("region", "endpoint_url"))
        return cls(
            path.removeprefix("/"),
            region=settings.get("region"),
            endpoint_url=settings.get("endpoint_url"),
        )

    def create(self, name: str, record: Record, *, deadline: Deadline | None = None) -> Entry:
        for _ in range(_TRIES):
            if (entry := self._put(name, record, None, deadline)) is not None:
                return entry
        raise LedgerUnavailable(
            "the record came and went while it was created; deliver again later"
        )

    def read(self, name: str, *, deadline: Deadline | None = None) -> Entry | None:
        found, date = self._store.get(name, deadline=deadline)
        return None if found is None else _entry(found, date)

    def replace(
        self, expected: Entry, record: Record, *, deadline: Deadline | None = None
    ) -> Entry | None:
        return self._put(expected.name, record, _mark_of(expected), deadline)

    def remove(
        self, barred: Sequence[Entry], *, deadline: Deadline | None = None
    ) -> frozenset[str]:
        gone: set[str] = set()
        for entry in barred:
            over = _mark_of(entry)
            try:
                left = self._store.delete(entry.name, over=over, deadline=deadline)
            except LedgerUnavailable:
                # What is still there is found by the next sweep.
                if not gone:
                    raise
                break
            if left is None:
                gone.add(entry.name)
        return frozenset(gone)

    def scan(
        self, under: str = "", *, deadline: Deadline | None = None, start: str | None = None
    ) -> Iterator[Page]:
        path = f"{under}/" if under else ""
        cursor = start
        while True:
            items, cursor, date = self._store.scan(path, cursor=cursor, deadline=deadline)
            yield Page([_listed(item, date) for item in items], cursor)
            if cursor is None:
                return

    def fits(self, record: Record) -> bool:
        return len(to_text(record)) <= _MAX_BYTES - _BESIDES

    def read_many(
        self, names: Sequence[str], *, deadline: Deadline | None = None
    ) -> dict[str, Entry]:
        found = self._store.get_many(names, deadline=deadline)
        return {item.name: _entry(item, date) for item, date in found}

    def _put(
        self, name: str, record: Record, over: str | None, deadline: Deadline | None
    ) -> Entry | None:
        """Write over that write, or over nothing; what stands afterwards, with the time noted right."""
        text = to_text(record)
        if self._store.now() is None:
            standing = self.read(name, deadline=deadline)
            if (None if standing is None else standing.mark) != over:
                return standing
        for _ in range(_TRIES):
            now = self._store.now()
            assert now is not None, "an answer told the time"
            item = Stored(
                name,
                write=secrets.token_hex(8),
                written=now,
                text=text,
                state=record.state.name.lower(),
                keep=record.horizon,
                expires=ceil(now + record.lease + record.horizon + _DAY),
            )
            found, date = self._store.put(item, over=over, deadline=deadline)
            if found is None:
                # Gone; or a stand-in for DynamoDB that refuses and does not say what stands.
                return self.read(name, deadline=deadline)
            if found is not item:
                entry = _entry(found, date)
                if entry.record != record:
                    return entry
                # Our own write, whose answer was lost.
            if found.written is not None and date <= found.written <= date + _LATE:
                return Entry(name, record, 0.0, found.write)
            over = found.write
        raise LedgerUnavailable(
            "the store's time cannot be told: each answer took longer than the one before; deliver "
            "again later"
        )


def _entry(found: Stored, date: float) -> Entry:
    record, _ = from_text(found.text)
    if found.written is None:
        raise UnreadableRecordError("a broken record: it does not say when it was written")
    return Entry(found.name, record, max(0.0, date - found.written - _CUT), found.write)


def _listed(item: Stored, date: float) -> Listed:
    state = item.state.upper()
    if item.written is None or state not in State.__members__:
        return Listed(item.name, 0.0)
    return Listed(item.name, max(0.0, date - item.written - _CUT), State[state], item.keep)


def _mark_of(entry: Entry) -> str:
    assert isinstance(entry.mark, str), "the entry is another ledger's"
    return entry.mark
