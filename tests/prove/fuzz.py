"""The property tests of the suite, with many more examples than `make test` draws."""

from __future__ import annotations

import re
import subprocess
import sys
import time

from tests.prove.proof import Proof
from tests.rie import ROOT

_COUNTS = re.compile(r"(\d+) passing, (\d+) failing, and (\d+) invalid|(\d+) passing examples")


def prove(seconds: float, seed: int) -> Proof:
    """Run them under the profile "prove" of `tests/conftest.py`, which takes some minutes."""
    del seconds  # The number of examples is the profile's.
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-m", "hypothesis", "tests"]
    command += ["--hypothesis-profile", "prove", "--hypothesis-seed", str(seed)]
    command += ["--hypothesis-show-statistics", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    examples = [int(one or all_) for one, _, _, all_ in _COUNTS.findall(run.stdout)]
    passed = re.search(r"(\d+) passed", run.stdout)
    failed = re.findall(r"^(?:FAILED|ERROR) (.+)$", run.stdout, re.M)
    if run.returncode and not failed:
        failed = [run.stdout[-2000:] + run.stderr[-2000:]]
    return Proof(
        "fuzz",
        {
            "properties": int(passed[1]) if passed else 0,
            "examples": sum(examples),
            "failing": len(failed),
            "seed": seed,
        },
        failed,
        time.monotonic() - began,
    )
