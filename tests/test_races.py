"""However many deliveries of one event arrive at one moment, the work runs once, in every round."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from idemguard.ledger import Ledger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing.ssm_server import StrictSSMServer
from idemguard.testing.strict_ssm import StrictSSM
from tests.racing import (
    IN_PROCESS,
    ROUNDS,
    Race,
    RaceProcesses,
    Tally,
    race_threads,
    racing_processes,
    ssm_at,
)

THREADS = 32
PROCESSES = 8


@pytest.fixture(scope="module")
def race_processes() -> Iterator[RaceProcesses]:
    with racing_processes(PROCESSES) as race:
        yield race


@pytest.fixture(scope="module")
def strict_url() -> Iterator[str]:
    with StrictSSMServer() as server:
        yield server.url


@pytest.fixture(params=["strict fake", "ministack"])
def shared_ledger(request: pytest.FixtureRequest) -> Ledger:
    """One ledger for all threads of this process."""
    if request.param == "ministack":
        return ssm_at(request.getfixturevalue("ministack_url"))
    store = StrictSSM()
    # The way to the store, on which the others overtake: without it threads hardly ever collide.
    store.before_call = lambda operation, request: time.sleep(random.uniform(0, 0.002))
    return SSMLedger(store, prefix="/races", clock=IN_PROCESS)


@pytest.fixture(params=["strict fake", "ministack"])
def store_url(request: pytest.FixtureRequest) -> str:
    """A store for several processes."""
    name = "ministack_url" if request.param == "ministack" else "strict_url"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def fresh() -> Race:
    """Keys that nobody has claimed."""
    return Race(secrets.token_hex(8))


def stale(race: Race, ledger: Ledger) -> Race:
    """The same keys, each claimed by a holder that died and whose lease is over."""
    race.abandon_all(ledger)
    # A store tells the time in whole seconds.
    time.sleep(1.1)
    return race


def one_effect_a_round(tally: Tally, racers: int) -> None:
    assert Counter(tally.effects) == dict.fromkeys(range(ROUNDS), 1)
    assert len(tally.endings) == racers * ROUNDS
    assert set(tally.endings) <= {"answered", "in flight"}
    assert Counter(tally.endings)["answered"] >= ROUNDS


def test_threads_race_for_a_first_claim(fresh: Race, shared_ledger: Ledger) -> None:
    one_effect_a_round(race_threads(fresh, shared_ledger, THREADS), THREADS)


def test_threads_race_to_take_over_from_a_dead_holder(fresh: Race, shared_ledger: Ledger) -> None:
    race = stale(fresh, shared_ledger)
    one_effect_a_round(race_threads(race, shared_ledger, THREADS), THREADS)


def test_processes_race_for_a_first_claim(
    fresh: Race, store_url: str, race_processes: RaceProcesses
) -> None:
    one_effect_a_round(race_processes(fresh, store_url), PROCESSES)


def test_processes_race_to_take_over_from_a_dead_holder(
    fresh: Race, store_url: str, race_processes: RaceProcesses
) -> None:
    race = stale(fresh, ssm_at(store_url))
    one_effect_a_round(race_processes(race, store_url), PROCESSES)
