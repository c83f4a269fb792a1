"""What every ledger must pass: subclass it to check one of your own.

```python
class TestMyLedger(LedgerContract):
    def make_ledger(self) -> Ledger:
        return MyLedger(url="http://localhost:8000")
```

Each check stands for a promise of `idemguard.ledger`. Needs pytest to be run, not to be imported.
"""

from __future__ import annotations

import secrets
import time
from functools import partial

from ..clock import SYSTEM_CLOCK, Clock, Deadline
from ..ledger import Entry, Ledger
from ..record import State
from .contract_records import NOT_ASCII, samples
from .contract_tools import (
    ended,
    every_call,
    exactly,
    insist,
    largest,
    names_of,
    new_bar,
    new_claim,
    new_name,
    one_won,
    race,
    read,
    scanned,
    win,
)

_RACERS = 16
_ROUNDS = 10


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
        name = new_name()
        assert ledger.read(name) is None
        assert ledger.read_many([name]) == {}

    def test_the_first_create_wins_and_the_second_is_shown_its_record(self) -> None:
        ledger = self.make_ledger()
        name, first, second = new_name(), new_claim(), new_claim()
        won = ledger.create(name, first)
        assert (won.name, won.record) == (name, first), "a create of a free name must win"
        lost = ledger.create(name, second)
        assert (lost.name, lost.record) == (name, first), "a second create must show the first"
        assert read(ledger, name).record == first, "a create that lost must change nothing"

    def test_a_create_that_is_sent_twice_is_known_as_ones_own(self) -> None:
        ledger = self.make_ledger()
        name, record = new_name(), new_claim()
        ledger.create(name, record)
        assert ledger.create(name, record).record == record

    def test_the_longest_name_that_a_guard_makes_can_be_used(self) -> None:
        ledger = self.make_ledger()
        namespace = "/".join([secrets.token_hex(30), "b" * 60, "c" * 78])
        name = f"{namespace}/{'o' * 120}/{'0123456789abcdef' * 2}01234567"
        record = new_claim()
        assert ledger.create(name, record).record == record
        assert read(ledger, name).record == record

    # Replacing what is expected, and nothing else.

    def test_a_replace_wins_over_what_it_expects(self) -> None:
        ledger = self.make_ledger()
        name = new_name()
        claimed = ledger.create(name, new_claim())
        done = claimed.record.ended(State.COMPLETED, result="done")
        win(ledger, claimed, done)
        assert read(ledger, name).record == done

    def test_an_entry_that_was_read_can_be_replaced_too(self) -> None:
        ledger = self.make_ledger()
        name = new_name()
        ledger.create(name, new_claim())
        successor = new_claim()
        win(ledger, read(ledger, name), successor)
        assert read(ledger, name).record == successor

    def test_what_a_replace_returned_can_be_replaced_again(self) -> None:
        ledger = self.make_ledger()
        entry = ledger.create(new_name(), new_claim())
        for number in range(5):
            entry = win(ledger, entry, entry.record.ended(State.CLAIMED, steps={"n": number}))
        assert read(ledger, entry.name).record.steps == {"n": 4}

    def test_a_replace_of_what_no_longer_stands_loses_and_is_shown_what_does(self) -> None:
        ledger = self.make_ledger()
        stale = ledger.create(new_name(), new_claim())
        successor = new_claim()
        win(ledger, stale, successor)
        for state in (State.CLAIMED, State.COMPLETED, State.RELEASED, State.SWEPT):
            late = ledger.replace(stale, new_claim().ended(state))
            assert late is not None
            assert late.record == successor, f"a late replace by {state} must show what stands"
            assert read(ledger, stale.name).record == successor, "a late replace changed the entry"

    def test_a_holder_that_was_taken_over_can_neither_complete_nor_release(self) -> None:
        ledger = self.make_ledger()
        held = ledger.create(new_name(), new_claim())
        successor = new_claim()
        win(ledger, held, successor)
        for state in (State.COMPLETED, State.RELEASED, State.FAILED):
            late = ledger.replace(held, held.record.ended(state))
            assert late is not None
            assert late.record == successor
            assert read(ledger, held.name).record == successor

    def test_a_replace_of_a_removed_name_finds_nothing(self) -> None:
        ledger = self.make_ledger()
        bar = self._barred(ledger, ledger.create(new_name(), new_claim()))
        assert ledger.remove([bar]) == {bar.name}
        found = ledger.replace(bar, new_claim())
        assert found is None or found.record.state is State.VACANT, "a removed name holds nothing"

    def test_an_entry_of_a_names_earlier_life_is_not_expected_in_its_next_one(self) -> None:
        self.check_earlier_life(State.RELEASED)

    def check_earlier_life(self, state: State) -> None:
        """A name is removed and created again; who saw `state` in its earlier life must lose."""
        ledger = self.make_ledger()
        stale = ledger.create(new_name(), new_claim().ended(state))
        assert ledger.remove([self._barred(ledger, stale)]) == {stale.name}
        self.advance(ledger.removal_delay)
        record = new_claim()
        assert ledger.create(stale.name, record).record == record
        late = ledger.replace(stale, new_claim())
        assert late is not None
        assert late.record == record
        assert read(ledger, stale.name).record == record

    # Records as they were given.

    def test_records_come_back_equal(self) -> None:
        ledger = self.make_ledger()
        for record in samples():
            name = new_name()
            assert exactly(ledger.create(name, record).record, record), f"created: {record}"
            assert exactly(read(ledger, name).record, record), f"read: {record}"

    def test_records_come_back_equal_from_a_replace(self) -> None:
        ledger = self.make_ledger()
        entry = ledger.create(new_name(), new_claim())
        for record in samples():
            entry = win(ledger, entry, record)
            assert exactly(entry.record, record), f"replaced: {record}"
            assert exactly(read(ledger, entry.name).record, record), f"read: {record}"

    def test_what_fits_can_be_written(self) -> None:
        ledger = self.make_ledger()
        for unit in NOT_ASCII:
            record = largest(ledger, unit)
            assert len(record.result) >= 100, "a record of a few hundred bytes must fit"
            name = new_name()
            assert exactly(ledger.create(name, record).record, record)
            assert exactly(read(ledger, name).record, record)

    # Ages, by the store's clock.

    def test_an_entry_ages_from_when_it_was_written(self) -> None:
        ledger = self.make_ledger()
        entry = ledger.create(new_name(), new_claim())
        assert 0 <= entry.age <= 1
        before = read(ledger, entry.name).age
        self.advance(2)
        after = read(ledger, entry.name).age
        assert 0 <= before < after
        win(ledger, read(ledger, entry.name), new_claim())
        assert read(ledger, entry.name).age < after, "a new entry must be younger than the old one"

    # Removing what is barred, and nothing else.

    def test_a_barred_entry_is_removed_and_its_name_is_free_again(self) -> None:
        ledger = self.make_ledger()
        bar = self._barred(ledger, ledger.create(new_name(), new_claim()))
        assert ledger.remove([bar]) == {bar.name}
        assert ledger.read(bar.name) is None
        self.advance(ledger.removal_delay)
        record = new_claim()
        assert ledger.create(bar.name, record).record == record

    def test_an_entry_that_was_written_over_its_bar_stays(self) -> None:
        ledger = self.make_ledger()
        bar = self._barred(ledger, ledger.create(new_name(), new_claim()))
        successor = new_claim()
        win(ledger, bar, successor)
        assert ledger.remove([bar]) == frozenset()
        assert read(ledger, bar.name).record == successor

    def test_many_are_removed_at_once_and_names_that_are_gone_count(self) -> None:
        ledger = self.make_ledger()
        entries = [ledger.create(new_name(), new_claim()) for _ in range(12)]
        bars = [win(ledger, entry, new_bar()) for entry in entries]
        self.advance(ledger.removal_delay)
        kept = win(ledger, bars[3], new_claim())
        assert ledger.remove(bars[:2]) == {bars[0].name, bars[1].name}
        gone = {bar.name for bar in bars} - {kept.name}
        assert ledger.remove(bars) == gone
        assert set(ledger.read_many([bar.name for bar in bars])) == {kept.name}
        assert ledger.remove([]) == frozenset()

    # Many names.

    def test_many_names_are_read_at_once(self) -> None:
        ledger = self.make_ledger()
        records = {new_name(): new_claim() for _ in range(23)}
        for name, record in records.items():
            ledger.create(name, record)
        entries = ledger.read_many([*records, new_name(), new_name()])
        assert {name: entry.record for name, entry in entries.items()} == records
        assert all(entry.name == name for name, entry in entries.items())
        assert ledger.read_many([]) == {}
        name = next(iter(records))
        win(ledger, entries[name], new_claim())

    def test_a_scan_finds_all_names_below_a_path_and_no_others(self) -> None:
        ledger = self.make_ledger()
        path = secrets.token_hex(8)
        below = {f"{path}/op-{at % 3}/{secrets.token_hex(20)}" for at in range(7)}
        beside = {f"{path}2/op/a", f"2{path}/op/a"}
        for name in below | beside:
            ledger.create(name, new_claim())
        assert names_of(scanned(ledger, path)) == sorted(below)
        inner = {name for name in below if name.startswith(f"{path}/op-1/")}
        assert names_of(scanned(ledger, f"{path}/op-1")) == sorted(inner)
        assert scanned(ledger, secrets.token_hex(8)) == []
        assert below | beside <= set(names_of(scanned(ledger, "")))

    def test_a_scan_comes_in_pages_and_goes_on_from_any_of_them(self) -> None:
        ledger = self.make_ledger()
        path = secrets.token_hex(8)
        names = sorted(f"{path}/op/{number:040}" for number in range(105))
        for name in names:
            ledger.create(name, new_claim())
        pages = list(ledger.scan(path))
        assert names_of([item for page in pages for item in page.items]) == names
        assert pages[-1].cursor is None
        assert all(page.cursor for page in pages[:-1]), "a page before the last one has a cursor"
        for at, page in enumerate(pages[:-1]):
            rest = [item for later in ledger.scan(path, start=page.cursor) for item in later.items]
            expected = [item for later in pages[at + 1 :] for item in later.items]
            assert names_of(rest) == names_of(expected), "a scan must go on where its cursor says"

    def test_what_a_scan_tells_of_an_entry_is_true(self) -> None:
        ledger = self.make_ledger()
        path = secrets.token_hex(8)
        for record in samples():
            ledger.create(f"{path}/op/{secrets.token_hex(20)}", record)
        self.advance(2)
        for item in scanned(ledger, path):
            entry = read(ledger, item.name)
            assert item.state in (None, entry.record.state)
            assert item.keep is None or abs(item.keep - entry.record.horizon) < 1
            assert item.age >= 1

    # Deadlines.

    def test_with_no_time_left_a_call_answers_or_says_so(self) -> None:
        ledger = self.make_ledger()
        entry = ledger.create(new_name(), new_claim())
        for call in every_call(ledger, entry, lambda: Deadline.after(self.clock, -1.0)):
            ended(call)

    def test_a_store_that_does_not_answer_is_given_up_before_the_deadline(self) -> None:
        ledger, unreachable = self.make_ledger(), self.make_unreachable_ledger()
        if unreachable is None:
            return
        entry = ledger.create(new_name(), new_claim())
        for call in every_call(unreachable, entry, lambda: Deadline.after(self.clock, 0.5)):
            assert ended(call) is None, "a store that does not answer must not be taken for one"

    # Races.

    def test_of_racing_creates_one_wins_and_all_see_it(self) -> None:
        ledger = self.make_ledger()
        for _ in range(_ROUNDS):
            name = new_name()
            records = [new_claim() for _ in range(_RACERS)]
            seen = race([partial(ledger.create, name, record) for record in records])
            one_won(records, [entry.record for entry in seen], read(ledger, name).record)

    def test_of_racing_replaces_one_wins_and_all_see_it(self) -> None:
        ledger = self.make_ledger()
        for state in (State.CLAIMED, State.RELEASED) * (_ROUNDS // 2):
            expected = ledger.create(new_name(), new_claim().ended(state))
            records = [new_claim() for _ in range(_RACERS)]
            seen = race([partial(insist, ledger, expected, record) for record in records])
            one_won(records, [e.record for e in seen], read(ledger, expected.name).record)

    def _barred(self, ledger: Ledger, entry: Entry) -> Entry:
        bar = win(ledger, entry, new_bar())
        self.advance(ledger.removal_delay)
        return bar
