"""``release``: unstick a claim by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from ..record import State
from ..upkeep import release_by_hand
from .records import Name, found
from .terminal import Exit, Json, LedgerUrl, fail, ledger_of, print_json, reporting, span, told


@reporting
def release(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; kept in the record.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    ledger: LedgerUrl = None,
    json: Json = False,
) -> None:
    """Release a claim whose holder is dead, so that the next delivery runs the work at once.

    A holder that lives after all can write no more, but what it does outside of the ledger is done
    twice. Without a release the claim ends by itself with its lease.
    """
    of = ledger_of(ledger)
    entry = found(of, name, ledger)
    record = entry.record
    if record.state is not State.CLAIMED:
        fail(f"{entry.name} is {record.state.name.lower()}: no claim to release", Exit.FINDING)
    left = record.lease - entry.age
    if left > 0:
        told().print(
            f"The lease of attempt {record.attempt} holds for another {span(left)}: it may be at work.",
            soft_wrap=True,
        )
    else:
        told().print(f"The lease of attempt {record.attempt} is over since {span(-left)}.")
    if not yes:
        typer.confirm(f"Release {entry.name}?", abort=True, err=True)
    if not release_by_hand(of, entry, reason):
        fail(f"{entry.name} has changed meanwhile; look at it again", Exit.FINDING)
    if json:
        print_json({"name": entry.name, "released": True})
    else:
        told().print(f"Released {entry.name}.")
