"""The verbs together, and what every exit code means."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from . import deliver, doctor, iam, key, records, release, sweep

_HELP = """Look after idempotency records, and try handlers against duplicates.

A ledger is named by URL: `--ledger`, or `IDEMGUARD_LEDGER`, or `ssm:///idempotency`. A stand-in for
AWS on this machine is `ssm:///idempotency?endpoint_url=http://127.0.0.1:5103&region=eu-west-1`.

Exit codes:

- 0: done, and nothing to complain of

- 1: a finding or a negative answer: a key is missing, a record is not there, a check failed

- 2: wrong usage

- 3: the ledger cannot be used
"""

app = typer.Typer(
    name="idemguard",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"idemguard {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("key")(key.key)
app.command("deliver")(deliver.deliver)
app.command("list")(records.list_)
app.command("show")(records.show)
app.command("stats")(records.stats)
app.command("release")(release.release)
app.command("sweep")(sweep.sweep)
app.command("iam")(iam.iam)
app.command("doctor")(doctor.doctor)
