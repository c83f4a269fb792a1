"""Who takes part: deliveries and sweepers, each on a machine of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent, greenlet

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
from idemguard.clock import Clock
from idemguard.codec import Codec
from idemguard.delivery import Delivery, deliver
from idemguard.guard import record_name
from idemguard.ledger import Entry
from idemguard.ledgers import ssm_client
from idemguard.ledgers.ssm import SSMLedger
from idemguard.lifecycle import SWEEP_LEASE
from idemguard.record import Record, State

from .properties import Monitor
from .world import World

_KEY = Guard(operation="pay").key("0")
NAME = record_name("ns", _KEY)
_CODEC = Codec()
FULL_NAME = f"/idempotency/{NAME}"
WORK = "work"
BEGIN = "begin"
HOUR = 3600.0


class Crashed(BaseException):
    """The machine is gone; nothing it runs reaches the ledger any more."""


class WorkFailed(Exception):
    """The work says no."""


class FailedForGood(Exception):
    """The work says no, and would again."""


class Machine(Clock):
    """An actor's clocks over the world's time. `ready` is when it has slept enough.

    `skew` is by how much its wall clock is wrong; `frozen` is how long its monotonic clock stood.
    """

    def __init__(self, skew: float) -> None:
        self.skew = skew
        self.world = World()
        self.ready = 0.0
        self.frozen = 0.0

    def now(self) -> float:
        return max(self.world.now, self.ready)

    def monotonic(self) -> float:
        return self.now() - self.frozen

    def wall(self) -> float:
        return self.now() + self.skew

    def sleep(self, seconds: float) -> None:
        self.ready = self.now() + seconds

    def jitter(self, upto: float) -> float:
        return upto / 2


@dataclass(slots=True)
class Call:
    """What an actor is about to do, and since when."""

    operation: str
    request: dict[str, Any]
    issued: float
    sendings: int = 1


class _Again:
    """Tells the client to send the call again, as the SDK does when an answer is lost."""


AGAIN = _Again()


@dataclass(slots=True)
class _Events:
    """As much of ``client.meta.events`` as is needed to forbid a second sending."""

    handlers: dict[tuple[str, str], Callable[..., object]] = field(
        default_factory=dict[tuple[str, str], Callable[..., object]]
    )

    def register_first(self, name: str, handler: Callable[..., object], unique_id: str) -> None:
        self.handlers[name, unique_id] = handler

    def emit(self, name: str) -> None:
        for (event, _), handler in self.handlers.items():
            if event == name:
                handler()


class Client:
    """Stands where a boto3 SSM client stands; every call is the scheduler's to answer."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self.meta = SimpleNamespace(events=_Events())

    def put_parameter(self, **request: Any) -> Any:
        return self._call("PutParameter", request)

    def get_parameter(self, **request: Any) -> Any:
        return self._call("GetParameter", request)

    def get_parameters(self, **request: Any) -> Any:
        return self._call("GetParameters", request)

    def delete_parameters(self, **request: Any) -> Any:
        return self._call("DeleteParameters", request)

    def describe_parameters(self, **request: Any) -> Any:
        return self._call("DescribeParameters", request)

    def _call(self, operation: str, request: dict[str, Any]) -> Any:
        call = Call(operation, request, self._actor.machine.now())
        while True:
            self.meta.events.emit(f"before-send.ssm.{operation}")
            answer = self._actor.pause(call)
            if answer is not AGAIN:
                return answer
            call.sendings += 1


class Actor:
    """Somebody who acts on the key, one call at a time.

    Attributes:
        doing: what it waits to do; None once it has ended.
        observed: a number that is the same for the same things seen; with it, what the actor will
            do next is known.
        outcome: what it came to.
        limit: when its Lambda function is stopped; None for never.
    """

    kind = "?"

    def __init__(self, index: int, rules: Rules) -> None:
        self.index = index
        self.name = f"{self.kind} {index}"
        self.rules = rules
        # Odd and even machines are an hour ahead and an hour behind: nothing may depend on it.
        self.machine = Machine(HOUR if index % 2 else -HOUR)
        self.ledger = SSMLedger(Client(self), clock=self.machine)
        self.monitor = Monitor(World())
        self.reset(World(), self.monitor)

    def reset(self, world: World, monitor: Monitor) -> None:
        self.machine.world = world
        self.machine.ready = 0.0
        self.machine.frozen = 0.0
        self.monitor = monitor
        self.doing: Call | None = Call(BEGIN, {}, world.now)
        self.dead = False
        self.observed = self.index
        self.outcome = ""
        self.limit: float | None = None
        self._scheduler = getcurrent()
        self._greenlet = greenlet(self._main)

    def begin(self) -> None:
        """Run until the first call."""
        self._scheduler = getcurrent()
        if self.rules.timeout is not None:
            self.limit = self.machine.now() + self.rules.timeout
        self._switch(self._greenlet.switch)

    def resume(self, answer: object) -> None:
        """Run on with the answer, until the next call."""
        self._switch(self._greenlet.switch, answer)

    def throw(self, error: BaseException) -> None:
        """Run on with an exception from the call, until the next call."""
        self._switch(self._greenlet.throw, error)

    def kill(self) -> None:
        """Crash: whatever the code does on the way out reaches nothing."""
        if self.doing is None:
            return
        self.dead = True
        if self._greenlet:
            self._switch(self._greenlet.throw, Crashed())
        self.doing = None

    def pause(self, call: Call) -> Any:
        """Wait for the scheduler; what it answers is the call's answer."""
        if self.dead:
            raise Crashed
        self.doing = call
        # Kept per thread, but all actors share one thread here.
        sending = ssm_client._sending  # pyright: ignore[reportPrivateUsage]
        count = getattr(sending, "count", None)
        try:
            return self._scheduler.switch()
        finally:
            sending.count = count

    def play(self) -> str:
        """What the actor does, from start to end; returns what it came to."""
        raise NotImplementedError

    def _main(self) -> None:
        try:
            self.outcome = self.play()
        except Crashed:
            self.outcome = "crashed"
        except Exception as error:
            self.outcome = f"{type(error).__name__}: {error}"
            self.monitor.surprised(self.name, error)

    def _switch(self, how: Callable[..., object], *args: object) -> None:
        self._greenlet.parent = getcurrent()
        self._scheduler = getcurrent()
        how(*args)
        if self._greenlet.dead:
            self.doing = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How deliveries are configured.

    Attributes:
        lease, retention: seconds.
        timeout: seconds after which the Lambda function is killed; tells the lease instead.
        duration: seconds that the work takes.
        steps: the work keeps a step.
        waits: a duplicate waits for the first delivery's result.
        redelivered: the event says that it came before, so the ledger is read first.
    """

    lease: float = 60.0
    retention: float = 100.0
    timeout: float | None = None
    duration: float = 1.0
    steps: bool = False
    waits: bool = False
    redelivered: bool = False


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
            self.guard.setup(_CODEC), _KEY, NAME, deadline=deadline, redelivered=True
        )
        return deliver(delivery, self._work)

    def _work(self) -> dict[str, int]:
        claim = current_claim()
        assert claim.holding is not None, "the work runs under a claim"
        self.monitor.work_begins(
            self.index,
            claim.holding.record.token,
            claim.fencing_token,
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


class Sweeper(Actor):
    """One sweep of the key, as the protocol has it."""

    kind = "sweeper"

    def play(self) -> str:
        entry = self.ledger.read_many([NAME]).get(NAME)
        if entry is None or not is_due(entry):
            return "nothing due"
        bar = self.bar(entry)
        if bar is None:
            return "left alone"
        self.machine.sleep(self.ledger.removal_delay)
        return "removed" if self.remove(bar) else "left behind"

    def bar(self, entry: Entry) -> Entry | None:
        wanted = Record(State.SWEPT, token=secrets.token_hex(16), lease=SWEEP_LEASE)
        standing = self.ledger.replace(entry, wanted)
        return standing if standing is not None and standing.record == wanted else None

    def remove(self, bar: Entry) -> bool:
        return bool(self.ledger.remove([bar]))


def is_due(entry: Entry) -> bool:
    """Whether a record is so old that nobody may act on it any more."""
    record, age = entry.record, entry.age
    if record.state is State.CLAIMED:
        return age >= record.lease + record.horizon
    if record.state is State.SWEPT:
        return age >= record.lease
    return record.state in _ENDED and age >= record.horizon


_ENDED = (State.COMPLETED, State.FAILED, State.RELEASED)


KINDS: dict[str, type[Actor]] = {"deliver": Deliverer, "sweep": Sweeper}
