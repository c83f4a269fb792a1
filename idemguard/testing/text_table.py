"""Rows of text under each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as they must be; a column with nothing in it is left out."""
    lines = [tuple(row) for row in rows]
    used = [at for at in range(len(heads)) if any(line[at] for line in lines)]
    widths = [max(len(line[at]) for line in [tuple(heads), *lines]) for at in used]
    return "\n".join(
        "  ".join(line[at].ljust(width) for at, width in zip(used, widths, strict=True)).rstrip()
        for line in [tuple(heads), *lines]
    )


def shortened(text: str, longest: int = 60) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
