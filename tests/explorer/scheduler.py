"""One schedule from start to end: who moves next, what goes wrong, how time passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, ReadTimeoutError

from .actors import FailedForGood, WorkFailed
from .machines import AGAIN, BEGIN, SLEEP, WORK, Actor, Call
from .properties import Monitor, Violation
from .scenarios import Fault, Scenario
from .service import refusal, serve, told
from .world import Answer, World

#: Seconds from the last look before a delete to its landing, at the longest; an assumption of the
#: protocol.
DELETE_IN_FLIGHT = 60.0
_URL = "https://ssm.invalid"

_WRITES = ("PutParameter", "DeleteParameters")
_READS = ("GetParameter", "GetParameters")
_FAULTS: dict[Fault, tuple[str, ...]] = {
    Fault.CRASH: (*_WRITES, *_READS, WORK),
    Fault.CRASH_AFTER: _WRITES,
    Fault.LOST: _WRITES,
    Fault.RESENT: _WRITES,
    Fault.DELAYED: _WRITES,
    Fault.THROTTLED: (*_WRITES, *_READS),
    Fault.BUSY: ("PutParameter",),
    Fault.STALE: _READS,
    Fault.WORK_FAILS: (WORK,),
    Fault.WORK_FAILS_FOR_GOOD: (WORK,),
}


class Action(NamedTuple):
    """One decision. `actor` moves, or time jumps by `amount`, or a write in flight lands."""

    what: str
    actor: int
    fault: Fault | None = None
    amount: float = 0

    def __str__(self) -> str:
        if self.what == "jump":
            return f"{self.amount:g} s pass"
        return f"{self.what} {self.actor}" + (f" {self.fault.value}" if self.fault else "")


@dataclass(slots=True)
class _Flight:
    """A write that was sent and has not arrived; its sender believes that it timed out."""

    call: Call
    writer: int


class Pruned(Exception):
    """Everything that can follow from here has been seen."""


#: Picks one of the options; is also given a number that stands for the state they are met in.
Chooser = Callable[[Sequence[Action], Callable[[], int]], int]


class Schedule:
    """Runs a scenario's actors through one schedule."""

    def __init__(
        self, scenario: Scenario, actors: Sequence[Actor], probe: Actor, choose: Chooser
    ) -> None:
        self._scenario = scenario
        self._actors = actors
        self._probe = probe
        self._choose = choose
        self._world = World(scenario.history, scenario.reuse_wait)
        scenario.prepare(self._world)
        self._monitor = Monitor(self._world)
        self._faults = scenario.fault_budget
        self._jumps = scenario.jump_budget
        self._preemptions = scenario.preemptions
        self._last = 0
        self._flights: list[_Flight] = []
        self.trace: list[str] | None = None

    def run(self) -> Violation | None:
        """The first broken promise, if any.

        Raises:
            Pruned: the chooser has had enough.
        """
        for actor in (*self._actors, self._probe):
            actor.reset(self._world, self._monitor)
        if not self._scenario.jumps:
            for actor in self._actors:
                actor.begin()
        try:
            while options := self._options():
                action = options[self._choose(options, self._ground) if len(options) > 1 else 0]
                if action.what == "end":
                    break
                self._apply(action)
                if self._monitor.violation:
                    return self._monitor.violation
            self._finish()
        finally:
            for actor in (*self._actors, self._probe):
                actor.kill()
        return self._monitor.violation

    def outcomes(self) -> str:
        """What each actor came to."""
        return ", ".join(f"{actor.name}: {actor.outcome or 'gone'}" for actor in self._actors)

    # Which decisions there are.

    def _options(self) -> list[Action]:
        last = self._last
        order = (*self._actors[last:], *self._actors[:last])
        active = [actor for actor in order if actor.doing is not None]
        landings = [Action("land", number) for number in range(len(self._flights))]
        if not active:
            return [Action("end", 0), *landings] if landings else []
        options: list[Action] = []
        faults = self._scenario.faults if self._faults else ()
        held = self._actors[last].doing is not None and (
            self._preemptions == 0 or self._world.noise >= self._scenario.most_noise
        )
        for actor in active:
            if held and actor.index != last:
                continue
            options.append(Action("step", actor.index))
            assert actor.doing is not None, "it is active"
            operation = actor.doing.operation
            for fault in faults:
                if operation not in _FAULTS[fault] or not self._scenario.hits(operation):
                    continue
                if fault is Fault.STALE:
                    for back in range(1, 1 + self._staleness()):
                        options.append(Action("step", actor.index, fault, back))
                else:
                    options.append(Action("step", actor.index, fault))
        if self._jumps:
            options += [Action("jump", 0, None, seconds) for seconds in self._scenario.jumps]
        return options + landings

    def _staleness(self) -> int:
        """How many changes back a read may see."""
        world, scenario = self._world, self._scenario
        recent = world.past[-scenario.stale_depth :] if scenario.stale_depth else []
        return sum(world.now - until <= scenario.max_stale for until, _ in recent)

    def _ground(self) -> int:
        world = self._world
        return hash(
            (
                world.ground(),
                tuple(v.ground for v in world.ever),
                self._monitor.ground(),
                tuple(
                    (
                        actor.observed,
                        actor.doing is None,
                        actor.doing.sendings if actor.doing else 0,
                        max(0.0, actor.machine.ready - world.now),
                        actor.machine.frozen,
                    )
                    for actor in self._actors
                ),
                tuple(
                    (flight.writer, flight.call.operation, flight.call.issued)
                    for flight in self._flights
                ),
                self._faults,
                self._jumps,
                None if self._preemptions is None else (self._preemptions, self._last),
                tuple(until for until, _ in world.past) if self._scenario.stale_depth else None,
            )
        )

    # What a decision does.

    def _apply(self, action: Action) -> None:
        if action.fault is not None:
            self._faults -= 1
        if action.what == "jump":
            self._note(str(action))
            self._jumps -= 1
            self._world.now += action.amount
            if self._scenario.freezes:
                for actor in self._actors:
                    actor.machine.frozen += action.amount
        elif action.what == "land":
            self._land(self._flights.pop(action.actor))
        else:
            self._move(self._actors[action.actor], action)

    def _move(self, actor: Actor, action: Action) -> None:
        world, last = self._world, self._last
        if actor.index != last and self._actors[last].doing is not None and self._preemptions:
            self._preemptions -= 1
        self._last = actor.index
        world.now = max(world.now, actor.machine.ready)
        call, fault = actor.doing, action.fault
        assert call is not None, "it is active"
        if call.operation == BEGIN:
            self._note(f"{actor.name} begins")
            self._see(actor, 0)
            actor.begin()
        elif fault is Fault.CRASH or (actor.limit is not None and world.now >= actor.limit):
            self._note(f"{actor.name} crashes before {told(call)}")
            self._crash(actor)
        elif call.operation == WORK:
            self._end_work(actor, fault)
        elif call.operation == SLEEP:
            self._note(f"{actor.name} wakes")
            self._see(actor, 0)
            actor.resume(None)
        elif self._lost_on_the_way(actor, call, fault):
            pass
        else:
            self._answer(actor, call, fault, int(action.amount))

    def _end_work(self, actor: Actor, fault: Fault | None) -> None:
        verdicts = {Fault.WORK_FAILS: WorkFailed, Fault.WORK_FAILS_FOR_GOOD: FailedForGood}
        self._note(f"{actor.name} ends its work" + (f": {fault.value}" if fault else ""))
        self._see(actor, fault)
        actor.resume(verdicts[fault]() if fault else None)

    def _lost_on_the_way(self, actor: Actor, call: Call, fault: Fault | None) -> bool:
        """Whether the call does not reach the store, or not now."""
        world = self._world
        error: Exception
        if fault is Fault.THROTTLED:
            error = refusal(world.now, call.operation, "ThrottlingException")
        elif fault is Fault.BUSY:
            error = refusal(world.now, call.operation, "TooManyUpdates")
        elif fault is Fault.DELAYED:
            sent = Call(call.operation, call.request, call.issued)
            self._flights.append(_Flight(sent, actor.index))
            error = ReadTimeoutError(endpoint_url=_URL)
        elif _is_late_delete(call, world.now):
            error = ConnectTimeoutError(endpoint_url=_URL)
        else:
            return False
        why = fault.value if fault else "too late to be sent"
        self._note(f"{actor.name}: {told(call)}: {why}")
        self._see(actor, why)
        actor.throw(error)
        return True

    def _answer(self, actor: Actor, call: Call, fault: Fault | None, back: int) -> None:
        stale = self._world.past[-back][1] if fault is Fault.STALE else None
        line = f"{actor.name}: {told(call)}"
        try:
            answer, seen = serve(self._world, self._monitor, call, actor.index, stale)
        except Answer as refused:
            answer, seen = refusal(self._world.now, call.operation, refused.code), refused.code
            self._monitor.history_denied |= stale is not None and seen == "ParameterVersionNotFound"
        self._note(f"{line} -> {seen}" + (f" ({fault.value})" if fault else ""))
        if fault is Fault.CRASH_AFTER:
            self._crash(actor)
        elif fault is Fault.LOST:
            self._see(actor, "lost")
            actor.throw(ConnectionClosedError(endpoint_url=_URL))
        elif fault is Fault.RESENT:
            self._see(actor, "resent")
            actor.resume(AGAIN)
        elif isinstance(answer, Exception):
            self._see(actor, seen)
            actor.throw(answer)
        else:
            self._see(actor, seen)
            actor.resume(answer)

    def _land(self, flight: _Flight) -> None:
        call = flight.call
        line = f"{told(call)}, sent earlier by {self._actors[flight.writer].name}, lands"
        if _is_late_delete(call, self._world.now):
            return
        try:
            _, seen = serve(self._world, self._monitor, call, flight.writer)
        except Answer as refused:
            seen = refused.code
        self._note(f"{line} -> {seen}")

    def _crash(self, actor: Actor) -> None:
        self._monitor.crashed(actor.index)
        self._see(actor, "crash")
        actor.kill()

    def _see(self, actor: Actor, what: object) -> None:
        actor.observed = hash((actor.observed, self._world.now, what))

    def _note(self, line: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._world.now % 1000:8.3f}  {line}")

    # What is left behind.

    def _finish(self) -> None:
        world, probe = self._world, self._probe
        self._monitor.ended(somebody_must_run=self._scenario.somebody_must_run)
        world.now += self._scenario.enough_time
        self._note("-- long after --")
        probe.begin()
        while probe.doing is not None and not self._monitor.violation:
            world.now = max(world.now, probe.machine.ready)
            if probe.doing.operation == WORK:
                probe.resume(None)
            else:
                self._answer(probe, probe.doing, None, 0)
        self._monitor.probed(probe.outcome)


def _is_late_delete(call: Call, now: float) -> bool:
    return call.operation == "DeleteParameters" and now > call.issued + DELETE_IN_FLIGHT
