"""Events as a user gives them: a file, ``-`` for stdin, or JSON as it stands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..errors import InvalidOption


def load_event(given: str) -> Any:
    """The event.

    Raises:
        InvalidOption: it is neither JSON nor a file of JSON.
    """
    if given == "-":
        return _parsed(sys.stdin.read(), "stdin")
    if given.lstrip()[:1] in ("{", "[", '"'):
        return _parsed(given, "the event")
    try:
        return _parsed(Path(given).read_text(encoding="utf-8"), given)
    except OSError as error:
        raise InvalidOption(
            f"event: {given:.200} cannot be read ({type(error).__name__}); give a file, - for stdin, "
            "or JSON"
        ) from None
    except UnicodeDecodeError:
        raise InvalidOption(f"event: {given:.200} is not UTF-8 text") from None


def _parsed(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidOption(f"event: {source:.200} is not JSON{line}") from None
