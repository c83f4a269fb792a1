"""The ledgers, opened by URL; each one is imported only when it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from urllib.parse import SplitResult, parse_qsl, urlsplit

from ..errors import InvalidOption
from ..ledger import Ledger

_opened: dict[str, Ledger] = {}
_lock = threading.Lock()

_KNOWN = "ssm:///PREFIX, dynamodb:///TABLE, memory://NAME"


def open_ledger(url: str) -> Ledger:
    """The ledger that `url` names, such as ``ssm:///idempotency?tier=Advanced`` or ``memory://``.

    The same URL gives the same object throughout a process.

    Raises:
        InvalidOption: the scheme or a parameter is not known.
    """
    ledger = _opened.get(url)
    if ledger is None:
        with _lock:
            ledger = _opened.get(url) or _opened.setdefault(url, _open(url))
    return ledger


def check_url(url: str) -> SplitResult:
    """The parts of a ledger's URL.

    Raises:
        InvalidOption: it is no URL, or the scheme is not known.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidOption(f"ledger: {url!r:.60} is no URL; use one of {_KNOWN}") from None
    if parts.scheme not in ("dynamodb", "memory", "ssm"):
        raise InvalidOption(f"ledger: {parts.scheme or 'no'} scheme; use one of {_KNOWN}")
    return parts


def check_settings(
    scheme: str, host: str, path: str, settings: Mapping[str, str], known: Collection[str]
) -> None:
    """Refuse a URL's host, and settings that a ledger does not know.

    Raises:
        InvalidOption: there is one.
    """
    if host:
        raise InvalidOption(f"ledger: write {scheme}:///{host}{path}, with three slashes")
    if unknown := sorted(set(settings) - set(known)):
        raise InvalidOption(
            f"ledger: unknown setting {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )


def _open(url: str) -> Ledger:
    parts = check_url(url)
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme == "memory":
        from .memory import MemoryLedger

        return MemoryLedger()
    if parts.scheme == "dynamodb":
        from .dynamodb import DynamoDBLedger

        return DynamoDBLedger.from_url(parts.netloc, parts.path, settings)
    from .ssm import SSMLedger

    return SSMLedger.from_url(parts.netloc, parts.path, settings)
