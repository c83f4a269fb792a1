"""Threads and processes that deliver one event at one moment, round after round."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from idemguard.ledger import Ledger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing.ssm_server import StrictSSMServer
from idemguard.testing.strict_ssm import StrictSSM
from tests.prove.proof import Proof
from tests.racing import IN_PROCESS, ROUNDS, Race, Tally, race_threads, racing_processes, ssm_at
from tests.servers import ministack

_THREADS = 32
_PROCESSES = 8


def prove(seconds: float, seed: int) -> Proof:
    """Races for a first claim and for a takeover, on two stores, for as long as there is time."""
    del seed  # Who comes first is the machine's chance.
    began = time.monotonic()
    figures: Counter[str] = Counter()
    broken: list[str] = []
    with ExitStack() as stack:
        processes = stack.enter_context(racing_processes(_PROCESSES))
        urls = [stack.enter_context(ministack()), stack.enter_context(StrictSSMServer()).url]

        def among_processes(url: str, stale: bool) -> None:
            tally = _run(ssm_at(url), lambda race: processes(race, url), stale)
            _add(figures, broken, _PROCESSES, tally)

        def among_threads(ledger: Ledger, stale: bool) -> None:
            tally = _run(ledger, lambda race: race_threads(race, ledger, _THREADS), stale)
            _add(figures, broken, _THREADS, tally)

        while not figures or time.monotonic() - began < seconds:
            for stale in (False, True):
                for url in urls:
                    among_processes(url, stale)
                among_threads(SSMLedger(StrictSSM(), prefix="/races", clock=IN_PROCESS), stale)
    return Proof("races", dict(figures), broken, time.monotonic() - began)


def _run(ledger: Ledger, run: Callable[[Race], Tally], stale: bool) -> Tally:
    race = Race(secrets.token_hex(8))
    if stale:
        race.abandon_all(ledger)
        # A store tells the time in whole seconds.
        time.sleep(1.1)
    return run(race)


def _add(figures: Counter[str], broken: list[str], racers: int, tally: Tally) -> None:
    effects = Counter(tally.effects)
    answers = Counter(tally.endings)
    figures["keys"] += ROUNDS
    figures["deliveries"] += len(tally.endings)
    figures["executions"] += effects.total()
    figures["losses"] += ROUNDS - len(effects)
    figures["repeats"] += effects.total() - len(effects)
    figures["refused for now"] += answers["in flight"]
    if effects != dict.fromkeys(range(ROUNDS), 1):
        broken.append(f"{effects.total()} effects in {ROUNDS} rounds")
    if odd := set(answers) - {"answered", "in flight"}:
        broken.append(f"deliveries ended in {', '.join(odd)}")
    if len(tally.endings) != racers * ROUNDS:
        broken.append(f"{racers * ROUNDS - len(tally.endings)} deliveries did not end")
