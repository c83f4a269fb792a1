"""``sweep``: remove what nobody needs any more."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..sweeper import DEFAULT_RATE, Sweeper, SweepReport
from .terminal import (
    Exit,
    Json,
    LedgerUrl,
    Under,
    facts,
    ledger_of,
    out,
    path_of,
    print_json,
    reporting,
    told,
)


@reporting
def sweep(
    under: Under = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Remove; without it, only count.")
    ] = False,
    rate: Annotated[
        float, typer.Option(help="Writes a second, which deliveries need too.")
    ] = DEFAULT_RATE,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="End within this time.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where a report says.")
    ] = None,
    ledger: LedgerUrl = None,
    json: Json = False,
) -> None:
    """Remove expired records and abandoned claims; a dry run unless --yes is given.

    Deliveries may go on meanwhile. Each record is barred for a minute before it is removed.
    """
    with Progress(
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=told(),
        transient=True,
    ) as progress:
        bar = progress.add_task("listing …", total=None)

        def show(report: SweepReport) -> None:
            candidates = report.swept + report.backlog
            progress.update(
                bar,
                description=f"{report.scanned} scanned, {report.barred} barred, "
                f"{report.swept} of {candidates} swept",
                completed=report.swept,
                total=candidates or None,
            )

        report = Sweeper(ledger_of(ledger)).sweep(
            under=path_of(under),
            dry_run=not yes,
            rate=rate,
            time_limit=time_limit,
            resume=resume,
            progress=show,
        )
    if json:
        print_json(report.as_dict())
    else:
        _print(report)
    if not report.done or (yes and report.backlog):
        raise typer.Exit(int(Exit.FINDING))


def _print(report: SweepReport) -> None:
    backlog: object = report.backlog or None
    if report.dry_run:
        backlog = f"{report.backlog} may be removed: run it again with --yes"
    elif report.barred:
        backlog = (
            f"{report.backlog}, of which {report.barred} are barred and wait for the next sweep"
        )
    room = report.head_room
    out().print(
        facts(
            ("scanned", report.scanned),
            ("kept", report.kept),
            ("swept", None if report.dry_run else report.swept),
            ("gone already", report.gone_already or None),
            ("not records", f"{report.unreadable}, left alone" if report.unreadable else None),
            ("backlog", backlog),
            ("refused", f"{report.refused}: {report.refusal}" if report.refused else None),
            ("written last day", report.written_last_day),
            ("head-room", None if room is None else f"at most {room} of {report.capacity}"),
            ("calls", f"{report.calls}, {report.calls_per_record:g} a record"),
            ("stopped", report.stopped or None),
            ("go on with", f"--resume {report.resume}" if report.resume else None),
        )
    )
