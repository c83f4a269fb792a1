"""`make prove`: attack the guarantees for as long as you like, and print what came of it.

The exit code is 1 if a promise was broken. `make test` runs a short form of each attack.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from idemguard.testing.text_table import table
from tests.prove import chaos, explore, fuzz, races, sandboxes
from tests.prove.proof import Proof
from tests.servers import DUMMY_AWS


@dataclass(frozen=True)
class Prover:
    """One attack: what it does, its share of the time, and what is called with seconds and a seed."""

    what: str
    share: float
    prove: Callable[[float, int], Proof]


#: By the name that `--only` takes.
PROVERS: Mapping[str, Prover] = {
    "explore": Prover("every interleaving and fault of a few claimers", 0.4, explore.main),
    "chaos": Prover(
        "clients in several processes, a tenth of their calls broken", 0.25, chaos.prove
    ),
    "sandboxes": Prover("real Lambda runtimes that are killed", 0.1, sandboxes.prove),
    "races": Prover("threads and processes at one moment", 0.1, races.prove),
    "fuzz": Prover("properties of keys, results, records and ledgers", 0.15, fuzz.prove),
}


#: The figures of the last table, where a prover has them.
_SUMMARY = (
    *("schedules", "examples", "keys", "deliveries", "faults"),
    *("executions", "repeats", "losses"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the provers in turn; the exit code."""
    given = _parser().parse_args(arguments)
    # Nothing that is set here may reach a real account, or change what is proved.
    for name in list(os.environ):
        if name.startswith(("AWS_", "IDEMGUARD_", "POWERTOOLS_")):
            del os.environ[name]
    os.environ.update(DUMMY_AWS)
    names = given.only or list(PROVERS)
    whole = sum(PROVERS[name].share for name in names)
    print(f"seed {given.seed}, about {given.seconds:,.0f} seconds\n", flush=True)
    proofs: list[Proof] = []
    for name in names:
        prover = PROVERS[name]
        print(f"{name}: {prover.what}", flush=True)
        proof = prover.prove(given.seconds * prover.share / whole, given.seed)
        proofs.append(proof)
        print(report(proof), flush=True)
    print(summary(proofs))
    return 0 if all(proof.ok for proof in proofs) else 1


def report(proof: Proof) -> str:
    """The figures of one prover under each other."""
    figures = {**proof.figures, "seconds": round(proof.seconds)}
    width = max(map(len, figures))
    lines = [f"  {name:{width}}  {_written(figure)}" for name, figure in figures.items()]
    lines += [f"  BROKEN: {text}" for text in proof.broken]
    return "\n".join([*lines, ""])


def summary(proofs: Sequence[Proof]) -> str:
    """One line for each prover."""
    rows = [
        [
            proof.name,
            *(_written(proof.figures.get(name, "")) for name in _SUMMARY),
            str(len(proof.broken)),
            f"{proof.seconds:.0f}",
        ]
        for proof in proofs
    ]
    return table(["attack", *_SUMMARY, "broken promises", "seconds"], rows)


def _written(figure: int | str) -> str:
    return f"{figure:,}" if isinstance(figure, int) else figure


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.prove",
        description="Attack the guarantees.",
        epilog="; ".join(f"{name}: {prover.what}" for name, prover in PROVERS.items()),
    )
    parser.add_argument("--seconds", type=float, default=900.0, help="about how long, in all (900)")
    parser.add_argument(
        "--seed",
        type=int,
        default=int(time.time()),
        help="of all that is drawn here, not by chance",
    )
    parser.add_argument(
        "--only", action="append", choices=list(PROVERS), help="this attack; may be given again"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
