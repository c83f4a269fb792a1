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
