"""Every ledger keeps the contract, on every store that is at hand."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from idemguard.clock import Clock
from idemguard.ledger import Ledger
from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.record import State
from idemguard.testing.contract import LedgerContract
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.ssm_faults import ANY, Fault
from idemguard.testing.strict_ssm import StrictSSM
from tests.servers import REGION, ssm_client_for


class TestMemory(LedgerContract):
    @pytest.fixture(autouse=True)
    def _time(self) -> None:
        self.clock = self.frozen = FrozenClock()

    def make_ledger(self) -> Ledger:
        return MemoryLedger(self.frozen)

    def advance(self, seconds: float) -> None:
        self.frozen.advance(seconds)


class TestMemoryWithASizeLimit(TestMemory):
    def make_ledger(self) -> Ledger:
        return MemoryLedger(self.frozen, max_bytes=4096)


class TestSSMOnTheStrictFake(LedgerContract):
    @pytest.fixture(autouse=True)
    def _time(self) -> None:
        self.clock = self.frozen = FrozenClock()

    def make_ledger(self) -> Ledger:
        return SSMLedger(self.make_store(), clock=self.frozen)

    def make_store(self) -> StrictSSM:
        return StrictSSM(self.frozen)

    def make_unreachable_ledger(self) -> Ledger:
        store = self.make_store()
        store.inject(ANY, Fault.not_sent(), times=10_000)
        return SSMLedger(store, clock=self.frozen)

    def advance(self, seconds: float) -> None:
        self.frozen.advance(seconds)


class TestSSMOnTheStrictFakeWithEmptyPages(TestSSMOnTheStrictFake):
    def make_store(self) -> StrictSSM:
        return StrictSSM(self.frozen, empty_pages=True)


class TestSSMAdvancedAndEncrypted(TestSSMOnTheStrictFake):
    def make_store(self) -> StrictSSM:
        return StrictSSM(self.frozen, kms_keys=["alias/ledger"])

    def make_ledger(self) -> Ledger:
        return SSMLedger(
            self.make_store(), tier="Advanced", key_id="alias/ledger", clock=self.frozen
        )


class _Hasty(Clock):
    """The machine's clock with a shorter random wait before a takeover: 10 ms at most."""

    def jitter(self, upto: float) -> float:
        return super().jitter(min(upto, 0.01))


class _InRealTime(LedgerContract):
    """For stand-ins whose time cannot be moved."""

    clock = _Hasty()

    def advance(self, seconds: float) -> None:
        # The minute between barring and removing, and AWS's half minute before a name is used
        # again, are left out: the ledger leaves the first to its caller, these stores lack the other.
        if seconds < 10:
            time.sleep(seconds)

    def test_an_entry_of_a_names_earlier_life_is_not_expected_in_its_next_one(self) -> None:
        # The 30 s window, which guards who expects a released record, cannot pass in real time
        # here (it does on the strict fake); who expects a claimed one reads once more and sees it.
        self.check_earlier_life(State.CLAIMED)


class _OneAtATime:
    """A client whose calls wait for each other: moto's put is not atomic across threads."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if not callable(value):
            return value

        def call(**request: Any) -> Any:
            with self._lock:
                return value(**request)

        return call


class TestSSMOnMoto(_InRealTime):
    @pytest.fixture(autouse=True)
    def _aws(self) -> Iterator[None]:
        import boto3
        from moto import mock_aws

        with mock_aws():
            self.client = boto3.client("ssm", region_name=REGION)
            yield

    def make_ledger(self) -> Ledger:
        return SSMLedger(_OneAtATime(self.client), clock=self.clock)


@pytest.fixture(scope="module")
def ministack_client(ministack_url: str) -> Any:
    return ssm_client_for(ministack_url, max_pool_connections=32)


class TestSSMOnMinistack(_InRealTime):
    @pytest.fixture(autouse=True)
    def _store(self, ministack_client: Any) -> Iterator[None]:
        self.client = ministack_client
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.silent_port: int = silent.getsockname()[1]
            yield

    def make_ledger(self) -> Ledger:
        return SSMLedger(self.client, prefix="/contract", clock=self.clock)

    def make_unreachable_ledger(self) -> Ledger:
        # Connections are accepted by the kernel and never answered.
        return SSMLedger(endpoint_url=f"http://127.0.0.1:{self.silent_port}", clock=self.clock)
