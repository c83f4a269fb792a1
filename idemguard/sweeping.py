"""One sweep under way: lists, reads, bars, and removes what was barred; and the report of it."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .clock import Clock, Deadline
from .errors import LedgerMisconfigured, LedgerUnavailable
from .ledger import Entry, Ledger, Listed, Page
from .lifecycle import bar, may_be_swept
from .upkeep import read_legible

# Bars that may stand at once: bounds memory, and the rate to about 16 a second where a bar waits 60 s.
_STANDING = 1000
_BATCH = 10
# Seconds for which a batch takes in more bars: its oldest bar must not lapse before its newest is due.
_GATHER = 30.0
# A bar must land soon after the read that it rests on, or the ledger will not count it.
_FRESH = 15.0
# Seconds that one call may take, retries included, before the sweep gives way to deliveries.
_PATIENCE = 10.0
#: Seconds kept back for the calls that end a sweep.
LAST_CALLS = 5.0
# Records that the store refuses to bar before it is believed to refuse all of them.
_REFUSALS = 10
_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep came to. Each scanned name is in one of the five counts that follow `scanned`.

    Attributes:
        dry_run: nothing was written; `backlog` is what a sweep would remove.
        done: every name was looked at; else go on with `resume`.
        stopped: why it ended before that; empty if it did not.
        resume: where to go on; None to start from the beginning.
        scanned: names that were met.
        kept: still needed: within their horizon, or taken by somebody meanwhile.
        swept: removed.
        gone_already: listed, and gone when they were looked at.
        unreadable: no records of this version, such as other people's parameters; left alone.
        backlog: may be swept and still stand.
        barred: those of the backlog that are barred; the next sweep finds them when the bar lapses.
        refused: those of the backlog that the store refused to change; `refusal` is its last reason.
        written_last_day: names last written within 24 hours, to be compared with what is swept.
        capacity: how many records the store holds at most; None if that is not limited.
        head_room: how many more it can hold at most; None where not all names were scanned. Other
            things in the account take from it too.
        calls: calls that were asked of the store, without its retries.
        calls_per_record: calls by scanned names.
    """

    dry_run: bool
    done: bool
    stopped: str
    resume: str | None
    scanned: int
    kept: int
    swept: int
    gone_already: int
    unreadable: int
    backlog: int
    barred: int
    refused: int
    refusal: str
    written_last_day: int
    capacity: int | None
    head_room: int | None
    calls: int
    calls_per_record: float

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)


class _Stopped(Exception):
    """The sweep ends here; the text says why."""


class Sweeping:
    """One sweep under way; `Sweeper.sweep` says what the arguments mean, `stop` is when it bars no more."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        under: str,
        dry_run: bool,
        rate: float,
        limit: Deadline | None,
        stop: Deadline | None,
        progress: Callable[[SweepReport], None] | None,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._under = under
        self._dry_run = dry_run
        self._pause = 1 / rate
        self._limit = limit
        self._stop = stop
        self._progress = progress
        self._token = secrets.token_hex(16)
        self._bars = _Bars(clock, ledger.removal_delay)
        self._next_write = clock.monotonic()
        self._scanned = self._kept = self._swept = self._gone = self._unreadable = 0
        self._backlog = self._refused = self._recent = self._calls = 0
        self._refusal = ""

    def run(self, resume: str | None) -> SweepReport:
        """Go through the pages from `resume` on, then wait for the bars that stand."""
        whole = resume is None and not self._under
        cursor, stopped, done = resume, "", False
        try:
            page = self._first_page(resume)
            while True:
                self._sweep_page(page)
                self._tell(cursor)
                cursor = page.cursor
                if cursor is None:
                    done = True
                    break
                page = self._page(cursor)
        except (_Stopped, LedgerUnavailable) as reason:
            if not self._scanned and isinstance(reason, LedgerUnavailable):
                raise
            stopped = str(reason)
        while self._bars.standing:
            self._remove(self._bars.oldest())
            self._tell(cursor)
        return self._report(done=done, stopped=stopped, resume=cursor, whole=whole)

    def _first_page(self, resume: str | None) -> Page:
        try:
            return self._page(resume)
        except LedgerMisconfigured:
            # Perhaps the token of a listing long ago; if it is something else, it comes up again.
            if resume is None:
                raise
            return self._page(None)

    def _page(self, cursor: str | None) -> Page:
        self._check_time()
        self._remove_due()
        self._calls += 1
        return next(
            iter(self._ledger.scan(self._under, deadline=self._by(3 * _PATIENCE), start=cursor))
        )

    def _sweep_page(self, page: Page) -> None:
        names = [item.name for item in page.items if _perhaps(item)]
        self._scanned += len(page.items)
        self._kept += len(page.items) - len(names)
        self._recent += sum(item.age < _DAY for item in page.items)
        self._backlog += len(names)  # Each until it turns out to be something else.
        while names:
            self._await_write()
            handled = self._sweep_names(names[:_BATCH])
            names = names[handled:]

    def _sweep_names(self, names: Sequence[str]) -> int:
        """Read and bar; how many of the names are dealt with. The others must be read again."""
        read_at = self._clock.monotonic()
        found = read_legible(self._ledger, names, deadline=self._by())
        self._calls += found.calls
        for number, name in enumerate(names):
            entry = found.entries.get(name)
            if name in found.illegible:
                self._backlog -= 1
                self._unreadable += 1
            elif entry is None:
                self._backlog -= 1
                self._gone += 1
            elif not may_be_swept(entry.record, entry.age):
                self._backlog -= 1
                self._kept += 1
            elif not self._dry_run:
                self._await_write()
                if self._clock.monotonic() - read_at > _FRESH:
                    return number
                self._bar(entry)
        return len(names)

    def _bar(self, entry: Entry) -> None:
        record = bar(entry.record, self._token)
        self._next_write = self._clock.monotonic() + self._pause
        self._calls += 1
        try:
            standing = self._ledger.replace(entry, record, deadline=self._by())
        except LedgerMisconfigured as error:
            # One odd record (of another tier, say) must not end every sweep; a missing permission must.
            self._refused += 1
            self._refusal = str(error)
            if self._refused >= _REFUSALS and not self._swept and not self._bars.standing:
                raise
            return
        if standing is None:
            self._backlog -= 1
            self._gone += 1
        elif standing.record == record:
            self._bars.add(standing)
        else:
            self._backlog -= 1
            self._kept += 1

    def _await_write(self) -> None:
        """Until the rate allows a write and there is room for its bar; removes what falls due."""
        if self._dry_run:
            return self._check_time()
        while True:
            self._remove_due()
            self._check_time()
            now = self._clock.monotonic()
            full = self._bars.standing >= _STANDING
            if now >= self._next_write and not full:
                return None
            moments = [] if full else [self._next_write]
            if self._bars.standing:
                moments.append(self._bars.due_at())
            self._clock.sleep(max(0.0, min(moments) - now))

    def _remove_due(self) -> None:
        while self._bars.standing and self._bars.due_at() <= self._clock.monotonic():
            self._remove(self._bars.oldest())

    def _remove(self, batch: _Batch) -> None:
        """Remove a batch once it is due; what cannot be removed now is left to the next sweep."""
        wait = batch.due - self._clock.monotonic()
        if self._limit is not None and wait >= self._limit.remaining():
            return
        self._clock.sleep(max(0.0, wait))
        self._calls += 2  # The store looks again before it deletes.
        try:
            gone = self._ledger.remove(batch.entries, deadline=self._by())
        except LedgerUnavailable:
            return
        self._swept += len(gone)
        self._backlog -= len(gone)

    def _check_time(self) -> None:
        if self._stop is not None and self._stop.remaining() <= 0:
            raise _Stopped("its time is up")

    def _by(self, patience: float = _PATIENCE) -> Deadline:
        left = patience if self._limit is None else min(patience, self._limit.remaining())
        return Deadline.after(self._clock, left)

    def _tell(self, cursor: str | None) -> None:
        if self._progress is not None:
            self._progress(self._report(done=False, stopped="", resume=cursor, whole=False))

    def _report(self, *, done: bool, stopped: str, resume: str | None, whole: bool) -> SweepReport:
        capacity = self._ledger.capacity
        there = self._scanned - self._swept - self._gone
        return SweepReport(
            dry_run=self._dry_run,
            done=done,
            stopped=stopped,
            resume=resume,
            scanned=self._scanned,
            kept=self._kept,
            swept=self._swept,
            gone_already=self._gone,
            unreadable=self._unreadable,
            backlog=self._backlog,
            barred=self._bars.added - self._swept,
            refused=self._refused,
            refusal=self._refusal,
            written_last_day=self._recent,
            capacity=capacity,
            head_room=max(0, capacity - there) if capacity and whole and done else None,
            calls=self._calls,
            calls_per_record=round(self._calls / self._scanned, 3) if self._scanned else 0.0,
        )


def _perhaps(item: Listed) -> bool:
    """Whether a listed name is worth a look: past its horizon as listed, or not listed as a record."""
    return item.state is None or item.keep is None or item.age >= item.keep


@dataclass(slots=True)
class _Batch:
    entries: list[Entry]
    begun: float
    due: float


class _Bars:
    """Bars that stand until they may be removed, oldest first, in batches."""

    def __init__(self, clock: Clock, delay: float) -> None:
        self.added = 0
        self.standing = 0
        self._clock = clock
        self._delay = delay
        self._batches: deque[_Batch] = deque()

    def add(self, entry: Entry) -> None:
        """Take in a bar that was just written."""
        now = self._clock.monotonic()
        last = self._batches[-1] if self._batches else None
        if last is None or len(last.entries) == _BATCH or now - last.begun > _GATHER:
            last = _Batch([], now, now)
            self._batches.append(last)
        last.entries.append(entry)
        last.due = now + self._delay
        self.added += 1
        self.standing += 1

    def due_at(self) -> float:
        """When the oldest batch may be removed."""
        return self._batches[0].due

    def oldest(self) -> _Batch:
        """Take out the oldest batch."""
        batch = self._batches.popleft()
        self.standing -= len(batch.entries)
        return batch
