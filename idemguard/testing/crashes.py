"""An attempt killed at every place in turn, and redelivered until it is answered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from .. import cache
from ..clock import Clock
from ..errors import InvalidOption
from ..ledger import Entry, Ledger
from ..ledgers.memory import MemoryLedger
from ..options import ledger_in_place
from ..outcome import Details, Hook, Phase, observed_by
from ..record import Record, State
from .crash import Crash, Life
from .crash_report import CrashReport, CrashRun
from .deliveries import Delivered, Deliveries, deliver_once
from .effects import Effect, Effects
from .frozen_clock import FrozenClock
from .ledger_proxy import Call, LedgerProxy

R = TypeVar("R")

# Seconds past a lease after which every ledger sees that it is over; some tell whole seconds only.
_SURELY_OVER = 2.0

#: The step that the code running here belongs to.
_step: ContextVar[str | None] = ContextVar("idemguard_test_step", default=None)


def deliver_with_crashes(
    handler: Callable[..., Any],
    event: Any,
    *,
    effects: Effects | None = None,
    ledger: Callable[[Clock], Ledger] = MemoryLedger,
    context: Any = None,
    reset: Callable[[], object] | None = None,
    redeliveries: int = 5,
) -> CrashReport:
    """Kill the first attempt at every place in turn, redeliver, and count the effects.

    ```python
    effects = Effects()

    def test_a_crash_repeats_nothing():
        with effects.watch("shop.ses.send_email", returns={}):
            deliver_with_crashes(handler, event, effects=effects).assert_once()
    ```

    One delivery without a crash shows the places: before and after each call of the ledger, where
    the work and each step begin and end, and after each recorded effect. Then, for each of them and
    each time on a new ledger, a first delivery is killed there, its lease passes, and the event is
    delivered again until it is answered.

    The kill is a `Crash`, raised at that place. ``finally`` blocks and the like still run in this
    process, but reach neither the ledger nor `effects`. The handler must take the same way each
    time, given the same event; what its fakes keep in memory is for `reset` to clear.

    Args:
        handler: takes event and context, or the event alone; also an ``async def``. Its guard must
            name the ledger by URL or environment.
        event: each delivery gets a deep copy.
        effects: what the handler's effects are recorded on.
        ledger: makes the ledger for each kill, with its clock, such as
            ``lambda clock: SSMLedger(StrictSSM(clock), clock=clock)``.
        context: for all deliveries; by default each gets a new `FakeLambdaContext` of 30 seconds.
        reset: called before each first delivery.
        redeliveries: how many at most, for each kill.

    Raises:
        InvalidOption: the handler used no ledger that could be put in place, or did not take the
            same way each time.
        Exception: what the handler raised in the delivery without a crash.
    """
    runner = _Runner(
        handler, event, context, Effects() if effects is None else effects, ledger, reset
    )
    trial = _Trip(None)
    first = runner.run(trial, 0)
    if first.deliveries[0].raised is not None:
        raise first.deliveries[0].raised
    if not trial.claimed:
        raise InvalidOption(
            "ledger: the handler claimed nothing on the ledger of this test. Is it decorated? A "
            'guard that was given a Ledger object keeps it: name it by URL, ledger="ssm:///...", or '
            "IDEMGUARD_LEDGER"
        )
    runs = [runner.run(_Trip(at), redeliveries) for at in range(len(trial.places))]
    if missed := sum(not run.killed for run in runs):
        raise InvalidOption(
            f"reset: the handler went another way than in its first delivery, so {missed} of "
            f"{len(runs)} kills met nobody. Clear what its fakes keep in memory, with reset="
        )
    return CrashReport(first.effects, runs)


class _Trip(Life):
    """Counts the places that an attempt passes, and kills it at one of them."""

    def __init__(self, at: int | None) -> None:
        super().__init__()
        self.places: list[str] = []
        self.killed = ""
        self.claimed = False
        self.open: Counter[str] = Counter()
        self._at = at
        self._lock = threading.RLock()
        self._passed: Counter[str] = Counter()
        # The newest effect of each step, and of the work outside of steps, that is not written down.
        self._unwritten: dict[str | None, str] = {}
        self._holds: dict[str, Record] = {}

    def passing(self, place: str) -> None:
        """A place where the attempt may be killed."""
        with self._lock:
            self.check()
            self._passed[place] += 1
            again = self._passed[place]
            self.places.append(place if again == 1 else f"{place} ({again})")
            if len(self.places) - 1 == self._at:
                self.killed = self.places[-1]
                self.open = Counter(self._unwritten.values())
                self.end(Crash(f"killed {self.killed}"))

    def happened(self, effect: Effect) -> None:
        with self._lock:
            self._unwritten[_step.get()] = effect.name
        self.passing(f"after effect {effect.name!r}")

    def step_begins(self, name: str) -> None:
        """What was done outside of steps before is not the last thing done any more."""
        with self._lock:
            self._unwritten.pop(None, None)
        self.passing(f"as step {name!r} begins")

    def written(self, name: str, record: Record) -> None:
        """A write of the attempt stands."""
        with self._lock:
            self.claimed = True
            self._holds[name] = record
            kept = set(record.steps) if record.state is State.CLAIMED else set(self._unwritten)
            for step in (None, *kept):
                self._unwritten.pop(step, None)

    def lease(self) -> float:
        """Seconds until nobody holds a claim any more, at most."""
        held = [item.lease for item in self._holds.values() if item.state is State.CLAIMED]
        return max(held, default=0.0)


class _Runner:
    """Runs one event to its answer, with one kill at most."""

    def __init__(
        self,
        handler: Callable[..., Any],
        event: Any,
        context: Any,
        effects: Effects,
        ledger: Callable[[Clock], Ledger],
        reset: Callable[[], object] | None,
    ) -> None:
        self._handler = handler
        self._event = event
        self._context = context
        self._effects = effects
        self._ledger = ledger
        self._reset = reset

    def run(self, trip: _Trip, redeliveries: int) -> CrashRun:
        """Deliver, and redeliver as often as it takes."""
        if self._reset is not None:
            self._reset()
        clock = FrozenClock()
        before = len(self._effects.made)
        with (
            ledger_in_place(_Tripping(self._ledger(clock), trip)),
            observed_by(_Places(trip)),
            self._effects.during(trip),
        ):
            done = [self._deliver(1, trip)]
            answered = _answered(done[-1])
            while trip.killed and not answered and len(done) <= redeliveries:
                if lease := trip.lease():
                    clock.advance(lease + _SURELY_OVER)
                trip.begin()
                done.append(self._deliver(len(done) + 1, trip))
                answered = _answered(done[-1])
        cache.forget()
        made = self._effects.made[before:]
        return CrashRun(trip.killed, Deliveries(done, made), made, trip.open, answered)

    def _deliver(self, number: int, trip: _Trip) -> Delivered:
        cache.forget()
        return deliver_once(self._handler, self._event, self._context, number=number, life=trip)


def _answered(delivered: Delivered) -> bool:
    return delivered.raised is None and not delivered.in_flight


class _Tripping(LedgerProxy):
    """A kill may strike before each call and after each write."""

    def __init__(self, ledger: Ledger, trip: _Trip) -> None:
        super().__init__(ledger)
        self._trip = trip

    def around(self, call: Call, carry_out: Callable[[], R]) -> R:
        place = _PLACES.get(call.purpose, call.purpose)
        if call.purpose == "step" and call.record and call.expected:
            new = [name for name in call.record.steps if name not in call.expected.record.steps]
            place = f"step {', '.join(map(repr, new))} is kept"
        self._trip.passing(f"before {place}")
        answer = carry_out()
        if call.won(answer) and call.record is not None:
            assert isinstance(answer, Entry)
            self._trip.written(answer.name, call.record)
            self._trip.passing(f"after {place}")
        return answer


_PLACES = {
    "claim": "the claim is written",
    "takeover": "the takeover is written",
    "complete": "the completion is written",
    "release": "the release is written",
    "fail": "the failure is written",
    "read": "the record is read",
}


class _Places(Hook):
    """A kill may strike where the work and its steps begin and end."""

    def __init__(self, trip: _Trip) -> None:
        self._trip = trip

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        if phase is Phase.WORK:
            return self._work()
        return self._steps(details.step or "") if phase is Phase.STEP else None

    @contextmanager
    def _work(self) -> Iterator[None]:
        self._trip.passing("as the work begins")
        yield
        self._trip.passing("as the work ends")

    @contextmanager
    def _steps(self, name: str) -> Iterator[None]:
        self._trip.step_begins(name)
        token = _step.set(name)
        try:
            yield
        finally:
            _step.reset(token)
        self._trip.passing(f"as step {name!r} ends")
