"""No schedule breaks a promise, and each guard is there for a reason. `make prove` searches for longer."""

from __future__ import annotations

from functools import cache

import pytest

from tests.explorer.mutants import MUTANTS
from tests.explorer.mutation import Mutant
from tests.explorer.scenarios import SPACES, WILDS, Scenario
from tests.explorer.search import Tally, exhaust, replay, wander

#: Schedules of one space, and random ones of one wild scenario.
_MOST = 1_000
_WALKS = 300


@cache
def _searched(scenario: Scenario, most: int | None) -> Tally:
    return exhaust(scenario, most=most)


@pytest.mark.parametrize("scenario", SPACES, ids=str)
def test_no_schedule_breaks_a_promise(scenario: Scenario) -> None:
    tally = _searched(scenario, _MOST)
    print(tally)
    assert not tally.found, str(tally.found[0])
    assert tally.complete or tally.schedules == _MOST


@pytest.mark.parametrize("scenario", WILDS, ids=str)
def test_no_random_schedule_breaks_a_promise(scenario: Scenario) -> None:
    tally = wander(scenario, walks=_WALKS)
    print(tally)
    assert not tally.found, str(tally.found[0])
    assert tally.schedules == _WALKS


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_guard_taken_out_is_found_and_with_it_the_whole_space_is_clean(mutant: Mutant) -> None:
    clean = _searched(mutant.scenario, None)
    assert not clean.found, str(clean.found[0])
    assert clean.complete
    with mutant.alive():
        tally = exhaust(mutant.scenario)
        assert tally.found, f"{tally}: not found"
        found = tally.found[0]
        assert found.violation.broken in mutant.breaks, str(found)
        print(f"{mutant.name}: found in schedule {tally.schedules}\n{found}")


def test_a_schedule_can_be_run_again() -> None:
    mutant = MUTANTS[0]
    with mutant.alive():
        found = exhaust(mutant.scenario).found[0]
        first, second = (replay(found.scenario, found.choices) for _ in range(2))
    # Tokens are random, and nothing else is.
    assert len(first[0]) == len(second[0]) > 1
    assert first[1] == second[1]
    assert found.violation.broken.value in str(found)


def test_a_seed_gives_the_same_walks() -> None:
    scenario = WILDS[0]
    one, same, other = (wander(scenario, walks=20, seed=seed) for seed in (1, 1, 2))
    assert one.taken == same.taken
    assert one.taken != other.taken
