"""Who takes part: deliveries and sweeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from idemguard import (
    Event,
    Execution,
    Guard,
    Happening,
    Hook,
    IdempotencyError,
    current_claim,
    step,
)
from idemguard.codec import Codec
from idemguard.delivery import Delivery, deliver
from idemguard.guard import record_name
from idemguard.sweeper import Sweeper

from .machines import WORK, Actor, Call, Rules
from .properties import Monitor
from .world import World

_KEY = Guard(operation="pay").key("0")
_NAME = record_name("ns", _KEY)
_CODEC = Codec()
#: The one parameter that everything here is about.
FULL_NAME = f"/idempotency/{_NAME}"


class WorkFailed(Exception):
    """The work says no."""


class FailedForGood(Exception):
    """The work says no, and would again."""


class _Notes(Hook):
    """Counts what happens in one actor's deliveries."""

    def __init__(self) -> None:
        self.happenings: list[Happening] = []

    def observe(self, event: Event) -> None:
        self.happenings.append(event.happening)


_WRITE_FAILED = frozenset(
    {Happening.COMPLETE_FAILED, Happening.RELEASE_FAILED, Happening.LEDGER_ERROR}
)


class Deliverer(Actor):
    """One delivery of the event, through the public surface of the guard."""

    kind = "delivery"

    def __init__(self, index: int, rules: Rules) -> None:
        self.notes = _Notes()
        super().__init__(index, rules)
        self.guard = Guard(
            ledger=self.ledger,
            clock=self.machine,
            operation="pay",
            namespace="ns",
            lease=None if rules.timeout is not None else rules.lease,
            retention=rules.retention,
            local_cache=False,
            permanent=(FailedForGood,),
            on_in_flight="wait" if rules.waits else "raise",
            hooks=(self.notes,),
        )

    def reset(self, world: World, monitor: Monitor) -> None:
        super().reset(world, monitor)
        self.notes.happenings.clear()

    def play(self) -> str:
        context = None
        if self.limit is not None:
            context = SimpleNamespace(get_remaining_time_in_millis=self._remaining)
        try:
            execution = self._deliver(context)
        except (WorkFailed, FailedForGood) as error:
            return type(error).__name__
        except IdempotencyError as error:
            return type(error).__name__
        finally:
            if not self.dead:
                notes = self.notes.happenings
                self.monitor.delivered(
                    self.index,
                    self.machine.now(),
                    ledger_failed=not _WRITE_FAILED.isdisjoint(notes),
                    lease_lost=Happening.LEASE_LOST in notes,
                )
        self.monitor.answered(self.index, execution.result, execution.outcome)
        return execution.outcome.value

    def _deliver(self, context: Any) -> Execution[dict[str, int]]:
        if not self.rules.redelivered:
            return self.guard.run_exactly_once(_KEY, self._work, context=context)
        # As the decorator does with an event that says so.
        deadline = self.guard.deadline(context)
        delivery: Delivery[dict[str, int]] = Delivery(
            self.guard.setup(_CODEC), _KEY, _NAME, deadline=deadline, redelivered=True
        )
        return deliver(delivery, self._work)

    def _work(self) -> dict[str, int]:
        claim = current_claim()
        assert claim.holding is not None, "the work runs under a claim"
        self.monitor.work_begins(
            self.index,
            claim.holding.record.token,
            claim.fencing_token,
            claim.remaining(),
            self.machine.now(),
            self.limit,
        )
        if self.rules.steps:
            step("charge", lambda: self.index)
        self.machine.sleep(self.rules.duration)
        verdict = self.pause(Call(WORK, {}, self.machine.now()))
        if verdict is not None:
            self.monitor.work_fails(self.index)
            raise verdict
        self.monitor.work_succeeds(self.index, self.machine.now())
        return {"by": self.index}

    def _remaining(self) -> float:
        assert self.limit is not None, "asked only where there is a limit"
        return (self.limit - self.machine.now()) * 1000


class Sweep(Actor):
    """One sweep of the ledger."""

    kind = "sweep"

    def play(self) -> str:
        try:
            report = Sweeper(self.ledger, clock=self.machine).sweep(dry_run=False)
        except IdempotencyError as error:
            return type(error).__name__
        return f"{report.swept} swept, {report.kept} kept, {report.backlog} left"


KINDS: dict[str, type[Actor]] = {"deliver": Deliverer, "sweep": Sweep}
