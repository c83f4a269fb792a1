"""What every ledger must pass: subclass it to check one of your own.

```python
class TestMyLedger(LedgerContract):
    def make_ledger(self) -> Ledger:
        return MyLedger(url="http://localhost:8000")
```

Each check stands for a promise of `idemguard.ledger`. Needs pytest to be run, not to be imported.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from ..clock import SYSTEM_CLOCK, Clock, Deadline
from ..errors import LedgerUnavailable
from ..ledger import Entry, Ledger, Listed
from ..lifecycle import SWEEP_LEASE
from ..record import Record, State
from .contract_records import NOT_ASCII, samples

T = TypeVar("T")

_RACERS = 16
_ROUNDS = 10
# A replace may lose although nothing changed; one that loses so often is broken.
_TRIES = 5
# Seconds in which a call with half a second left has surely ended, on any machine.
_HANGING = 30.0


class LedgerContract:
    """Checks of one ledger, each on names of its own, so that a shared store does.

    Attributes:
        clock: of the deadlines given; the store's own, where a test holds it still.
    """

    clock: Clock = SYSTEM_CLOCK

    def make_ledger(self) -> Ledger:
        """The ledger to check; called once in each check."""
        raise NotImplementedError("make_ledger: return the ledger that is to be checked")

    def make_unreachable_ledger(self) -> Ledger | None:
        """A ledger whose store never answers; None for a store that is always there."""
        return None

    def advance(self, seconds: float) -> None:
        """Let the store's time pass.

        Override it where that can be done without waiting. For a real store, waits of ten seconds
        and more may be left out where it has no rule about removing a name and using it again.
        """
        time.sleep(seconds)

    # Names that are free, and names that are taken.

    def test_a_free_name_holds_nothing(self) -> None:
        ledger = self.make_ledger()
        name = _name()
        assert ledger.read(name) is None
        assert ledger.read_many([name]) == {}

    def test_the_first_create_wins_and_the_second_is_shown_its_record(self) -> None:
        ledger = self.make_ledger()
        name, first, second = _name(), _claim(), _claim()
        won = ledger.create(name, first)
        assert (won.name, won.record) == (name, first), "a create of a free name must win"
        lost = ledger.create(name, second)
        assert (lost.name, lost.record) == (name, first), "a second create must show the first"
        assert _read(ledger, name).record == first, "a create that lost must change nothing"

    def test_a_create_that_is_sent_twice_is_known_as_ones_own(self) -> None:
        ledger = self.make_ledger()
        name, record = _name(), _claim()
        ledger.create(name, record)
        assert ledger.create(name, record).record == record

    def test_the_longest_name_that_a_guard_makes_can_be_used(self) -> None:
        ledger = self.make_ledger()
        namespace = "/".join([secrets.token_hex(30), "b" * 60, "c" * 78])
        name = f"{namespace}/{'o' * 120}/{'0123456789abcdef' * 2}01234567"
        record = _claim()
        assert ledger.create(name, record).record == record
        assert _read(ledger, name).record == record

    # Replacing what is expected, and nothing else.

    def test_a_replace_wins_over_what_it_expects(self) -> None:
        ledger = self.make_ledger()
        name = _name()
        claimed = ledger.create(name, _claim())
        done = claimed.record.ended(State.COMPLETED, result="done")
        _win(ledger, claimed, done)
        assert _read(ledger, name).record == done

    def test_an_entry_that_was_read_can_be_replaced_too(self) -> None:
        ledger = self.make_ledger()
        name = _name()
        ledger.create(name, _claim())
        successor = _claim()
        _win(ledger, _read(ledger, name), successor)
        assert _read(ledger, name).record == successor

    def test_what_a_replace_returned_can_be_replaced_again(self) -> None:
        ledger = self.make_ledger()
        entry = ledger.create(_name(), _claim())
        for number in range(5):
            entry = _win(ledger, entry, entry.record.ended(State.CLAIMED, steps={"n": number}))
        assert _read(ledger, entry.name).record.steps == {"n": 4}

    def test_a_replace_of_what_no_longer_stands_loses_and_is_shown_what_does(self) -> None:
        ledger = self.make_ledger()
        stale = ledger.create(_name(), _claim())
        successor = _claim()
        _win(ledger, stale, successor)
        for state in (State.CLAIMED, State.COMPLETED, State.RELEASED, State.SWEPT):
            late = ledger.replace(stale, _claim().ended(state))
            assert late is not None
            assert late.record == successor, f"a late replace by {state} must show what stands"
            assert _read(ledger, stale.name).record == successor, "a late replace changed the entry"

    def test_a_holder_that_was_taken_over_can_neither_complete_nor_release(self) -> None:
        ledger = self.make_ledger()
        held = ledger.create(_name(), _claim())
        successor = _claim()
        _win(ledger, held, successor)
        for state in (State.COMPLETED, State.RELEASED, State.FAILED):
            late = ledger.replace(held, held.record.ended(state))
            assert late is not None
            assert late.record == successor
            assert _read(ledger, held.name).record == successor

    def test_a_replace_of_a_removed_name_finds_nothing(self) -> None:
        ledger = self.make_ledger()
        bar = self._barred(ledger, ledger.create(_name(), _claim()))
        assert ledger.remove([bar]) == {bar.name}
        found = ledger.replace(bar, _claim())
        assert found is None or found.record.state is State.VACANT, "a removed name holds nothing"

    def test_an_entry_of_a_names_earlier_life_is_not_expected_in_its_next_one(self) -> None:
        self.check_earlier_life(State.RELEASED)

    def check_earlier_life(self, state: State) -> None:
        """A name is removed and created again; who saw `state` in its earlier life must lose."""
        ledger = self.make_ledger()
        stale = ledger.create(_name(), _claim().ended(state))
        assert ledger.remove([self._barred(ledger, stale)]) == {stale.name}
        self.advance(ledger.removal_delay)
        record = _claim()
        assert ledger.create(stale.name, record).record == record
        late = ledger.replace(stale, _claim())
        assert late is not None
        assert late.record == record
        assert _read(ledger, stale.name).record == record

    # Records as they were given.

    def test_records_come_back_equal(self) -> None:
        ledger = self.make_ledger()
        for record in samples():
            name = _name()
            assert _exactly(ledger.create(name, record).record, record), f"created: {record}"
            assert _exactly(_read(ledger, name).record, record), f"read: {record}"

    def test_records_come_back_equal_from_a_replace(self) -> None:
        ledger = self.make_ledger()
        entry = ledger.create(_name(), _claim())
        for record in samples():
            entry = _win(ledger, entry, record)
            assert _exactly(entry.record, record), f"replaced: {record}"
            assert _exactly(_read(ledger, entry.name).record, record), f"read: {record}"

    def test_what_fits_can_be_written(self) -> None:
        ledger = self.make_ledger()
        for unit in NOT_ASCII:
            fitting = _largest(lambda count, unit=unit: ledger.fits(_holding(unit * count)))
            assert fitting >= 100, "a record of a few hundred bytes must fit"
            record = _holding(unit * fitting)
            name = _name()
            assert _exactly(ledger.create(name, record).record, record)
            assert _exactly(_read(ledger, name).record, record)

    # Ages, by the store's clock.

    def test_an_entry_ages_from_when_it_was_written(self) -> None:
        ledger = self.make_ledger()
        entry = ledger.create(_name(), _claim())
        assert 0 <= entry.age <= 1
        before = _read(ledger, entry.name).age
        self.advance(2)
        after = _read(ledger, entry.name).age
        assert 0 <= before < after
        _win(ledger, _read(ledger, entry.name), _claim())
        assert _read(ledger, entry.name).age < after, "a new entry must be younger than the old one"

    # Removing what is barred, and nothing else.

    def test_a_barred_entry_is_removed_and_its_name_is_free_again(self) -> None:
        ledger = self.make_ledger()
        bar = self._barred(ledger, ledger.create(_name(), _claim()))
        assert ledger.remove([bar]) == {bar.name}
        assert ledger.read(bar.name) is None
        self.advance(ledger.removal_delay)
        record = _claim()
        assert ledger.create(bar.name, record).record == record

    def test_an_entry_that_was_written_over_its_bar_stays(self) -> None:
        ledger = self.make_ledger()
        bar = self._barred(ledger, ledger.create(_name(), _claim()))
        successor = _claim()
        _win(ledger, bar, successor)
        assert ledger.remove([bar]) == frozenset()
        assert _read(ledger, bar.name).record == successor

    def test_many_are_removed_at_once_and_names_that_are_gone_count(self) -> None:
        ledger = self.make_ledger()
        entries = [ledger.create(_name(), _claim()) for _ in range(12)]
        bars = [_win(ledger, entry, _bar()) for entry in entries]
        self.advance(ledger.removal_delay)
        kept = _win(ledger, bars[3], _claim())
        assert ledger.remove(bars[:2]) == {bars[0].name, bars[1].name}
        gone = {bar.name for bar in bars} - {kept.name}
        assert ledger.remove(bars) == gone
        assert set(ledger.read_many([bar.name for bar in bars])) == {kept.name}
        assert ledger.remove([]) == frozenset()

    # Many names.

    def test_many_names_are_read_at_once(self) -> None:
        ledger = self.make_ledger()
        records = {_name(): _claim() for _ in range(23)}
        for name, record in records.items():
            ledger.create(name, record)
        entries = ledger.read_many([*records, _name(), _name()])
        assert {name: entry.record for name, entry in entries.items()} == records
        assert all(entry.name == name for name, entry in entries.items())
        assert ledger.read_many([]) == {}
        name = next(iter(records))
        _win(ledger, entries[name], _claim())

    def test_a_scan_finds_all_names_below_a_path_and_no_others(self) -> None:
        ledger = self.make_ledger()
        path = secrets.token_hex(8)
        below = {f"{path}/op-{at % 3}/{secrets.token_hex(20)}" for at in range(7)}
        beside = {f"{path}2/op/a", f"2{path}/op/a"}
        for name in below | beside:
            ledger.create(name, _claim())
        assert _names(_scanned(ledger, path)) == sorted(below)
        inner = {name for name in below if name.startswith(f"{path}/op-1/")}
        assert _names(_scanned(ledger, f"{path}/op-1")) == sorted(inner)
        assert _scanned(ledger, secrets.token_hex(8)) == []
        assert below | beside <= set(_names(_scanned(ledger, "")))

    def test_a_scan_comes_in_pages_and_goes_on_from_any_of_them(self) -> None:
        ledger = self.make_ledger()
        path = secrets.token_hex(8)
        names = sorted(f"{path}/op/{number:040}" for number in range(105))
        for name in names:
            ledger.create(name, _claim())
        pages = list(ledger.scan(path))
        assert _names([item for page in pages for item in page.items]) == names
        assert pages[-1].cursor is None
        assert all(page.cursor for page in pages[:-1]), "a page before the last one has a cursor"
        for at, page in enumerate(pages[:-1]):
            rest = [item for later in ledger.scan(path, start=page.cursor) for item in later.items]
            expected = [item for later in pages[at + 1 :] for item in later.items]
            assert _names(rest) == _names(expected), "a scan must go on where its cursor says"

    def test_what_a_scan_tells_of_an_entry_is_true(self) -> None:
        ledger = self.make_ledger()
        path = secrets.token_hex(8)
        for record in samples():
            ledger.create(f"{path}/op/{secrets.token_hex(20)}", record)
        self.advance(2)
        for item in _scanned(ledger, path):
            entry = _read(ledger, item.name)
            assert item.state in (None, entry.record.state)
            assert item.keep is None or abs(item.keep - entry.record.horizon) < 1
            assert item.age >= 1

    # Deadlines.

    def test_with_no_time_left_a_call_answers_or_says_so(self) -> None:
        ledger = self.make_ledger()
        entry = ledger.create(_name(), _claim())
        for call in _calls(ledger, entry, Deadline.after(self.clock, -1.0)):
            _ends(call)

    def test_a_store_that_does_not_answer_is_given_up_before_the_deadline(self) -> None:
        ledger, unreachable = self.make_ledger(), self.make_unreachable_ledger()
        if unreachable is None:
            return
        entry = ledger.create(_name(), _claim())
        for call in _calls(unreachable, entry, Deadline.after(self.clock, 0.5)):
            assert _ends(call) is None, "a store that does not answer must not be taken for one"

    # Races.

    def test_of_racing_creates_one_wins_and_all_see_it(self) -> None:
        ledger = self.make_ledger()
        for _ in range(_ROUNDS):
            name = _name()
            records = [_claim() for _ in range(_RACERS)]
            seen = _race([lambda record=record: ledger.create(name, record) for record in records])
            _one_won(records, [entry.record for entry in seen], _read(ledger, name).record)

    def test_of_racing_replaces_one_wins_and_all_see_it(self) -> None:
        ledger = self.make_ledger()
        for state in (State.CLAIMED, State.RELEASED) * (_ROUNDS // 2):
            expected = ledger.create(_name(), _claim().ended(state))
            records = [_claim() for _ in range(_RACERS)]
            seen = _race([lambda record=r: _insist(ledger, expected, record) for r in records])
            _one_won(records, [e.record for e in seen], _read(ledger, expected.name).record)

    def _barred(self, ledger: Ledger, entry: Entry) -> Entry:
        bar = _win(ledger, entry, _bar())
        self.advance(ledger.removal_delay)
        return bar


def _name() -> str:
    return f"contract/op/{secrets.token_hex(20)}"


def _claim() -> Record:
    return Record(State.CLAIMED, secrets.token_hex(16), lease=60.0, retention=3600.0, fence=1)


def _bar() -> Record:
    return Record(State.SWEPT, secrets.token_hex(16), lease=SWEEP_LEASE)


def _holding(result: object) -> Record:
    return replace(_claim(), state=State.COMPLETED, token="t" * 32, result=result)


def _read(ledger: Ledger, name: str) -> Entry:
    entry = ledger.read(name)
    assert entry is not None, f"{name} was written and is not there"
    assert entry.name == name
    return entry


def _insist(ledger: Ledger, expected: Entry, record: Record) -> Entry:
    """Replace until it is won, or something else stands."""
    entry = expected
    for _ in range(_TRIES):
        found = ledger.replace(entry, record)
        assert found is not None, "an entry that nobody removed is gone"
        if found.record == record or found.record != expected.record:
            return found
        entry = found
    raise AssertionError("a replace over what stands keeps losing")


def _win(ledger: Ledger, expected: Entry, record: Record) -> Entry:
    entry = _insist(ledger, expected, record)
    assert entry.record == record, "a replace over what stands must win"
    return entry


def _exactly(one: Record, other: Record) -> bool:
    """Equal, and 1, 1.0 and true told apart."""
    parts = [
        json.dumps([r.result, r.error, dict(r.steps)], sort_keys=True) for r in (one, other)
    ]
    return one == other and parts[0] == parts[1]


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest number that fits, up to some size that is large enough."""
    low, high = 0, 40_000
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _scanned(ledger: Ledger, under: str) -> list[Listed]:
    return [item for page in ledger.scan(under) for item in page.items]


def _names(items: Sequence[Listed]) -> list[str]:
    return sorted(item.name for item in items)


def _calls(ledger: Ledger, entry: Entry, deadline: Deadline) -> list[Callable[[], object]]:
    return [
        lambda: ledger.create(_name(), _claim(), deadline=deadline),
        lambda: ledger.read(entry.name, deadline=deadline),
        lambda: ledger.read_many([entry.name], deadline=deadline),
        lambda: list(ledger.scan("contract", deadline=deadline)),
        lambda: ledger.remove([replace(entry, record=_bar())], deadline=deadline),
        lambda: ledger.replace(entry, _claim(), deadline=deadline),
    ]


def _ends(call: Callable[[], object]) -> object:
    """What a call answered, None for LedgerUnavailable; fails if it hangs or raises otherwise."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append([call()])
        except LedgerUnavailable:
            answers.append(None)
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_HANGING)
    assert answers, "a call went on long after its deadline"
    if isinstance(answers[0], Exception):
        raise AssertionError("out of time must be LedgerUnavailable") from answers[0]
    return answers[0]


def _race(calls: Sequence[Callable[[], T]]) -> list[T]:
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait(_HANGING)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def _one_won(wanted: Sequence[Record], seen: Sequence[Record], standing: Record) -> None:
    winners = [mine for mine, shown in zip(wanted, seen, strict=True) if shown == mine]
    assert len(winners) == 1, f"{len(winners)} of {len(wanted)} believe that they won"
    assert standing == winners[0], "the winner's record does not stand"
    assert all(shown == standing for shown in seen), "a loser was not shown the winner's record"
