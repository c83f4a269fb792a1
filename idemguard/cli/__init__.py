"""The command ``idemguard``; needs the extra ``idemguard[cli]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with these arguments, or the process's own; ends in SystemExit."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        print(
            "idemguard: the command needs typer and rich: pip install 'idemguard[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app(args=None if arguments is None else list(arguments), prog_name="idemguard")
