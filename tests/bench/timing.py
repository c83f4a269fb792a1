"""How things are timed: CPU seconds, the peer and ours in turn, medians of the ratios."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the report: what was compared, both figures, their ratio and what is aimed at."""

    what: str
    ours: str
    peer: str
    ratio: float | None
    target: str


def cpu_per_call(call: Callable[[int], object], first: int, calls: int) -> float:
    """CPU seconds that one of `calls` calls takes; each is told its number, from `first` on."""
    before = time.process_time()
    for number in range(first, first + calls):
        call(number)
    return (time.process_time() - before) / calls


def compare(
    what: str,
    ours: Callable[[int], object],
    peer: Callable[[int], object],
    *,
    target: str,
    calls: int = 300,
    rounds: int = 7,
) -> Row:
    """Both in turn, several times; the machine's drift hits both alike."""
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds + 1):
        first = turn * calls
        pair = (cpu_per_call(ours, first, calls), cpu_per_call(peer, first, calls))
        if turn:  # the first one warms up
            pairs.append(pair)
    ratio = statistics.median(a / b for a, b in pairs)
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(what, f"{mine * 1e6:.0f} us", f"{other * 1e6:.0f} us", ratio, target)


def compare_processes(what: str, ours: str, peer: str, *, target: str, rounds: int = 9) -> Row:
    """Two programs that print a number of milliseconds, each in fresh processes, in turn."""
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds + 1):
        pair = (_printed(ours), _printed(peer))
        if turn:
            pairs.append(pair)
    ratio = statistics.median(a / b for a, b in pairs)
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(what, f"{mine:.1f} ms", f"{other:.1f} ms", ratio, target)


def timed(setup: str, measured: str) -> str:
    """A program that prints the CPU milliseconds which `measured` takes after `setup`."""
    return (
        f"import time\n{setup}\nbefore = time.process_time()\n{measured}\n"
        "print((time.process_time() - before) * 1000)"
    )


def _printed(program: str) -> float:
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    return float(done.stdout)
