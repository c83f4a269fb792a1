"""Fixtures for the samples' tests: no test reaches AWS, and each has a ledger of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.options import ledger_in_place
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.strict_ssm import StrictSSM
from samples.local import LocalContext
from tests.conftest import event

# Importing it is what keeps a developer's own AWS settings out.
__all__ = ["event"]


@pytest.fixture(params=["memory", "ssm"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FrozenClock]:
    """The clock of a fresh ledger that stands in for the handlers' own."""
    monkeypatch.setenv("IDEMGUARD_LOCAL_CACHE", "0")
    clock = FrozenClock()
    ledger = (
        MemoryLedger(clock)
        if request.param == "memory"
        else SSMLedger(StrictSSM(clock), clock=clock)
    )
    with ledger_in_place(ledger):
        yield clock


@pytest.fixture
def context() -> LocalContext:
    return LocalContext()
