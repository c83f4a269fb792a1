"""Ledgers against a model of a few lines, through any sequence of calls that hypothesis thinks of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule

from idemguard.ledger import Entry, Ledger
from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.record import Record, State
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.ssm_faults import Fault
from idemguard.testing.strict_ssm import StrictSSM

NAMES = st.sampled_from(["ns/op/a", "ns/op/b"])
TAKEN = st.sampled_from([State.CLAIMED, State.COMPLETED, State.RELEASED, State.FAILED])
#: Seconds that a record speaks for its key, and for which a holder may write.
HORIZON = 40.0
BAR = 180.0
#: Seconds after a removal in which a store may not let a name be used again.
REUSE = 35.0
_TRIES = 4


@dataclass(frozen=True)
class Standing:
    """What the model holds under a name: one object per write that won.

    The write landed between `sent` and `answered`, by the monotonic clock.
    """

    record: Record
    sent: float
    answered: float

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(frozen=True)
class Seen:
    """An entry that a call returned, and what stood in the model then."""

    entry: Entry
    standing: Standing


class LedgerMachine(RuleBasedStateMachine):
    """Creates, replaces, bars, removals and time, in any order, on two names."""

    seen = Bundle("seen")
    bars = Bundle("bars")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FrozenClock()
        self.ledger = self.make_ledger()
        self.standing: dict[str, Standing] = {}
        self.removed: dict[str, float] = {}
        self.tokens = 0
        self.written = 0

    def make_ledger(self) -> Ledger:
        raise NotImplementedError

    @rule(target=seen, name=NAMES, state=TAKEN, result=st.sampled_from([None, 0, "{{x}}"]))
    def create(self, name: str, state: State, result: object) -> Any:
        record, sent = self._record(state, result), self.clock.monotonic()
        entry = self.ledger.create(name, record)
        standing = self.standing.get(name)
        if standing is not None:
            assert entry.record == standing.record
        elif entry.record.state is State.VACANT:
            return self._insist(entry, record)
        elif entry.record.state is State.UNKNOWN:
            assert self.clock.monotonic() - self.removed[name] < REUSE
            return multiple()
        else:
            assert entry.record == record
            standing = self._stands(name, record, sent)
        return Seen(entry, standing)

    @rule(target=seen, name=NAMES)
    def read(self, name: str) -> Any:
        entry = self._looks_right(name, self.ledger.read(name))
        return multiple() if entry is None else Seen(entry, self.standing[name])

    @rule(target=seen, seen=seen, state=TAKEN, holder=st.booleans())
    def replace(self, seen: Seen, state: State, holder: bool) -> Any:
        old = seen.standing
        if holder and self.clock.monotonic() - old.sent >= HORIZON:
            holder = False
        record = self._record(state, "new", token=old.record.token if holder else None)
        return self._replace(seen, record)

    @rule(target=seen, seen=seen, state=TAKEN)
    def replace_after_looking_again(self, seen: Seen, state: State) -> Any:
        """Whatever came in between: over what stands, a replace is won sooner or later."""
        entry = self._looks_right(seen.entry.name, self.ledger.read(seen.entry.name))
        return multiple() if entry is None else self._insist(entry, self._record(state, "sure"))

    @rule(target=bars, seen=seen)
    def bar(self, seen: Seen) -> Any:
        if self.clock.monotonic() - seen.standing.answered < HORIZON:
            return multiple()
        bar = Record(State.SWEPT, self._token(), lease=BAR)
        barred = self._replace(seen, bar)
        return barred if isinstance(barred, Seen) and barred.entry.record == bar else multiple()

    @rule(bar=consumes(bars))
    def remove(self, bar: Seen) -> None:
        self.clock.advance(self.ledger.removal_delay)
        name = bar.entry.name
        standing = self.standing.get(name)
        gone = self.ledger.remove([bar.entry])
        if standing is None:
            # Another bar of an earlier life, or a name that is free by now.
            return
        if standing != bar.standing:
            assert gone == frozenset()
        elif self.clock.monotonic() - standing.sent < BAR - 65:
            assert gone == {name}
        if gone:
            del self.standing[name]
            self.removed[name] = self.clock.monotonic()

    @rule(seconds=st.sampled_from([0.001, 0.7, 5.0, 24.0, 29.0, 31.0, 60.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def everything_is_as_the_model_says(self) -> None:
        names = ["ns/op/a", "ns/op/b"]
        found = self.ledger.read_many(names)
        for name in names:
            self._looks_right(name, found.get(name))
        listed = [item.name for page in self.ledger.scan("ns") for item in page.items]
        vacant = {name for name, entry in found.items() if entry.record.state is State.VACANT}
        assert set(listed) - vacant == set(self.standing)

    def _replace(self, seen: Seen, record: Record) -> Any:
        name, sent = seen.entry.name, self.clock.monotonic()
        entry = self.ledger.replace(seen.entry, record)
        standing = self.standing.get(name)
        if standing is None:
            assert entry is None or entry.record.state is State.VACANT
            return multiple()
        assert entry is not None
        if entry.record == record:
            assert seen.standing == standing, "it won over what it had not seen"
            standing = self._stands(name, record, sent)
        else:
            assert entry.record == standing.record
        return Seen(entry, standing)

    def _insist(self, entry: Entry, record: Record) -> Seen:
        for _ in range(_TRIES):
            sent = self.clock.monotonic()
            found = self.ledger.replace(entry, record)
            assert found is not None
            if found.record == record:
                return Seen(found, self._stands(found.name, record, sent))
            assert found.record == entry.record
            entry = found
        raise AssertionError("a replace over what stands keeps losing")

    def _looks_right(self, name: str, entry: Entry | None) -> Entry | None:
        standing = self.standing.get(name)
        if standing is None:
            assert entry is None or entry.record.state is State.VACANT
            return None
        assert entry is not None
        assert (entry.name, entry.record) == (name, standing.record)
        now = self.clock.monotonic()
        # The store tells the time in whole seconds.
        assert now - standing.answered - 1.01 <= entry.age <= now - standing.sent + 0.01
        return entry

    def _stands(self, name: str, record: Record, sent: float) -> Standing:
        self.standing[name] = Standing(record, sent, self.clock.monotonic())
        return self.standing[name]

    def _record(self, state: State, result: object, token: str | None = None) -> Record:
        # No two records alike: who won is told by what stands.
        token = token or self._token()
        self.written += 1
        return Record(
            state, token, HORIZON / 2, retention=HORIZON, result=result, fence=self.written
        )

    def _token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}"


class MemoryMachine(LedgerMachine):
    def make_ledger(self) -> Ledger:
        return MemoryLedger(self.clock)


class SSMMachine(LedgerMachine):
    """The same, with a write now and then that goes wrong on its way."""

    def make_ledger(self) -> Ledger:
        self.store = StrictSSM(self.clock)
        self.spoiled_at = -1
        return SSMLedger(self.store, clock=self.clock)

    @rule(
        fault=st.sampled_from(
            [
                Fault.lost_response(),
                Fault.lost_response(resent=True),
                replace(Fault.lost_response(), delay=8),
                Fault.too_many_updates(),
                Fault.throttle(),
                Fault.server_error(applied=True),
                Fault.slow(27),
                Fault.slow(31),
            ]
        )
    )
    def the_next_write_goes_wrong(self, fault: Fault) -> None:
        writes = sum(call[0] == "PutParameter" for call in self.store.calls)
        if writes > self.spoiled_at:
            self.spoiled_at = writes
            self.store.inject("PutParameter", fault)


_SETTINGS = settings(max_examples=150, stateful_step_count=40)

TestMemoryAgainstTheModel = MemoryMachine.TestCase
TestMemoryAgainstTheModel.settings = _SETTINGS
TestSSMAgainstTheModel = SSMMachine.TestCase
TestSSMAgainstTheModel.settings = _SETTINGS
