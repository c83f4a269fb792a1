"""A ledger on which things go wrong, whatever ledger is behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import LedgerFull, LedgerMisconfigured, LedgerUnavailable
from ..ledger import Ledger
from .crash import Crash, Life
from .ledger_proxy import PURPOSES, Call, LedgerProxy

R = TypeVar("R")

#: Any call, for `FaultyLedger.inject`.
ANY = "*"


@dataclass(frozen=True, slots=True)
class LedgerFault:
    """What happens to one call of a ledger, in this order: wait, carry it out or not, raise or not.

    Attributes:
        delay: seconds to sleep first, on the FaultyLedger's clock.
        applied: whether the call is carried out.
        error: makes what is raised in place of the answer; None to answer.
    """

    delay: float = 0.0
    applied: bool = True
    error: Callable[[], BaseException] | None = None

    @classmethod
    def throttle(cls) -> LedgerFault:
        """The store is over its quota, for as long as the ledger may try: LedgerUnavailable."""
        return cls(applied=False, error=lambda: LedgerUnavailable("throttled (injected by a test)"))

    @classmethod
    def lost_response(cls) -> LedgerFault:
        """The call is carried out and its answer gets lost: LedgerUnavailable all the same."""
        return cls(error=lambda: LedgerUnavailable("the answer was lost (injected by a test)"))

    @classmethod
    def slow(cls, seconds: float) -> LedgerFault:
        """The call takes so many seconds; past its deadline, LedgerUnavailable, and it is applied."""
        return cls(delay=seconds)

    @classmethod
    def denied(cls) -> LedgerFault:
        """The store refuses for good, as for a missing permission: LedgerMisconfigured."""
        return cls(applied=False, error=lambda: LedgerMisconfigured("denied (injected by a test)"))

    @classmethod
    def full(cls) -> LedgerFault:
        """The store holds as many records as it may: LedgerFull."""
        return cls(applied=False, error=lambda: LedgerFull("full (injected by a test)"))

    @classmethod
    def crash(cls, *, applied: bool = False) -> LedgerFault:
        """The process is killed in this call, before it is carried out or (`applied`) after.

        Every further call raises the same `Crash`, until `FaultyLedger.restart`.
        """
        when = "after" if applied else "before"
        return cls(applied=applied, error=lambda: Crash(f"killed {when} the call took effect"))


class FaultyLedger(LedgerProxy):
    """A ledger whose calls fail as they are told to.

    ```python
    ledger = FaultyLedger(MemoryLedger())
    ledger.inject(LedgerFault.throttle(), on="complete")
    assert deliver(handler, event, ledger=ledger).outcomes == ["EXECUTED", "SKIPPED_IN_FLIGHT"]
    ```

    It stands above a ledger's own attempts to try again: what it raises is what a ledger raises in
    the end. To test those attempts, inject into a `StrictSSM`.

    Args:
        ledger: what carries the calls out.
        clock: what `LedgerFault.slow` sleeps on.

    Attributes:
        calls: what each call was for, also of those that a fault hit.
        life: whether a crash was injected and struck.
    """

    def __init__(self, ledger: Ledger, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(ledger)
        self.calls: list[str] = []
        self.life = Life()
        self._clock = clock
        self._lock = threading.Lock()
        self._planned: list[_Planned] = []

    def inject(self, fault: LedgerFault, *, on: str = ANY, times: int = 1, after: int = 0) -> None:
        """Let `fault` hit the next `times` calls of one purpose; the oldest fault that is due hits.

        Args:
            fault: what happens.
            on: what the call is for: ``"claim"``, ``"takeover"``, ``"step"`` (keeping a done one),
                ``"complete"``, ``"release"``, ``"fail"``, ``"read"``, ``"bar"``, ``"remove"``,
                ``"scan"``, or `ANY`.
            times: how many calls.
            after: how many such calls pass unharmed before.

        Raises:
            ValueError: no such purpose, or a senseless count.
        """
        if on != ANY and on not in PURPOSES:
            raise ValueError(f"on: no call is for {on!r}; there are {', '.join(sorted(PURPOSES))}")
        if times < 1 or after < 0:
            raise ValueError(f"times={times} must be 1 or more, and after={after} 0 or more")
        with self._lock:
            self._planned.append(_Planned(fault, on, times, after))

    def restart(self) -> None:
        """A new process after a crash: calls get through again. `deliver` does this by itself."""
        self.life.begin()

    def around(self, call: Call, carry_out: Callable[[], R]) -> R:
        self.life.check()
        with self._lock:
            self.calls.append(call.purpose)
            fault = self._due(call.purpose)
        if fault.delay:
            left = call.deadline.remaining() if call.deadline else None
            if left is not None and left <= fault.delay:
                self._clock.sleep(max(0.0, left))
                carry_out()
                raise LedgerUnavailable("no answer before the deadline (injected by a test)")
            self._clock.sleep(fault.delay)
        if fault.error is None:
            return carry_out()
        if fault.applied:
            carry_out()
        error = fault.error()
        if isinstance(error, Crash):
            self.life.end(error)
        raise error

    def _due(self, purpose: str) -> LedgerFault:
        due: _Planned | None = None
        for planned in self._planned:
            if planned.on not in (ANY, purpose):
                continue
            if planned.after > 0:
                planned.after -= 1
            elif due is None:
                due = planned
        if due is None:
            return LedgerFault()
        due.times -= 1
        if due.times == 0:
            self._planned.remove(due)
        return due.fault


@dataclass(slots=True, eq=False)
class _Planned:
    fault: LedgerFault
    on: str
    times: int
    after: int
