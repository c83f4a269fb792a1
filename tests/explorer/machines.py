"""The machine that an actor runs on: its clocks, its client, and how it gives way to the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent, greenlet

from idemguard.clock import Clock
from idemguard.ledgers import aws_client
from idemguard.ledgers.ssm import SSMLedger

from .properties import Monitor
from .world import World

WORK = "work"
BEGIN = "begin"
SLEEP = "sleep"
HOUR = 3600.0
_LONG_SLEEP = 10.0


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


class Crashed(BaseException):
    """The machine is gone; nothing it runs reaches the ledger any more."""


class Machine(Clock):
    """An actor's clocks over the world's time. `ready` is when it has slept enough.

    `skew` is by how much its wall clock is wrong; `frozen` is how long its monotonic clock stood.
    """

    def __init__(self, skew: float, pause: Callable[[Call], object]) -> None:
        self.skew = skew
        self._pause = pause
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
        if seconds >= _LONG_SLEEP:
            # Whoever sleeps for long may be woken late; a short sleep ends in a call anyway.
            self._pause(Call(SLEEP, {}, self.ready))

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
        self.machine = Machine(HOUR if index % 2 else -HOUR, self.pause)
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
        sending = aws_client._sending  # pyright: ignore[reportPrivateUsage]
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
