"""What the verbs share: options, exit codes, and how things are printed."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import IdempotencyError, InvalidOption, LedgerError
from ..ledger import Ledger
from ..options import Options, default_ledger

F = TypeVar("F", bound=Callable[..., None])

# Where nobody looks, lines are not folded: they are for grep.
_WIDE = 400

LedgerUrl = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        envvar="IDEMGUARD_LEDGER",
        show_default="ssm:///idempotency",
        help="The ledger.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Under = Annotated[
    str, typer.Option(metavar="PATH", help="Only names below this namespace or longer path.")
]


class Exit(IntEnum):
    """The exit codes."""

    OK = 0
    FINDING = 1
    USAGE = 2
    LEDGER = 3


def reporting(verb: F) -> F:
    """Let a verb's errors of this package end it with one line and the right exit code."""

    @functools.wraps(verb)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            verb(*args, **kwargs)
        except IdempotencyError as error:
            fail(str(error), Exit.LEDGER if isinstance(error, LedgerError) else Exit.USAGE)

    return wrapped  # type: ignore[return-value]


def fail(text: str, code: Exit) -> NoReturn:
    """End the command with a line on stderr."""
    told().print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)
    raise typer.Exit(int(code))


def ledger_of(url: str | None) -> Ledger:
    """The ledger that the user named."""
    return default_ledger(url)


def path_of(under: str) -> str:
    """The path that the user named, if there can be names below it."""
    path = under.strip("/")
    try:
        for level in path.split("/") if path else ():
            Options(namespace=level)
    except InvalidOption:
        raise InvalidOption(
            f"under: {under!r:.60} cannot be part of a parameter name; use letters, digits and _ . - "
            "in levels divided by /"
        ) from None
    return path


def out() -> Console:
    """Where results go."""
    return Console(
        width=None if sys.stdout.isatty() else _WIDE, highlight=False, markup=False, emoji=False
    )


def told() -> Console:
    """Where everything else goes."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """One JSON value, also for programs that read line by line."""
    print(json.dumps(value, default=str))


def table(*columns: str, title: str | None = None) -> Table:
    """A table in the one style there is; numbers' columns start with ``>``."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        made.add_column(
            column.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=right
        )
    return made


def facts(*rows: tuple[str, Any]) -> Table:
    """Names and values below each other; a value of None is left out."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            made.add_row(name, value if isinstance(value, Text) else str(value))
    return made


def span(seconds: float | None) -> str:
    """A length of time for people; empty for None."""
    if seconds is None:
        return ""
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    for size, unit, below, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            return f"{sign}{whole}{unit}" + (f" {rest // below}{part}" if rest // below else "")
    return f"{sign}{seconds:.0f}s"


COLORS = {
    "claimed": "yellow",
    "completed": "green",
    "released": "cyan",
    "failed": "red",
    "swept": "magenta",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "skipped": "dim",
}


def colored(word: str) -> Text:
    """A state or status in its colour."""
    return Text(word, style=COLORS.get(word, ""))
