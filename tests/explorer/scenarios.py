"""Who meets what: each scenario is a bounded space of schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from idemguard.lifecycle import LONGEST_LEASE, SWEEP_LEASE

from .machines import Rules
from .priors import (
    completed,
    expired,
    expired_and_noisy,
    left_barred,
    live_claim,
    noisy,
    nothing,
    released,
    stale_claim,
)
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
        only: the one operation that faults hit; any, if it is empty.
        jumps, jump_budget: by how many seconds time may leap, and how often in one schedule.
        freezes: the monotonic clocks stand still while time leaps, as in a frozen sandbox.
        stale_depth, max_stale: how many changes and seconds back a stale read may see; no longer
            than a deleted name stays free, so that a read cannot show the life before.
        history: versions the store keeps.
        reuse_wait: seconds after a delete during which the store refuses a create.
        preemptions: how often an actor that could go on is interrupted; None for no bound.
        most_noise: versions that do not count after which nobody is interrupted any more: two
            writers could otherwise get into each other's way over and over.
        somebody_must_run: the key is free for the taking.
    """

    name: str
    actors: tuple[str, ...] = ("deliver", "deliver")
    prior: Prior = nothing
    rules: Rules = field(default_factory=Rules)
    faults: tuple[Fault, ...] = ()
    fault_budget: int = 0
    only: str = ""
    jumps: tuple[float, ...] = ()
    jump_budget: int = 0
    freezes: bool = False
    stale_depth: int = 0
    max_stale: float = 29.0
    history: int = 100
    reuse_wait: float = 30.0
    preemptions: int | None = None
    most_noise: int = 2
    somebody_must_run: bool = True

    def __str__(self) -> str:
        return self.name

    def prepare(self, world: World) -> None:
        """Lay down what is found at the start."""
        self.prior(world, self.rules)

    def hits(self, operation: str) -> bool:
        """Whether faults hit this operation."""
        return self.only in ("", operation)

    @property
    def enough_time(self) -> float:
        """Seconds after which no claim of anybody can keep the key."""
        longest = max(self.rules.lease, SWEEP_LEASE)
        return (max(longest, LONGEST_LEASE) if self.history < 100 else longest) + 2


_ALMOST_ALL = tuple(fault for fault in Fault if fault is not Fault.STALE)
_JUMPS = (31.0, 61.0)

#: What is searched whole, or for as long as there is time.
SPACES = (
    Scenario("two deliveries, one fault", faults=_ALMOST_ALL, fault_budget=1),
    Scenario(
        "two deliveries, the holder died, one fault",
        prior=stale_claim,
        faults=_ALMOST_ALL,
        fault_budget=1,
    ),
    Scenario(
        "two deliveries, released before, one fault",
        prior=released,
        faults=_ALMOST_ALL,
        fault_budget=1,
    ),
    Scenario(
        "two deliveries, stale reads",
        prior=released,
        faults=(Fault.STALE,),
        fault_budget=2,
        stale_depth=2,
        somebody_must_run=False,
    ),
    Scenario(
        "two deliveries, the holder died, stale reads",
        prior=stale_claim,
        faults=(Fault.STALE,),
        fault_budget=2,
        stale_depth=2,
        somebody_must_run=False,
    ),
    Scenario(
        "two redeliveries, the holder died, one fault",
        prior=stale_claim,
        rules=Rules(redelivered=True),
        faults=_ALMOST_ALL,
        fault_budget=1,
    ),
    Scenario("two deliveries, time passes", jumps=_JUMPS, jump_budget=2),
    Scenario(
        "two deliveries, time passes in frozen sandboxes", jumps=_JUMPS, jump_budget=2, freezes=True
    ),
    Scenario(
        "two deliveries, time passes, one fault",
        jumps=(61.0,),
        jump_budget=1,
        faults=_ALMOST_ALL,
        fault_budget=1,
        preemptions=2,
    ),
    Scenario(
        "two deliveries, time passes, one stale read",
        jumps=(61.0,),
        jump_budget=1,
        faults=(Fault.STALE,),
        fault_budget=1,
        stale_depth=3,
        max_stale=90,
        somebody_must_run=False,
    ),
    Scenario(
        "two deliveries with steps, time passes, one fault",
        rules=Rules(steps=True),
        jumps=(61.0,),
        jump_budget=1,
        faults=(*CRASHES, *ANSWERS, Fault.WORK_FAILS),
        fault_budget=1,
        preemptions=2,
    ),
    Scenario(
        "two deliveries under a Lambda timeout",
        rules=Rules(timeout=20.0),
        jumps=(21.0,),
        jump_budget=1,
        faults=_ALMOST_ALL,
        fault_budget=1,
        preemptions=2,
    ),
    Scenario(
        "two deliveries, the second waits, one fault",
        rules=Rules(waits=True),
        faults=_ALMOST_ALL,
        fault_budget=1,
        preemptions=2,
    ),
    Scenario(
        "two deliveries, retention ends",
        prior=completed,
        jumps=(99.0,),
        jump_budget=1,
        faults=_ALMOST_ALL,
        fault_budget=1,
        preemptions=2,
        somebody_must_run=False,
    ),
    Scenario(
        "two deliveries, a sweeper died",
        prior=left_barred,
        faults=_ALMOST_ALL,
        fault_budget=1,
        preemptions=2,
    ),
    Scenario(
        "two deliveries, two versions kept",
        prior=noisy,
        history=2,
        faults=(*CRASHES, *ANSWERS, Fault.DELAYED),
        fault_budget=1,
        jumps=(61.0,),
        jump_budget=1,
        preemptions=2,
        somebody_must_run=False,
    ),
    Scenario(
        "three deliveries, the holder died",
        actors=("deliver",) * 3,
        prior=stale_claim,
        preemptions=3,
    ),
    Scenario(
        "three deliveries, the holder died, one fault",
        actors=("deliver",) * 3,
        prior=stale_claim,
        faults=_ALMOST_ALL,
        fault_budget=1,
        preemptions=1,
    ),
    Scenario(
        "three deliveries, time passes",
        actors=("deliver",) * 3,
        jumps=(61.0,),
        jump_budget=1,
        faults=(Fault.WORK_FAILS,),
        fault_budget=1,
        preemptions=2,
    ),
    Scenario(
        "a sweeper and two deliveries, expired, one fault",
        actors=("sweep", "deliver", "deliver"),
        prior=expired,
        faults=_ALMOST_ALL,
        fault_budget=1,
        preemptions=2,
        reuse_wait=0.0,
    ),
    Scenario(
        "a sweeper and two deliveries, expired, time passes",
        actors=("sweep", "deliver", "deliver"),
        prior=expired,
        jumps=(31.0, 121.0),
        jump_budget=2,
        preemptions=2,
        reuse_wait=0.0,
    ),
    Scenario(
        "a sweeper and two deliveries, expired, stale reads",
        actors=("sweep", "deliver", "deliver"),
        prior=expired,
        faults=(Fault.STALE,),
        fault_budget=2,
        stale_depth=2,
        jumps=(31.0,),
        jump_budget=1,
        preemptions=2,
    ),
    Scenario(
        "two sweepers and a delivery, expired, one fault",
        actors=("sweep", "sweep", "deliver"),
        prior=expired,
        faults=_ALMOST_ALL,
        fault_budget=1,
        preemptions=2,
        reuse_wait=0.0,
    ),
    Scenario(
        "a holder past retention, a sweeper, a delivery, time passes",
        actors=("deliver", "sweep", "deliver"),
        jumps=(161.0, 31.0),
        jump_budget=2,
        preemptions=2,
        reuse_wait=0.0,
    ),
)

_CROWD = ("deliver", "deliver", "deliver", "sweep")
_WILD = Scenario(
    "wild: on a free name",
    actors=_CROWD,
    faults=ALL_FAULTS,
    fault_budget=4,
    jumps=(2.0, 31.0, 61.0, 101.0, 121.0, 161.0, 181.0),
    jump_budget=5,
    stale_depth=4,
    most_noise=12,
    somebody_must_run=False,
)

#: What is walked through at random: more actors, faults and time than can be searched whole.
WILDS = (
    _WILD,
    replace(_WILD, name="wild: the holder died", prior=stale_claim),
    replace(
        _WILD,
        name="wild: expired, the name free at once",
        actors=(*_CROWD, "sweep"),
        prior=expired,
        faults=_ALMOST_ALL,
        reuse_wait=0.0,
    ),
    replace(
        _WILD,
        name="wild: expired with noise",
        actors=(*_CROWD, "sweep"),
        prior=expired_and_noisy,
    ),
    replace(_WILD, name="wild: four versions kept", prior=noisy, history=4),
    replace(_WILD, name="wild: frozen sandboxes", prior=released, freezes=True),
    replace(_WILD, name="wild: steps", prior=stale_claim, rules=Rules(steps=True)),
    replace(
        _WILD, name="wild: under a Lambda timeout", prior=stale_claim, rules=Rules(timeout=30.0)
    ),
    replace(
        _WILD,
        name="wild: redeliveries that wait",
        prior=live_claim,
        rules=Rules(redelivered=True, waits=True),
    ),
)
