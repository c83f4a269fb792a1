"""The same event, delivered at one moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from .. import cache
from ..ledger import Entry, Ledger
from ..options import ledger_in_place
from ..outcome import Details, Hook, Phase, observed_by
from .capture import Captured, Listener
from .deliveries import Delivered, Deliveries, call, chosen, delivered, life_on
from .effects import Effects
from .ledger_proxy import Call, LedgerProxy

R = TypeVar("R")

#: Which worker the code running here belongs to.
_worker: ContextVar[int] = ContextVar("idemguard_test_worker")


def deliver_concurrently(
    handler: Callable[..., Any],
    event: Any,
    workers: int = 2,
    *,
    context: Any = None,
    ledger: Ledger | None = None,
    effects: Effects | None = None,
    hold: bool = True,
    patience: float = 10.0,
) -> Deliveries:
    """Deliver the same event at one moment to several workers, each a thread.

    ```python
    deliveries = deliver_concurrently(handler, event, workers=3)
    assert deliveries.outcomes == ["EXECUTED", "SKIPPED_IN_FLIGHT", "SKIPPED_IN_FLIGHT"]
    ```

    The first worker to begin its work is held there until the ledger has shown its claim to all the
    others, or they are done. So they overlap every time, not only when the machine happens to be
    slow. The held one comes first in the result.

    Args:
        handler: takes event and context, or the event alone; also an ``async def``.
        event: each worker gets a deep copy.
        workers: how many.
        context: for all of them; by default each gets a new `FakeLambdaContext` of 30 seconds.
        ledger: as for `deliver`. If the handler's guard was given a Ledger object, the others must
            be done, not waiting, before the first one goes on.
        effects: what the handler's effects are recorded on; the result counts them.
        hold: False starts them together and leaves the rest to chance.
        patience: seconds after which the held worker goes on all the same.
    """
    meeting = _Meeting(workers, hold, patience)
    ledger = chosen(ledger)
    effects = Effects() if effects is None else effects
    before = len(effects.made)
    heard: list[list[Captured]] = [[] for _ in range(workers)]
    start = threading.Barrier(workers)

    def work(number: int) -> Delivered:
        _worker.set(number)
        start.wait(patience)
        try:
            result, raised = call(handler, event, context)
        finally:
            meeting.settle(number)
        return delivered(number + 1, result, raised, heard[number])

    def hear(captured: Captured) -> None:
        if (number := _worker.get(None)) is not None:
            heard[number].append(captured)

    cache.forget()
    with (
        ledger_in_place(_Watched(ledger, meeting)),
        effects.during(life_on(ledger)),
        observed_by(Listener(hear)),
        observed_by(meeting),
        ThreadPoolExecutor(workers) as pool,
    ):
        done = list(pool.map(work, range(workers)))
    cache.forget()
    done.sort(key=lambda each: each.number - 1 != meeting.first)
    return Deliveries(done, effects.made[before:])


class _Meeting(Hook):
    """Holds the first worker at its work until all the others have met its claim."""

    def __init__(self, workers: int, hold: bool, patience: float) -> None:
        self.first: int | None = None
        self._others = workers - 1
        self._hold = hold
        self._patience = patience
        self._settled: set[int] = set()
        self._changed = threading.Condition()

    def settle(self, number: int) -> None:
        """A worker knows what it will answer, or has answered."""
        with self._changed:
            self._settled.add(number)
            self._changed.notify_all()

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        return self._held() if phase is Phase.WORK else None

    @contextmanager
    def _held(self) -> Iterator[None]:
        number = _worker.get(None)
        with self._changed:
            if self.first is None and number is not None:
                self.first = number
                if self._hold:
                    self._changed.wait_for(self._all_met, self._patience)
        yield

    def _all_met(self) -> bool:
        return len(self._settled - {self.first}) >= self._others


class _Watched(LedgerProxy):
    """Tells the meeting who was shown another worker's entry."""

    def __init__(self, ledger: Ledger, meeting: _Meeting) -> None:
        super().__init__(ledger)
        self._meeting = meeting

    def around(self, call: Call, carry_out: Callable[[], R]) -> R:
        answer = carry_out()
        number = _worker.get(None)
        if number is not None and isinstance(answer, Entry):
            mine = call.record is not None and call.record.token == answer.record.token
            if not mine:
                self._meeting.settle(number)
        return answer
