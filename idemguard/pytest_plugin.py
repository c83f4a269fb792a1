"""The test kit as pytest fixtures; pytest finds them by itself once idemguard is installed.

| fixture | what it gives |
|---|---|
| `idempotency_ledger` | a new MemoryLedger in place of every ledger named by URL or environment |
| `idempotency_outcomes` | what became of the deliveries of this test, as plain dicts |
| `idempotency_clock` | the time of `idempotency_ledger`, which stands still until it is advanced |

This is loaded in every run of pytest of everybody who has idemguard installed, so it imports what
it needs only in a fixture that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Captured, FrozenClock, MemoryLedger


@pytest.fixture
def idempotency_clock() -> FrozenClock:
    """The clock of `idempotency_ledger`: `advance(seconds)` lets leases and retention run out."""
    from .testing import FrozenClock

    return FrozenClock()


@pytest.fixture
def idempotency_ledger(
    idempotency_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MemoryLedger]:
    """A new MemoryLedger in place of every ledger that is named by URL or environment.

    Nothing reaches AWS, and no test sees another's records. A guard that was given a Ledger object
    keeps that one.
    """
    from . import cache
    from .options import ledger_in_place
    from .testing import MemoryLedger

    # A local cache would tell ages by another clock than the one that the test moves.
    monkeypatch.setenv("IDEMGUARD_LOCAL_CACHE", "0")
    cache.forget()
    ledger = MemoryLedger(idempotency_clock)
    with ledger_in_place(ledger):
        yield ledger
    cache.forget()


@pytest.fixture
def idempotency_outcomes() -> Iterator[list[Captured]]:
    """What becomes of the deliveries of this test, as they happen; see `capture_outcomes`."""
    from .testing import capture_outcomes

    with capture_outcomes() as captured:
        yield captured
