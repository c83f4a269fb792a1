"""Chaos over HTTP: many events, each delivered several times, through a proxy that breaks calls.

The effects are written to files, not to the ledger, and counted from these afterwards.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.prove.chaos_worker import Copy, Plan, work_through
from tests.prove.proof import Proof
from tests.servers import free_port, microburst, ministack, request

#: What the proxy does to a call, and its share of all calls.
FAULTS: Mapping[str, Mapping[str, Any]] = {
    "throttled": {"error": {"code": "ThrottlingException", "status": 400}},
    "HTTP 500": {"error": {"code": "InternalServerError", "status": 500}},
    # Carried out, and the connection closed in place of the answer.
    "answer lost": {"response": {"abort_bytes": 0}},
    # The client gives up after 2 seconds; the call is carried out all the same, and late.
    "slow": {"latency": {"min": 200, "max": 3200}},
    "connection reset": {"reset": True},
}
SHARE = 0.1
_CLIENTS = ("own", "user's")
#: Seconds for which nobody listens where the proxy was.
_OUTAGE = 1.0


@dataclass(slots=True)
class Chaos:
    """What was met, counted from the journals and the proxy.

    Attributes:
        acknowledged: copies that came to an answer.
        deliveries: calls of the handler.
        executions: effects; one a key, if all goes well.
        takeovers: claims won from a holder that died.
        unrecorded: executions whose completion failed for good; only these may be repeated.
        repeats: executions of a key that was executed before.
        faults: broken calls by kind.
    """

    keys: int = 0
    copies: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    executions: int = 0
    failures: int = 0
    deaths: int = 0
    takeovers: int = 0
    refusals: int = 0
    unrecorded: int = 0
    repeats: int = 0
    lost: int = 0
    calls: int = 0
    outages: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])

    @property
    def figures(self) -> dict[str, int | str]:
        """What `make prove` prints."""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.faults.items()))
        return {
            "keys": self.keys,
            "copies": self.copies,
            "deliveries": self.deliveries,
            "executions": self.executions,
            "losses": self.lost,
            "repeats": self.repeats,
            "completions that failed for good": self.unrecorded,
            "failing attempts": self.failures,
            "holders that died": self.deaths,
            "takeovers": self.takeovers,
            "refused for now": self.refusals,
            "calls": self.calls,
            "faults": self.faults.total(),
            "faults by kind": kinds,
            "outages": self.outages,
        }


def rules() -> list[dict[str, Any]]:
    """The proxy's rules. It takes the first that fires, so later ones see fewer calls."""
    each = SHARE / len(FAULTS)
    return [
        {"service": "ssm", "probability": each / (1 - at * each), **fault}
        for at, fault in enumerate(FAULTS.values())
    ]


def prove(seconds: float, seed: int) -> Proof:
    """At least 2,000 keys, and more for as long as there is time."""
    began = time.monotonic()
    proof = Proof("chaos")
    total = Chaos()
    while not total.keys or time.monotonic() - began < seconds / 2:
        _add(total, chaos(2_000, seed + total.keys, outages=3))
    proof.figures, proof.broken = total.figures, total.broken
    proof.seconds = time.monotonic() - began
    return proof


def _add(total: Chaos, more: Chaos) -> None:
    for name in Chaos.__slots__:
        setattr(total, name, getattr(total, name) + getattr(more, name))


def chaos(keys: int, seed: int, *, processes: int = 4, threads: int = 8, outages: int = 1) -> Chaos:
    """Deliver the events of that many keys.

    `seed` decides on copies, deaths and failures; which calls are broken is the proxy's chance.
    """
    with tempfile.TemporaryDirectory(prefix="idemguard-") as folder, ministack() as store:
        plans = _plans(keys, seed, processes, threads, Path(folder))
        result = Chaos(keys=keys, copies=sum(len(plan.copies) for plan in plans), outages=outages)
        with Proxy(store) as proxy:
            _run([replace(plan, url=proxy.url) for plan in plans], proxy, outages)
            proxy.count(result)
        judge(result, [line for plan in plans for line in _lines(plan.journal)])
    return result


def _plans(keys: int, seed: int, processes: int, threads: int, folder: Path) -> list[Plan]:
    chance = random.Random(seed)
    # About as fast as this machine carries them out, so that copies of one event meet.
    pace = 0.01
    copies: list[list[Copy]] = [[] for _ in range(processes)]
    for key in range(keys):
        failures = chance.choice((0, 0, 0, 0, 1, 2))
        dying = chance.random() < 0.1
        number = chance.randint(2, 5)
        first = chance.randrange(processes)
        for at in range(number):
            dies = dying and at == 0
            wait = chance.uniform(0.0, 5.0) if chance.random() < 0.3 else 0.0
            # A holder that is to die must be the first one.
            wait = 0.0 if dies else wait + 0.3 * dying
            copies[(first + at) % processes].append(
                Copy(
                    key=key,
                    number=at,
                    due=key * pace + wait,
                    dies=dies,
                    failures=failures,
                    waits=chance.random() < 0.3,
                )
            )
    return [
        Plan(
            url="",
            client=_CLIENTS[at % len(_CLIENTS)],
            copies=tuple(share),
            journal=folder / f"{at}.jsonl",
            threads=threads,
            patience=keys * pace * 20 + 240.0,
        )
        for at, share in enumerate(copies)
    ]


class Proxy:
    """microburst in front of a store; it can go away and come back at the same address."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._port = free_port()
        self._stack = ExitStack()
        self._calls = 0
        self._faults: Counter[str] = Counter()

    def __enter__(self) -> Proxy:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self.url = self._stack.enter_context(microburst(self._store, rules(), port=self._port))

    def outage(self) -> None:
        """Nobody listens for a while; calls on the way break off."""
        self._read()
        self._stack.close()
        time.sleep(_OUTAGE)
        self._start()

    def count(self, result: Chaos) -> None:
        """Add what went through the proxy, and what it broke."""
        self._read()
        result.calls, result.faults = self._calls, self._faults

    def _read(self) -> None:
        stats = json.loads(request("GET", f"{self.url}/_microburst/stats"))
        told = json.loads(request("GET", f"{self.url}/_microburst/rules"))
        names = {rule["id"]: name for rule, name in zip(told, FAULTS, strict=True)}
        self._calls += stats["requests"]["total"]
        for rule in stats["by_rule"]:
            self._faults[names[rule["id"]]] += rule["fired"]


def _run(plans: list[Plan], proxy: Proxy, outages: int) -> None:
    # Not forked: this process has threads and connections.
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work_through, args=(plan,)) for plan in plans]
    for process in processes:
        process.start()
    try:
        # Spread over the time in which most copies are due.
        last = max(copy.due for plan in plans for copy in plan.copies)
        for _ in range(outages):
            processes[0].join(last / (outages + 1) + 1.0)
            proxy.outage()
        for process in processes:
            process.join(plans[0].patience + 120.0)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _lines(journal: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, journal.read_text().splitlines())


def judge(result: Chaos, lines: list[dict[str, Any]]) -> None:
    """Count, and compare with what is promised."""
    by_what: dict[str, list[dict[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: line["at"]):
        by_what.setdefault(line["what"], []).append(line)

    def of(what: str) -> list[dict[str, Any]]:
        return by_what.get(what, [])

    happened = Counter((line["name"], line["digest"]) for line in of("happening"))
    effects = Counter(line["key"] for line in of("effect"))
    digests = {line["key"]: line["digest"] for line in of("begun")}
    unrecorded = {key: happened["COMPLETE_FAILED", digest] for key, digest in digests.items()}
    result.acknowledged = len({(line["key"], line["copy"]) for line in of("acknowledged")})
    result.deliveries = len(of("delivered"))
    result.executions = effects.total()
    result.failures = len(of("failed"))
    result.deaths = len(of("died"))
    result.takeovers = sum(n for (name, _), n in happened.items() if name == "TAKEN_OVER")
    result.refusals = len(of("refused"))
    result.unrecorded = sum(unrecorded.values())
    result.lost = sum(effects[key] == 0 for key in range(result.keys))
    result.repeats = sum(count - 1 for count in effects.values())

    if result.lost:
        result.broken.append(f"{result.lost} keys have no effect")
    if missing := result.copies - result.acknowledged:
        result.broken.append(f"{missing} copies were never acknowledged")
    for key, count in effects.items():
        # Work that is done and could not be recorded may be done again, once for each such time.
        if count > 1 + unrecorded[key]:
            result.broken.append(f"key {key}: {count} effects, {unrecorded[key]} not recorded")
    receipts: dict[int, set[str]] = {}
    for line in of("acknowledged"):
        receipts.setdefault(line["key"], set()).add(line["answer"]["receipt"])
    for key, given in receipts.items():
        if len(given) > 1 + unrecorded[key]:
            result.broken.append(f"key {key}: its copies got {len(given)} different answers")
    result.broken += _side_by_side(of("begun"), of("ended"))
    result.broken += [f"key {line['key']}: {line['error']}" for line in of("unexpected")]
    if lost := sum(n for (name, _), n in happened.items() if name == "LEASE_LOST"):
        result.broken.append(f"{lost} leases were lost to others in mid-work")


def _side_by_side(begun: list[dict[str, Any]], ended: list[dict[str, Any]]) -> Iterator[str]:
    """Runs of one key that overlap, and fences that do not rise from run to run."""
    ends = {line["run"]: line["at"] for line in ended}
    last: dict[int, dict[str, Any]] = {}
    for line in begun:
        before = last.get(line["key"])
        if before is not None:
            if ends[before["run"]] > line["at"]:
                yield f"key {line['key']}: two holders at once"
            if line["fence"] <= before["fence"]:
                yield f"key {line['key']}: its fence did not rise"
        last[line["key"]] = line
