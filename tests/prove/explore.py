"""The schedule explorer for as long as there is time: whole spaces first, then random schedules."""

from __future__ import annotations

import sys
import time

from tests.explorer.mutants import MUTANTS
from tests.explorer.mutation import Mutant
from tests.explorer.scenarios import SPACES, WILDS
from tests.explorer.search import Tally, exhaust, wander

from .proof import Proof

# More than there is time for.
_WALKS = 1_000_000_000


def main(seconds: float, seed: int | None = None) -> Proof:
    """Search for about that many seconds, the random schedules from `seed` on (the time, by default)."""
    began = time.monotonic()
    seed = int(time.time()) if seed is None else seed
    unnoticed = [mutant.name for mutant in MUTANTS if not _is_noticed(mutant)]
    tallies: list[Tally] = []
    for left, scenario in zip(range(len(SPACES), 0, -1), SPACES, strict=True):
        # Half of the time; what one space does not need is left to the others.
        share = (seconds / 2 - (time.monotonic() - began)) / left
        tallies.append(exhaust(scenario, seconds=max(1.0, share)))
    for left, scenario in zip(range(len(WILDS), 0, -1), WILDS, strict=True):
        share = (seconds - (time.monotonic() - began)) / left
        tallies.append(wander(scenario, walks=_WALKS, seed=seed, seconds=max(1.0, share)))
    found = [found for tally in tallies for found in tally.found]
    return Proof(
        "explore",
        {
            "schedules": sum(tally.schedules for tally in tallies),
            "distinct": sum(tally.states for tally in tallies),
            "violations": len(found),
            "guards taken out": len(MUTANTS),
            "and found missing": len(MUTANTS) - len(unnoticed),
            "seed": seed,
            **{tally.scenario: tally.figures() for tally in tallies},
        },
        [*map(str, found), *(f"not found: {name}" for name in unnoticed)],
        time.monotonic() - began,
    )


def _is_noticed(mutant: Mutant) -> bool:
    """Whether the explorer finds what happens without this guard."""
    with mutant.alive():
        tally = exhaust(mutant.scenario)
    return bool(tally.found) and tally.found[0].violation.broken in mutant.breaks


if __name__ == "__main__":
    proof = main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
    print(*(f"{name}: {figure}" for name, figure in proof.figures.items()), *proof.broken, sep="\n")
    sys.exit(not proof.ok)
