"""Who meets what: each scenario is a bounded space of schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from idemguard.lifecycle import LONGEST_LEASE, SWEEP_LEASE
from idemguard.record import Record, State, to_text

from .actors import Rules
from .world import World


class Fault(Enum):
    """What can go wrong with one call, or with the work."""

    CRASH = "crashes before the call arrives"
    CRASH_AFTER = "crashes after the call arrived"
    LOST = "answer lost: connection error"
    RESENT = "answer lost: the SDK sends again"
    DELAYED = "times out and may land later"
    THROTTLED = "throttled"
    BUSY = "TooManyUpdates"
    STALE = "stale read"
    WORK_FAILS = "work fails"
    WORK_FAILS_FOR_GOOD = "work fails for good"


CRASHES = (Fault.CRASH, Fault.CRASH_AFTER)
ANSWERS = (Fault.LOST, Fault.RESENT)
REFUSALS = (Fault.THROTTLED, Fault.BUSY)
FAILURES = (Fault.WORK_FAILS, Fault.WORK_FAILS_FOR_GOOD)
ALL_FAULTS = tuple(Fault)

#: How the parameter is found.
Prior = Callable[[World, Rules], None]


@dataclass(frozen=True)
class Scenario:
    """A bounded space of schedules.

    Attributes:
        actors: kinds of `actors.KINDS`, in the order in which they get their numbers.
        prior: what stands under the name at the start.
        faults, fault_budget: what may go wrong, and how often in one schedule.
        jumps, jump_budget: by how many seconds time may leap, and how often in one schedule.
        freezes: the monotonic clocks stand still while time leaps, as in a frozen sandbox.
        stale_depth, max_stale: how many changes and seconds back a stale read may see.
        history: versions the store keeps.
        reuse_wait: seconds after a delete during which the store refuses a create.
        preemptions: how often an actor that could go on is interrupted; None for no bound.
        most_noise: versions that do not count after which nobody is interrupted any more: two
            writers could otherwise get into each other's way over and over.
        somebody_must_run: the key is free for the taking.
    """

    name: str
    actors: tuple[str, ...] = ("deliver", "deliver")
    prior: Prior = field(default=lambda world, rules: None)
    rules: Rules = Rules()
    faults: tuple[Fault, ...] = ()
    fault_budget: int = 0
    jumps: tuple[float, ...] = ()
    jump_budget: int = 0
    freezes: bool = False
    stale_depth: int = 0
    max_stale: float = 30.0
    history: int = 100
    reuse_wait: float = 30.0
    preemptions: int | None = None
    most_noise: int = 2
    somebody_must_run: bool = True

    def prepare(self, world: World) -> None:
        """Lay down what is found at the start."""
        self.prior(world, self.rules)

    @property
    def enough_time(self) -> float:
        """Seconds after which no claim of anybody can keep the key."""
        longest = max(self.rules.lease, SWEEP_LEASE)
        return (max(longest, LONGEST_LEASE) if self.history < 100 else longest) + 2


def _lay(world: World, record: Record, ago: float, *, prev: int | None = None) -> None:
    """Put a record of somebody gone, written that many seconds before the start."""
    present, world.now = world.now, world.now - ago
    newest = world.kept[-1].number if world.kept else 0
    ticket: dict[str, object] = {"p": newest if prev is None else prev}
    if newest:
        ticket["s"] = round(world.now, 3)
    world.put(to_text(record, **ticket), "idemguard", bool(newest), -1)
    world.now = present


def _gone(rules: Rules, state: State = State.CLAIMED, token: str = "gone") -> Record:
    result = {"by": -1} if state is State.COMPLETED else None
    return Record(
        state, token=token, lease=rules.lease, retention=rules.retention, fence=1, result=result
    )


def stale_claim(world: World, rules: Rules) -> None:
    """A holder died; its lease is over."""
    _lay(world, _gone(rules), rules.lease + 1)


def live_claim(world: World, rules: Rules) -> None:
    """A holder died; its lease is not over yet."""
    _lay(world, _gone(rules), 1)


def released(world: World, rules: Rules) -> None:
    """The work failed and may be tried again."""
    _lay(world, _gone(rules), 3)
    _lay(world, _gone(rules, State.RELEASED), 2)


def completed(world: World, rules: Rules) -> None:
    """The work is done."""
    _lay(world, _gone(rules), 3)
    _lay(world, _gone(rules, State.COMPLETED), 2)


def expired(world: World, rules: Rules) -> None:
    """The work was done longer ago than it is kept for."""
    _lay(world, _gone(rules, State.COMPLETED), rules.retention + 2)


def left_barred(world: World, rules: Rules) -> None:
    """A sweeper died between its bar and its delete, long ago."""
    _lay(world, _gone(rules, State.COMPLETED), 2 * SWEEP_LEASE + rules.retention)
    _lay(world, Record(State.SWEPT, token="sweeper", lease=SWEEP_LEASE), SWEEP_LEASE + 1)


def noisy(world: World, rules: Rules) -> None:
    """A holder died, and somebody who lost wrote after it."""
    _lay(world, _gone(rules), rules.lease + 2)
    _lay(world, _gone(rules, token="loser"), rules.lease + 1, prev=0)


def expired_and_noisy(world: World, rules: Rules) -> None:
    """Done long ago, retried before, and somebody who lost wrote after it."""
    _lay(world, _gone(rules), rules.retention + 4)
    _lay(world, _gone(rules, State.COMPLETED), rules.retention + 3)
    _lay(world, _gone(rules, token="loser"), rules.retention + 2, prev=0)


def buried(world: World, rules: Rules) -> None:
    """Done a moment ago, under so much noise that the history no longer reaches down to it."""
    completed(world, rules)
    for _ in range(world.history):
        _lay(world, _gone(rules, token="loser"), 1, prev=0)


_ALMOST_ALL = tuple(fault for fault in Fault if fault is not Fault.STALE)
_JUMPS = (31.0, 61.0)

#: What is searched whole, or for as long as there is time.
SPACES = (
    Scenario("two deliveries, one fault", faults=_ALMOST_ALL, fault_budget=1),
    Scenario("two deliveries, the holder died, one fault", prior=stale_claim, faults=_ALMOST_ALL, fault_budget=1),
    Scenario("two deliveries, released before, one fault", prior=released, faults=_ALMOST_ALL, fault_budget=1),
    Scenario("two deliveries, stale reads", prior=released, faults=(Fault.STALE,), fault_budget=2, stale_depth=2),
    Scenario("two deliveries, the holder died, stale reads", prior=stale_claim, faults=(Fault.STALE,), fault_budget=2, stale_depth=2),
    Scenario("two redeliveries, the holder died, one fault", prior=stale_claim, rules=Rules(redelivered=True), faults=_ALMOST_ALL, fault_budget=1),
    Scenario("two deliveries, time passes", jumps=_JUMPS, jump_budget=2),
    Scenario("two deliveries, time passes in frozen sandboxes", jumps=_JUMPS, jump_budget=2, freezes=True),
    Scenario("two deliveries, time passes, one fault", jumps=(61.0,), jump_budget=1, faults=_ALMOST_ALL, fault_budget=1, preemptions=2),
    Scenario("two deliveries, time passes, one stale read", jumps=(61.0,), jump_budget=1, faults=(Fault.STALE,), fault_budget=1, stale_depth=3, max_stale=90),
    Scenario("two deliveries with steps, time passes, one fault", rules=Rules(steps=True), jumps=(61.0,), jump_budget=1, faults=(*CRASHES, *ANSWERS, Fault.WORK_FAILS), fault_budget=1, preemptions=2),
    Scenario("two deliveries under a Lambda timeout", rules=Rules(timeout=20.0), jumps=(21.0,), jump_budget=1, faults=_ALMOST_ALL, fault_budget=1, preemptions=2),
    Scenario("two deliveries, the second waits, one fault", rules=Rules(waits=True), faults=_ALMOST_ALL, fault_budget=1, preemptions=2),
    Scenario("two deliveries, retention ends", prior=completed, jumps=(99.0,), jump_budget=1, faults=_ALMOST_ALL, fault_budget=1, preemptions=2, somebody_must_run=False),
    Scenario("two deliveries, a sweeper died", prior=left_barred, faults=_ALMOST_ALL, fault_budget=1, preemptions=2),
    Scenario("two deliveries, two versions kept", prior=noisy, history=2, faults=(*CRASHES, *ANSWERS, Fault.DELAYED), fault_budget=1, jumps=(61.0,), jump_budget=1, preemptions=2, somebody_must_run=False),
    Scenario("three deliveries, the holder died", actors=("deliver",) * 3, prior=stale_claim, preemptions=3),
    Scenario("three deliveries, the holder died, one fault", actors=("deliver",) * 3, prior=stale_claim, faults=_ALMOST_ALL, fault_budget=1, preemptions=1),
    Scenario("three deliveries, time passes", actors=("deliver",) * 3, jumps=(61.0,), jump_budget=1, faults=(Fault.WORK_FAILS,), fault_budget=1, preemptions=2),
    Scenario("a sweeper and two deliveries, expired, one fault", actors=("sweep", "deliver", "deliver"), prior=expired, faults=_ALMOST_ALL, fault_budget=1, preemptions=2, reuse_wait=0.0),
    Scenario("a sweeper and two deliveries, expired, time passes", actors=("sweep", "deliver", "deliver"), prior=expired, jumps=(31.0, 121.0), jump_budget=2, preemptions=2, reuse_wait=0.0),
    Scenario("a sweeper and two deliveries, expired, stale reads", actors=("sweep", "deliver", "deliver"), prior=expired, faults=(Fault.STALE,), fault_budget=2, stale_depth=2, max_stale=59.0, preemptions=2, reuse_wait=0.0),
    Scenario("two sweepers and a delivery, expired, one fault", actors=("sweep", "sweep", "deliver"), prior=expired, faults=_ALMOST_ALL, fault_budget=1, preemptions=2, reuse_wait=0.0),
    Scenario("a holder past retention, a sweeper, a delivery, time passes", actors=("deliver", "sweep", "deliver"), jumps=(161.0, 31.0), jump_budget=2, preemptions=2, reuse_wait=0.0),
)
