"""Many deliveries of one event at one moment, by threads or by processes, round after round."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

from idemguard import Claim, Guard, InFlightError
from idemguard.clock import Clock
from idemguard.ledger import Ledger
from idemguard.ledgers.ssm import SSMLedger

ROUNDS = 200
# Seconds after which a racer that waits for the others gives up.
_STUCK = 60.0


class HastyClock(Clock):
    """The machine's clock, but takers wait for a few milliseconds before a takeover, not up to 1 s.

    Two hundred rounds end sooner so, and collide more often. Over HTTP the longest wait is longer
    than in process: with none, each of 32 takers would walk past the entries of all the others.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest

    def jitter(self, upto: float) -> float:
        return super().jitter(min(upto, self._longest))


IN_PROCESS = HastyClock(0.005)
OVER_HTTP = HastyClock(0.05)


class _Barrier(Protocol):
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass
class Tally:
    """What came of a race: the round of each effect, and how each delivery ended."""

    effects: list[int] = field(default_factory=list[int])
    endings: list[str] = field(default_factory=list[str])

    def add(self, other: Tally) -> None:
        self.effects += other.effects
        self.endings += other.endings


@dataclass(frozen=True)
class Race:
    """A namespace whose keys, one a round, are raced for. No cache: the ledger decides alone."""

    namespace: str

    def guard(self, ledger: Ledger, **options: Any) -> Guard:
        return Guard(
            ledger=ledger,
            namespace=self.namespace,
            operation="work",
            local_cache=False,
            **options,
        )

    def abandon_all(self, ledger: Ledger) -> None:
        """Claim every key with a lease that is over at once, and never come back."""
        guard = self.guard(ledger, lease=0.001)
        for number in range(ROUNDS):
            assert isinstance(guard.claim(number), Claim)

    def run(self, ledger: Ledger, barrier: _Barrier) -> Tally:
        """One racer: a delivery in every round, at the same moment as all the others."""
        tally = Tally()

        @self.guard(ledger).idempotent(key="round")
        def handler(event: dict[str, int]) -> list[int]:
            tally.effects.append(event["round"])
            return [event["round"]]

        for number in range(ROUNDS):
            barrier.wait(_STUCK)
            try:
                answer = handler({"round": number})
            except InFlightError:
                tally.endings.append("in flight")
            else:
                tally.endings.append("answered" if answer == [number] else f"answered {answer!r}")
        return tally


def race_threads(race: Race, ledger: Ledger, racers: int) -> Tally:
    """Race with threads that share one ledger, as in one sandbox."""
    barrier = threading.Barrier(racers)
    total = Tally()
    with ThreadPoolExecutor(racers) as pool:
        for tally in pool.map(lambda _: race.run(ledger, barrier), range(racers)):
            total.add(tally)
    return total


RaceProcesses = Callable[[Race, str], Tally]


@contextmanager
def racing_processes(racers: int) -> Iterator[RaceProcesses]:
    """Processes that stay for any number of races: each with a ledger and a client of its own."""
    # Not forked: this process has threads, and a child would have copies of its connections.
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(racers)
    ends: list[Connection] = []
    processes: list[Any] = []
    for _ in range(racers):
        here, there = context.Pipe()
        process = context.Process(target=_racer, args=(there, barrier), daemon=True)
        process.start()
        there.close()
        ends.append(here)
        processes.append(process)

    def race_processes(race: Race, endpoint_url: str) -> Tally:
        for end in ends:
            end.send((race, endpoint_url))
        total = Tally()
        for end in ends:
            total.add(end.recv())
        return total

    try:
        yield race_processes
    finally:
        _end(ends, processes)


def _end(ends: Sequence[Connection], processes: Sequence[Any]) -> None:
    for end in ends:
        end.close()
    for process in processes:
        process.join(_STUCK)
        process.kill()


def _racer(orders: Connection, barrier: _Barrier) -> None:
    ledgers: dict[str, Ledger] = {}
    while True:
        try:
            race, url = orders.recv()
        except EOFError:
            return
        if url not in ledgers:
            ledgers[url] = ssm_at(url)
        orders.send(race.run(ledgers[url], barrier))


def ssm_at(endpoint_url: str) -> Ledger:
    """A ledger whose own client goes to `endpoint_url`."""
    return SSMLedger(prefix="/races", endpoint_url=endpoint_url, clock=OVER_HTTP)
