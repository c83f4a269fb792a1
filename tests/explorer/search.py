"""Every schedule of a scenario, depth first, or random ones by seed."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from .actors import KINDS, Deliverer
from .machines import Actor
from .properties import Violation
from .scenarios import Scenario
from .scheduler import Action, Pruned, Schedule


@dataclass(slots=True)
class Found:
    """A broken promise and the schedule that breaks it."""

    scenario: Scenario
    choices: list[int]
    violation: Violation
    seed: int | None = None

    def __str__(self) -> str:
        """The schedule as a readable trace."""
        lines, outcomes = replay(self.scenario, self.choices)
        origin = "" if self.seed is None else f", seed {self.seed}"
        return "\n".join(
            [
                f"{self.scenario.name}{origin}: {self.violation}",
                *lines,
                outcomes,
                f"choices: {self.choices}",
            ]
        )


@dataclass(slots=True)
class Tally:
    """How many schedules were run to their end, and cut short because their end was known.

    `states` counts distinct states, or distinct random schedules; `seconds` is CPU time; `outcomes`
    counts what the actors came to; `taken` is the same number for the same random schedules in the
    same order.
    """

    scenario: str
    schedules: int = 0
    pruned: int = 0
    states: int = 0
    complete: bool = False
    seconds: float = 0.0
    found: list[Found] = field(default_factory=list[Found])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    taken: int = 0

    def figures(self) -> str:
        """The counts in words."""
        whole = "all" if self.complete else "some"
        return (
            f"{self.schedules:,} schedules ({whole}), {self.states:,} distinct, "
            f"{len(self.found)} violations, {self.seconds:.1f} s"
        )

    def __str__(self) -> str:
        return f"{self.scenario}: {self.figures()}"


class Explorer:
    """Runs schedules of one scenario; the actors are made once."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._actors: list[Actor] = [
            KINDS[kind](index, scenario.rules) for index, kind in enumerate(scenario.actors)
        ]
        self._probe = Deliverer(len(self._actors), scenario.rules)

    def schedule(self, choose: Callable[[Sequence[Action], Callable[[], int]], int]) -> Schedule:
        """A schedule whose decisions `choose` takes."""
        return Schedule(self.scenario, self._actors, self._probe, choose)


def replay(scenario: Scenario, choices: Sequence[int]) -> tuple[list[str], str]:
    """The trace of one schedule and what its actors came to."""
    left = list(choices)
    schedule = Explorer(scenario).schedule(lambda options, ground: left.pop(0) if left else 0)
    schedule.trace = []
    with quiet():
        schedule.run()
    return schedule.trace, schedule.outcomes()


def exhaust(
    scenario: Scenario, *, most: int | None = None, seconds: float | None = None, stop: bool = True
) -> Tally:
    """Run every schedule, depth first; a state that was met before is not explored again.

    Args:
        scenario: the space to search.
        most: schedules after which to stop.
        seconds: CPU time after which to stop.
        stop: stop at the first violation.
    """
    explorer, tally = Explorer(scenario), Tally(scenario.name)
    seen: set[int] = set()
    # The path to the schedule at hand: how many options each decision had, and which was taken.
    widths: list[int] = []
    taken: list[int] = []
    depth = 0

    def choose(options: Sequence[Action], ground: Callable[[], int]) -> int:
        nonlocal depth
        if depth < len(taken):
            depth += 1
            return taken[depth - 1]
        state = ground()
        if state in seen:
            raise Pruned
        seen.add(state)
        widths.append(len(options))
        taken.append(0)
        depth += 1
        return 0

    began = time.process_time()
    with quiet():
        while True:
            depth = 0
            schedule = explorer.schedule(choose)
            try:
                violation = schedule.run()
            except Pruned:
                tally.pruned += 1
            else:
                tally.schedules += 1
                tally.outcomes[schedule.outcomes()] += 1
                if violation is not None:
                    tally.found.append(Found(scenario, taken[:depth], violation))
                    if stop:
                        break
            while taken and taken[-1] + 1 == widths[-1]:
                taken.pop()
                widths.pop()
            if not taken:
                tally.complete = True
                break
            taken[-1] += 1
            if most is not None and tally.schedules >= most:
                break
            if seconds is not None and time.process_time() - began > seconds:
                break
    tally.states = len(seen)
    tally.seconds = time.process_time() - began
    return tally


def wander(scenario: Scenario, *, walks: int, seed: int = 0, seconds: float | None = None) -> Tally:
    """Run random schedules; walk number n of a seed is the same wherever it is run."""
    explorer, tally = Explorer(scenario), Tally(scenario.name)
    distinct: set[int] = set()
    began = time.process_time()
    with quiet():
        for number in range(walks):
            chance = random.Random(f"{seed}/{number}")
            taken: list[int] = []

            def choose(
                options: Sequence[Action],
                ground: Callable[[], int],
                chance: random.Random = chance,
                taken: list[int] = taken,
            ) -> int:
                plain = [at for at, option in enumerate(options) if _is_plain(option)]
                pick = chance.choice(plain) if plain and chance.random() < 0.7 else None
                taken.append(chance.randrange(len(options)) if pick is None else pick)
                return taken[-1]

            schedule = explorer.schedule(choose)
            violation = schedule.run()
            tally.schedules += 1
            tally.outcomes[schedule.outcomes()] += 1
            distinct.add(hash(tuple(taken)))
            tally.taken = hash((tally.taken, *taken))
            if violation is not None:
                tally.found.append(Found(scenario, taken, violation, seed))
                break
            if seconds is not None and time.process_time() - began > seconds:
                break
    tally.states = len(distinct)
    tally.seconds = time.process_time() - began
    return tally


def _is_plain(action: Action) -> bool:
    return action.what == "step" and action.fault is None


@contextmanager
def quiet() -> Iterator[None]:
    """Without the package's log lines: thousands of broken deliveries are meant to happen."""
    log = logging.getLogger("idemguard")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
