"""The client that the ledger makes for itself: late, once, for one process, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import botocore.session
import pytest

from idemguard import Guard, LedgerMisconfigured
from idemguard.clock import SYSTEM_CLOCK, Deadline
from idemguard.ledgers.ssm import SSMLedger
from idemguard.record import State
from idemguard.testing.ssm_faults import Fault
from idemguard.testing.ssm_server import StrictSSMServer
from tests.servers import ssm_client_for
from tests.ssm_world import claimed


@pytest.fixture
def server() -> Iterator[StrictSSMServer]:
    with StrictSSMServer() as running:
        yield running


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process that made each client, in order."""
    pids: list[int] = []
    make = botocore.session.Session.create_client

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        pids.append(os.getpid())
        return make(self, *args, **kwargs)

    monkeypatch.setattr(botocore.session.Session, "create_client", counting)
    return pids


def test_the_client_is_made_once_however_many_threads_come_first(
    server: StrictSSMServer, made: list[int]
) -> None:
    ledger = SSMLedger(endpoint_url=server.url)
    assert made == []
    barrier = threading.Barrier(16)

    def create(number: int) -> State:
        barrier.wait(30)
        return ledger.create(f"ns/op/{number}", claimed(str(number))).record.state

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(create, range(16))) == {State.CLAIMED}
    assert len(made) == 1


def test_a_client_is_kept_from_call_to_call(server: StrictSSMServer, made: list[int]) -> None:
    ledger = SSMLedger(endpoint_url=server.url)
    for number in range(5):
        ledger.create(f"ns/op/{number}", claimed("a"), deadline=Deadline.after(SYSTEM_CLOCK, 60))
    assert len(made) == 1


def test_a_given_client_is_used_and_none_is_made(server: StrictSSMServer, made: list[int]) -> None:
    ledger = SSMLedger(ssm_client_for(server.url))
    made.clear()
    ledger.create("ns/op/a", claimed("a"))
    assert made == []
    assert len(server.ssm.calls) == 1


def test_the_endpoint_of_the_environment_is_used(
    server: StrictSSMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSM", server.url)
    record = claimed("a")
    assert SSMLedger().create("ns/op/a", record).record == record
    guard = Guard(ledger="ssm:///elsewhere?tier=Standard", namespace="ns")
    assert guard.run_exactly_once("k", lambda: 1).result == 1
    names = [name for _, name in server.ssm.calls]
    assert names[0] == "/idempotency/ns/op/a"
    assert names[1].startswith("/elsewhere/ns/")


def test_a_client_made_before_a_fork_is_not_shared_with_the_child(
    server: StrictSSMServer, made: list[int]
) -> None:
    ledger = SSMLedger(endpoint_url=server.url)
    ledger.create("ns/op/parent", claimed("parent"))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of forking with threads, which is what is tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            ledger.create("ns/op/child", claimed("child"))
            os.write(writing, b"own" if made[-1] == os.getpid() else b"shared")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"own"
    os.waitpid(child, 0)
    ledger.create("ns/op/parent-again", claimed("parent"))
    assert made.count(os.getpid()) == 1
    assert {name.rpartition("/")[2] for _, name in server.ssm.calls} == {
        "parent",
        "child",
        "parent-again",
    }


_WITHOUT_ANYTHING = """
import socket, sys

def no_network(*args, **kwargs):
    raise AssertionError("the network was used")

socket.socket.connect = no_network
from idemguard import Guard, idempotent
from idemguard.ledgers.ssm import SSMLedger

@idempotent(key="id")
def handler(event, context):
    return 1

Guard(ledger=SSMLedger()).idempotent(key="id")(lambda event: 1)
loaded = {"boto3", "botocore", "pydantic", "aws_lambda_powertools"} & set(sys.modules)
assert not loaded, loaded
print("decorated")
"""


def test_import_and_decoration_need_no_credentials_no_region_and_no_network() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-c", _WITHOUT_ANYTHING]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("decorated", 0), done.stderr


@pytest.mark.parametrize("missing", ["AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID"])
def test_a_missing_region_or_credential_is_an_error_that_says_so(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(missing)
    with pytest.raises(LedgerMisconfigured, match="Region, credentials"):
        SSMLedger().create("ns/op/a", claimed("a"))


def test_a_delete_is_sent_once_even_by_a_client_that_retries(server: StrictSSMServer) -> None:
    client = ssm_client_for(server.url, retries={"total_max_attempts": 4, "mode": "standard"})
    ledger = SSMLedger(client)
    bar = ledger.create("ns/op/a", claimed("sweeper", lease=180.0).ended(State.SWEPT))
    server.ssm.inject("DeleteParameters", Fault.lost_response(), times=10)
    assert ledger.remove([bar]) == frozenset()
    assert [call[0] for call in server.ssm.calls].count("DeleteParameters") == 1
    # Other calls of the same client are still retried by it.
    server.ssm.inject("GetParameter", Fault.lost_response())
    assert ledger.read("ns/op/a") is None
