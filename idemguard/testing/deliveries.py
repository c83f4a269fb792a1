"""The same event, delivered as often as one likes."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, overload

from .. import cache
from ..ledger import Ledger
from ..ledgers.memory import MemoryLedger
from ..options import ledger_in_place, substitute
from ..outcome import Outcome, observed_by
from .capture import Captured, Listener
from .crash import Crash, Life
from .effects import Effect, Effects, calls_of, counted, counts_of
from .faults import FaultyLedger
from .lambda_context import FakeLambdaContext
from .text_table import shortened, table


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of one delivery.

    Attributes:
        number: which one, from 1.
        outcome: a name of `idemguard.Outcome`: ``"EXECUTED"`` if guarded work was run to its end in
            this delivery, otherwise that of the last guarded call; None where there is none, for the
            work was refused, failed or crashed, or nothing is guarded.
        result: what the handler returned.
        error: type of the exception that it raised, such as ``"InFlightError"``.
        attempt: which attempt of the key this was, from 1; 0 where there was no claim.
        happenings: all that was observed, in order.
        raised: the exception itself, with its traceback.
    """

    number: int
    outcome: str | None = None
    result: Any = None
    error: str | None = None
    attempt: int = 0
    happenings: tuple[Captured, ...] = field(default=(), repr=False)
    raised: BaseException | None = field(default=None, repr=False, compare=False)

    @property
    def in_flight(self) -> bool:
        """Whether it, or a part of it, has to come again, for another one is at work."""
        refused = Outcome.SKIPPED_IN_FLIGHT.value
        return any(happening["outcome"] == refused for happening in self.happenings)

    @property
    def settled(self) -> Counter[str]:
        """How many guarded calls came to each outcome: one for each record of a batch, and so on."""
        return Counter(each["outcome"] for each in self.happenings if each["outcome"])

    @property
    def keys(self) -> frozenset[str]:
        """The digests of the keys that were met."""
        return frozenset(each["key_digest"] for each in self.happenings if each["key_digest"])

    @property
    def told(self) -> str:
        """The outcome, or those of several guarded calls: ``EXECUTED x2, SKIPPED_COMPLETED x1``."""
        settled = self.settled
        if settled.total() < 2:
            return self.outcome or ""
        return ", ".join(f"{outcome} x{count}" for outcome, count in settled.items())

    def __str__(self) -> str:
        if self.error is None:
            return self.told or "not guarded"
        return f"{self.told} {self.error}" if self.told else self.error


class Deliveries(Sequence[Delivered]):
    """What became of several deliveries of one event; ``print`` it, or look at it as a list.

    Attributes:
        effects: the effects recorded meanwhile.
    """

    def __init__(self, deliveries: Sequence[Delivered], effects: Sequence[Effect] = ()) -> None:
        self._deliveries = list(deliveries)
        self.effects = list(effects)

    @overload
    def __getitem__(self, index: int) -> Delivered: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Delivered]: ...
    def __getitem__(self, index: int | slice) -> Delivered | Sequence[Delivered]:
        return self._deliveries[index]

    def __len__(self) -> int:
        return len(self._deliveries)

    def __repr__(self) -> str:
        each = ", ".join(str(delivered) for delivered in self)
        done = f"; effects: {counted(self.effects)}" if self.effects else ""
        return f"<{each}{done}>"

    def __str__(self) -> str:
        return self.table()

    @property
    def outcomes(self) -> list[str | None]:
        """The outcome of each delivery."""
        return [delivered.outcome for delivered in self]

    @property
    def results(self) -> list[Any]:
        """What each delivery returned; None for one that raised."""
        return [delivered.result for delivered in self]

    @property
    def errors(self) -> list[str | None]:
        """The type of what each delivery raised; None for one that returned."""
        return [delivered.error for delivered in self]

    @property
    def executions(self) -> Counter[str]:
        """How often guarded work was run to its end, by key digest."""
        executed = Outcome.EXECUTED.value
        return Counter(
            happening["key_digest"]
            for delivered in self
            for happening in delivered.happenings
            if happening["outcome"] == executed
        )

    @property
    def executed(self) -> int:
        """How often the guarded work of one key was run to its end: the most of all keys.

        Keys that differ from delivery to delivery are different work here: see `executions`.
        """
        return max(self.executions.values(), default=0)

    @property
    def calls(self) -> Counter[str]:
        """How often each effect was asked for, by name."""
        return calls_of(self.effects)

    @property
    def counts(self) -> Counter[str]:
        """How often each effect was done, by name: requests with one effect key are done once."""
        return counts_of(self.effects)

    def table(self, *, whole: bool = False) -> str:
        """One line a delivery, and one for the effects; `whole` does not shorten what was raised."""
        lines = table(
            ("delivery", "outcome", "attempt", "result", "raised"),
            [
                (
                    str(delivered.number),
                    delivered.told or "-",
                    str(delivered.attempt or "-"),
                    "" if delivered.raised else shortened(repr(delivered.result)),
                    _told(delivered.raised, whole),
                )
                for delivered in self
            ],
        )
        return f"{lines}\neffects: {counted(self.effects)}" if self.effects else lines


def deliver(
    handler: Callable[..., Any],
    event: Any,
    times: int = 2,
    *,
    context: Any = None,
    ledger: Ledger | None = None,
    effects: Effects | None = None,
    warm: bool = False,
) -> Deliveries:
    """Deliver the same event several times, one delivery after the other.

    ```python
    deliveries = deliver(handler, event, times=3)
    assert deliveries.outcomes == ["EXECUTED", "SKIPPED_COMPLETED", "SKIPPED_COMPLETED"]
    ```

    What the handler raises ends that delivery, not the test: it stands in the result.

    Args:
        handler: takes event and context, or the event alone; also an ``async def``.
        event: each delivery gets a deep copy.
        times: how many deliveries.
        context: for all of them; by default each gets a new `FakeLambdaContext` of 30 seconds.
        ledger: stands in for the one that the handler names by URL or environment; by default the
            one of the fixture `idempotency_ledger` if the test uses it, otherwise a new
            MemoryLedger. A handler whose guard was given a Ledger object keeps that.
        effects: what the handler's effects are recorded on; the result counts them.
        warm: deliver to one container, whose local cache answers duplicates; by default each
            delivery meets a cold one.
    """
    ledger = chosen(ledger)
    effects = Effects() if effects is None else effects
    before = len(effects.made)
    done: list[Delivered] = []
    with ledger_in_place(ledger):
        for number in range(1, times + 1):
            if number == 1 or not warm:
                cache.forget()
            life = life_on(ledger)
            with effects.during(life):
                done.append(deliver_once(handler, event, context, number=number, life=life))
    cache.forget()
    return Deliveries(done, effects.made[before:])


def chosen(ledger: Ledger | None) -> Ledger:
    """The ledger to deliver on: the given one, the one that is in place already, or a new one."""
    if ledger is None:
        ledger = substitute()
    return MemoryLedger() if ledger is None else ledger


def life_on(ledger: Ledger) -> Life:
    """A new process on that ledger, which may have a crash in store for it."""
    life = ledger.life if isinstance(ledger, FaultyLedger) else Life()
    life.begin()
    return life


def deliver_once(
    handler: Callable[..., Any], event: Any, context: Any, *, number: int, life: Life
) -> Delivered:
    """One delivery, and what could be observed of it while its process lived."""
    happenings: list[Captured] = []

    def note(captured: Captured) -> None:
        if life.crash is None:
            happenings.append(captured)

    with observed_by(Listener(note)):
        result, raised = call(handler, event, context)
    if life.crash is not None:
        # Whatever a handler that catches everything made of it: the process is gone.
        result, raised = None, life.crash
    return delivered(number, result, raised, happenings)


def delivered(
    number: int, result: Any, raised: BaseException | None, happenings: Sequence[Captured]
) -> Delivered:
    """The record of a delivery that ended so."""
    outcomes = [each["outcome"] for each in happenings if each["outcome"]]
    executed = Outcome.EXECUTED.value
    return Delivered(
        number,
        executed if executed in outcomes else outcomes[-1] if outcomes else None,
        result,
        type(raised).__name__ if raised else None,
        max((each["attempt"] for each in happenings), default=0),
        tuple(happenings),
        raised,
    )


def call(handler: Callable[..., Any], event: Any, context: Any) -> tuple[Any, BaseException | None]:
    """What the handler returns and what it raises; blocking or not."""
    given = copy.deepcopy(event)
    context = context or FakeLambdaContext()
    try:
        result = handler(given, context) if _takes_both(handler) else handler(given)
        if inspect.isawaitable(result):
            result = _awaited(result)
    # KeyboardInterrupt and pytest's own signals are none of the handler's.
    except (Exception, Crash, SystemExit, asyncio.CancelledError) as error:
        return None, error
    return result, None


def _takes_both(handler: Callable[..., Any]) -> bool:
    try:
        inspect.signature(handler).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # no signature to be had
        return True
    return True


def _awaited(work: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await work

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    # The test is async itself: its loop is busy with this very call.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, run()).result()


def _told(error: BaseException | None, whole: bool) -> str:
    if error is None:
        return ""
    text = f"{type(error).__name__}: {error}"
    return shortened(text, len(text) if whole else 80)
