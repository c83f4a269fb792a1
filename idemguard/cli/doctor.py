"""``doctor``: can this ledger be used from here?"""

from __future__ import annotations

from typing import Annotated

import typer

from ..doctor import Check, Status, examine
from ..errors import InvalidOption
from ..ledgers.ssm import SSMLedger
from .terminal import (
    Exit,
    Json,
    LedgerUrl,
    colored,
    ledger_of,
    out,
    print_json,
    reporting,
    table,
    told,
)


@reporting
def doctor(
    write: Annotated[
        bool, typer.Option("--write", help="Also write a parameter of its own, and delete it.")
    ] = False,
    ledger: LedgerUrl = None,
    json: Json = False,
) -> None:
    """Check region, credentials, clock, permissions and the account's settings."""
    of = ledger_of(ledger)
    if not isinstance(of, SSMLedger):
        raise InvalidOption("ledger: there is nothing to check but Parameter Store (ssm:///)")
    with told().status("asking …"):
        checks = list(examine(of, write=write))
    if json:
        print_json([_plain(check) for check in checks])
    else:
        rows = table("", "check", "found")
        for check in checks:
            cure = f"\n→ {check.cure}" if check.cure else ""
            rows.add_row(colored(check.status.value), check.name, check.found + cure)
        out().print(rows)
    if any(check.status is Status.FAIL for check in checks):
        raise typer.Exit(int(Exit.FINDING))


def _plain(check: Check) -> dict[str, str]:
    return {
        "check": check.name,
        "status": check.status.value,
        "found": check.found,
        "cure": check.cure,
    }
