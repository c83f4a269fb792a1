"""The ledger on SSM Parameter Store: the version is the ticket.

`PutParameter` can create a name atomically, but it cannot overwrite on a condition. It does return
the number of the version it wrote, and numbers rise by one. So each entry says which version its
writer had seen (``p``) and the store's time when the writer decided (``s``), and

    an entry at version v counts  if and only if  p = v - 1  and it landed within 30 s of s.

The head, the newest entry that counts, is what the name holds; other entries are noise that readers
skip. Deleting has no condition at all, so only the sweeper deletes, behind a bar that keeps
claimers out. `docs/explanation/guarantees.md` gives the assumptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock, Deadline
from ..errors import InvalidOption, LedgerUnavailable, UnreadableRecordError
from ..ledger import Entry, Ledger, Listed, Page
from ..record import VACANT, Record, State, from_text, to_text
from . import check_settings
from .aws_client import Given
from .ssm_client import ClientMaker
from .ssm_store import CONTENTION, EXISTS, NO_VERSION, NOT_FOUND, Refused, Store, Stored

#: Seconds between a writer's decision and its landing beyond which the entry does not count.
WINDOW = 30.0
# A writer whose answer came later than this after its decision looks, instead of trusting itself.
_SURE = 25.0
# A sweeper deletes only while its bar has this many seconds left: a delete that hangs in the network
# for as long as it may must find the bar still up.
_DELETE_MARGIN = 60.0

# Bytes a parameter's value may take, by tier
# (https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html).
_MAX_BYTES = {"Standard": 4096, "Advanced": 8192}
# Parameters of a tier in an account and Region (https://docs.aws.amazon.com/general/latest/gr/ssm.html).
_CAPACITY = {"Standard": 10_000, "Advanced": 100_000}
_BATCH = 10

_TRIES = 4
_WALKS = 5
_SPREAD = 1.0
_CALM = 0.4

_PATH = re.compile(r"(/[a-zA-Z0-9_.-]+)+")
# 15 levels and 1,011 characters with the ARN in front; a namespace, an operation and a digest follow.
_MAX_PREFIX_LEVELS = 8
_MAX_PREFIX = 400

_DESCRIPTION = re.compile(r"idemguard: ([a-z]+), kept ([0-9]+) s")


@dataclass(frozen=True, slots=True)
class _Mark:
    """What this ledger remembers of a read or write: the newest version, the store's time then."""

    newest: int
    modified: float
    date: float
    at: float


class SSMLedger(Ledger):
    """Records as SSM parameters, one per key.

    Args:
        client: any boto3 SSM client, whose own timeouts and retries then decide how long a call
            takes; without one, a client is made on first use from the environment, with short ones.
        prefix: the path that all names are put under.
        tier: ``"Standard"`` (4,096 bytes a record) or ``"Advanced"`` (8,192); never changed silently.
        key_id: a KMS key; records are then SecureStrings.
        region, endpoint_url: for the client made here; by default the environment tells them
            (``AWS_DEFAULT_REGION``, ``AWS_ENDPOINT_URL_SSM``).

    Raises:
        InvalidOption: prefix or tier is none that AWS accepts.
    """

    removal_delay = 60.0

    def __init__(
        self,
        client: Any = None,
        prefix: str = "/idempotency",
        *,
        tier: str = "Standard",
        key_id: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if tier not in _MAX_BYTES:
            raise InvalidOption(f"tier: {tier!r} is not one of {', '.join(_MAX_BYTES)}")
        self.prefix = _checked_prefix(prefix)
        self.tier = tier
        self.key_id = key_id
        self.capacity = _CAPACITY[tier]
        self._clock = clock
        if client is None:
            client_for: ClientMaker | Given = ClientMaker(region=region, endpoint_url=endpoint_url)
        else:
            client_for = Given(client)
        self._client_for = client_for
        self._store = Store(client_for, clock, root=self.prefix, tier=tier, key_id=key_id)

    @classmethod
    def from_url(cls, host: str, path: str, settings: Mapping[str, str]) -> SSMLedger:
        """The ledger of ``ssm:///PREFIX?tier=&key_id=&region=&endpoint_url=``."""
        known = ("tier", "key_id", "region", "endpoint_url")
        check_settings("ssm", host, path, settings, known)
        return cls(
            None,
            path.strip("/") or "idempotency",
            tier=settings.get("tier", "Standard"),
            key_id=settings.get("key_id"),
            region=settings.get("region"),
            endpoint_url=settings.get("endpoint_url"),
        )

    def full_client(self) -> Any:
        """A boto3 client for all of SSM with this ledger's settings; the ledger itself knows five calls."""
        return self._client_for.full()

    def create(self, name: str, record: Record, *, deadline: Deadline | None = None) -> Entry:
        for _ in range(_TRIES):
            try:
                return self._put(
                    name, record, prev=0, seen=None, overwrite=False, deadline=deadline
                )
            except Refused as refused:
                if refused.code not in (EXISTS, CONTENTION):
                    raise _unexpected(refused) from None
            # "Not found" right after "already exists" is a stale read, or a name just swept: look
            # again before trying again, and never take it for a free name.
            for _ in range(_TRIES):
                if (entry := self.read(name, deadline=deadline)) is not None:
                    return entry
                self._pause(0.1, deadline)
        return self._nothing_certain(name)

    def read(self, name: str, *, deadline: Deadline | None = None) -> Entry | None:
        for _ in range(_WALKS):
            try:
                newest, date = self._store.get(self._full(name), deadline=deadline)
            except Refused as refused:
                if refused.code != NOT_FOUND:
                    raise _unexpected(refused) from None
                return None
            entry = self._judge(name, newest, date, deadline)
            if entry is not None:
                return entry
        return self._nothing_certain(name)

    def replace(
        self, expected: Entry, record: Record, *, deadline: Deadline | None = None
    ) -> Entry | None:
        name, mark = expected.name, _mark_of(expected)
        holder = record.token == expected.record.token
        taker = record.state is State.CLAIMED and not holder
        if taker and expected.record.state is not State.RELEASED:
            # Many takers at once would bury the record under versions that do not count.
            self._pause(_SPREAD, deadline)
            now = self.read(name, deadline=deadline)
            if now is None:
                return None
            if _mark_of(now).newest != mark.newest or _mark_of(now).modified != mark.modified:
                return now
            mark = _mark_of(now)
        # A taker decided on what it read, at that time. A holder decides now: its claim is its ground.
        seen = mark.date + (self._clock.monotonic() - mark.at if holder else 0.0)
        try:
            written = self._put(
                name, record, prev=mark.newest, seen=seen, overwrite=True, deadline=deadline
            )
        except Refused as refused:
            if refused.code != CONTENTION:
                raise _unexpected(refused) from None
            # Whoever tries again at once is refused again.
            self._pause(_CALM, deadline)
            least = mark.newest
        else:
            landed = _mark_of(written)
            if landed.newest == mark.newest + 1 and abs(landed.date - seen) < _SURE:
                return written
            least = landed.newest
        return self._look(name, least, deadline)

    def remove(
        self, barred: Sequence[Entry], *, deadline: Deadline | None = None
    ) -> frozenset[str]:
        gone: set[str] = set()
        for at in range(0, len(barred), _BATCH):
            bars = {entry.name: entry for entry in barred[at : at + _BATCH]}
            standing = self.read_many(list(bars), deadline=deadline)
            gone.update(bars.keys() - standing.keys())
            ours = {
                self._full(name): name
                for name, entry in standing.items()
                if entry.record == bars[name].record
                and entry.record.lease - entry.age >= _DELETE_MARGIN
            }
            if ours:
                try:
                    deleted = self._store.delete_once(list(ours), deadline=deadline)
                except LedgerUnavailable:
                    # Perhaps deleted, perhaps not; the next sweep finds what is still there.
                    continue
                gone.update(ours[name] for name in deleted if name in ours)
        return frozenset(gone)

    def scan(
        self, under: str = "", *, deadline: Deadline | None = None, start: str | None = None
    ) -> Iterator[Page]:
        path = f"{self.prefix}/{under}" if under else self.prefix
        cursor = start
        while True:
            items, cursor, date = self._store.describe(path, cursor=cursor, deadline=deadline)
            yield Page([self._listed(item, date) for item in items], cursor)
            if cursor is None:
                return

    def fits(self, record: Record) -> bool:
        return len(to_text(record, p=10**9, s=10**9 + 0.001)) <= _MAX_BYTES[self.tier]

    def read_many(
        self, names: Sequence[str], *, deadline: Deadline | None = None
    ) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for at in range(0, len(names), _BATCH):
            wanted = {self._full(name): name for name in names[at : at + _BATCH]}
            found, date = self._store.get_many(list(wanted), deadline=deadline)
            for full, newest in found.items():
                name = wanted[full]
                entry = self._judge(name, newest, date, deadline) or self.read(
                    name, deadline=deadline
                )
                if entry is not None:
                    entries[name] = entry
        return entries

    def _look(self, name: str, least: int, deadline: Deadline | None) -> Entry | None:
        """What stands once version `least` is known to have been there.

        A read that does not reach it is stale: a holder must not lose its claim over one.
        """
        entry: Entry | None = None
        for _ in range(_TRIES):
            entry = self.read(name, deadline=deadline)
            if entry is not None and _mark_of(entry).newest >= least:
                return entry
            self._pause(0.1, deadline)
        # Free again, or under a new life's numbers: then nobody can tell whose.
        return None if entry is None else self._nothing_certain(name)

    def _judge(
        self, name: str, newest: Stored, date: float, deadline: Deadline | None
    ) -> Entry | None:
        """The entry that `newest` leads to; None if the parameter changed while it was looked for."""
        version = newest
        longest = 0.0
        while True:
            record, ticket = _parsed(version.text)
            longest = max(longest, record.lease)
            if _counts(version, ticket):
                break
            if version.number <= 1:
                record = VACANT
                break
            try:
                version, _ = self._store.get(
                    f"{self._full(name)}:{version.number - 1}", deadline=deadline
                )
            except Refused as refused:
                if refused.code == NO_VERSION:
                    # The history was purged under a pile of noise: somebody may hold the name.
                    version = newest
                    record = _unknown(longest)
                    break
                if refused.code == NOT_FOUND:
                    return None
                raise _unexpected(refused) from None
        if version is not newest or record.state is State.UNKNOWN:
            # The walk took several calls; a sweep and a new life of the name may lie between them,
            # and the old numbers must not be matched against the new life.
            try:
                again, date = self._store.get(self._full(name), deadline=deadline)
            except Refused as refused:
                if refused.code == NOT_FOUND:
                    return None
                raise _unexpected(refused) from None
            if again != newest:
                return None
        mark = _Mark(newest.number, newest.modified, date, self._clock.monotonic())
        return Entry(name, record, max(0.0, date - version.modified), mark)

    def _put(
        self,
        name: str,
        record: Record,
        *,
        prev: int,
        seen: float | None,
        overwrite: bool,
        deadline: Deadline | None,
    ) -> Entry:
        ticket: dict[str, object] = {"p": prev}
        if seen is not None:
            ticket["s"] = round(seen, 3)
        number, date = self._store.put(
            self._full(name),
            to_text(record, **ticket),
            # Listing shows descriptions, not values: state and horizon stand here for the sweeper.
            f"idemguard: {record.state.name.lower()}, kept {ceil(record.horizon)} s",
            overwrite=overwrite,
            deadline=deadline,
        )
        return Entry(name, record, 0.0, _Mark(number, date, date, self._clock.monotonic()))

    def _full(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    def _pause(self, upto: float, deadline: Deadline | None) -> None:
        left = deadline.remaining() if deadline else upto * 4
        self._clock.sleep(max(0.0, self._clock.jitter(min(upto, left / 4))))

    def _nothing_certain(self, name: str) -> Entry:
        """Contended beyond telling: as good as claimed, just now."""
        return Entry(name, _unknown(), 0.0, _Mark(0, 0.0, 0.0, self._clock.monotonic()))

    def _listed(self, item: Mapping[str, Any], date: float) -> Listed:
        name = item["Name"].removeprefix(f"{self.prefix}/")
        age = max(0.0, date - item["LastModifiedDate"].timestamp())
        told = _DESCRIPTION.fullmatch(item.get("Description", ""))
        if told is None or told[1].upper() not in State.__members__:
            return Listed(name, age)
        return Listed(name, age, State[told[1].upper()], float(told[2]))


def _counts(version: Stored, ticket: Mapping[str, Any]) -> bool:
    if ticket["p"] != version.number - 1:
        return False
    seen: float | None = ticket.get("s")
    if seen is None:
        return version.number == 1
    return abs(version.modified - seen) <= WINDOW


def _parsed(text: str) -> tuple[Record, Mapping[str, Any]]:
    record, ticket = from_text(text)
    seen = ticket.get("s", 0.0)
    # A number beyond a float's range cannot be compared with a time.
    timed = type(seen) is float or (type(seen) is int and abs(seen) < 10**12)
    if type(ticket.get("p")) is not int or not timed:
        raise UnreadableRecordError("a broken record: it does not say which version came before it")
    return record, ticket


def _unknown(lease: float = 0.0) -> Record:
    return Record(State.UNKNOWN, token="", lease=lease)


def _mark_of(entry: Entry) -> _Mark:
    assert isinstance(entry.mark, _Mark), "the entry is another ledger's"
    return entry.mark


def _unexpected(refused: Refused) -> LedgerUnavailable:
    return LedgerUnavailable(f"SSM answered {refused.code} where that makes no sense; try again")


def _checked_prefix(prefix: str) -> str:
    path = "/" + prefix.strip("/")
    if (
        not _PATH.fullmatch(path)
        or path.count("/") > _MAX_PREFIX_LEVELS
        or len(path) > _MAX_PREFIX
        or path.lower().startswith(("/aws", "/ssm"))
    ):
        raise InvalidOption(
            f"prefix: {prefix!r} cannot start a parameter name; use letters, digits and _ . - in at "
            f"most {_MAX_PREFIX_LEVELS} levels, such as /idempotency, not beginning with aws or ssm"
        )
    return path
