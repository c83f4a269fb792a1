"""Over real connections: a ledger that hangs or fails never takes more time than the function has.

These go by the machine's clock, since botocore's timeouts do. Each may be slow for once on a busy
machine, so three tries are given: a bound that does not hold fails them all.
"""

from __future__ import annotations

import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import botocore.session
import pytest

from idemguard import (
    Guard,
    IdempotencyError,
    LedgerFull,
    LedgerMisconfigured,
    LedgerUnavailable,
    Outcome,
)
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing import FakeLambdaContext
from idemguard.testing.ssm_server import StrictSSMServer
from idemguard.testing.strict_ssm import StrictSSM
from tests.servers import free_port, microburst, request, ssm_client_for

_TRIES = 3

# Servers that hang.


@contextmanager
def never_answering() -> Iterator[str]:
    """Takes every connection and whatever is sent, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server, ExitStack() as stack:
        taken = threading.Thread(target=_take_all, args=(server, stack), daemon=True)
        taken.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        taken.join()


def _take_all(server: socket.socket, stack: ExitStack) -> None:
    while True:
        try:
            stack.enter_context(server.accept()[0])
        except OSError:
            return


@contextmanager
def never_accepting() -> Iterator[str]:
    """Listens, and its queue of connections is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def nobody_there() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_port()}"


def in_time(seconds: float, delivery: Callable[[FakeLambdaContext], None]) -> None:
    """Deliver with so many seconds left: it ends before they do."""
    for _ in range(_TRIES):
        context = FakeLambdaContext(seconds)
        delivery(context)
        if context.get_remaining_time_in_millis() > 0:
            return
    pytest.fail(f"took more than the {seconds} seconds that were left")


def refused(url: str) -> Callable[[FakeLambdaContext], None]:
    """A delivery to a ledger there: the work is not run, and may be delivered again."""
    ledger = SSMLedger(endpoint_url=url)

    def delivery(context: FakeLambdaContext) -> None:
        with pytest.raises(LedgerUnavailable) as caught:
            Guard(ledger=ledger).run_exactly_once("k", _never, context=context)
        assert caught.value.retryable

    return delivery


@pytest.mark.parametrize("seconds", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("server", [never_answering, never_accepting, nobody_there])
def test_a_claim_ends_before_the_function_does_although_the_ledger_hangs(
    server: Callable[[], Any], seconds: float
) -> None:
    with server() as url:
        in_time(seconds, refused(url))


def test_a_name_that_cannot_be_resolved_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    in_time(1.5, refused("http://ssm.nowhere.invalid"))


def test_the_time_that_making_the_client_takes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cold start with little memory."""
    make = botocore.session.Session.create_client
    slow = threading.Event()

    def slowly(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The first client loads what the next ones share.
        if slow.is_set():
            slow.clear()
            time.sleep(1.5)
        return make(self, *args, **kwargs)

    monkeypatch.setattr(botocore.session.Session, "create_client", slowly)
    with never_answering() as url:

        def delivery(context: FakeLambdaContext) -> None:
            slow.set()
            refused(url)(context)

        in_time(3.4, delivery)


def test_a_completion_ends_before_the_function_does_and_the_result_is_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hanging = threading.Event()
    go_on = threading.Event()

    def hang(operation: str, request: Mapping[str, Any]) -> None:
        if hanging.is_set():
            go_on.wait(60)

    with StrictSSMServer() as server:
        server.ssm.before_call = hang
        guard = Guard(ledger=SSMLedger(endpoint_url=server.url))

        def work() -> str:
            hanging.set()
            return "done"

        def delivery(context: FakeLambdaContext) -> None:
            hanging.clear()
            key = secrets.token_hex(4)
            assert guard.run_exactly_once(key, work, context=context).result == "done"

        in_time(3.0, delivery)
        go_on.set()
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_a_client_of_ones_own_takes_as_long_as_it_is_allowed_to() -> None:
    context = FakeLambdaContext(0.8)
    with never_answering() as url:
        client = ssm_client_for(url, read_timeout=1, retries={"total_max_attempts": 1})
        with pytest.raises(LedgerUnavailable):
            Guard(ledger=SSMLedger(client)).run_exactly_once("k", _never, context=context)
    # The function would have been killed; all the same, nothing was run.
    assert context.get_remaining_time_in_millis() == 0


def test_slow_answers_are_waited_for() -> None:
    with StrictSSMServer() as server:
        server.ssm.before_call = lambda operation, request: time.sleep(0.7)
        guard = Guard(ledger=SSMLedger(endpoint_url=server.url))
        execution = guard.run_exactly_once("k", lambda: 1, context=FakeLambdaContext(30))
    assert execution.outcome is Outcome.EXECUTED
    assert len(server.ssm.calls) == 2


# Answers that are none, in AWS's own form.


class Proxy:
    """microburst between the ledger's own client and a local SSM."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._key = secrets.token_hex(8)
        self.runs: list[int] = []
        self.guard = Guard(ledger=SSMLedger(endpoint_url=url), local_cache=False)

    def breaks(self, *rules: Mapping[str, Any]) -> None:
        """From now on; a rule's `times` count from now, too."""
        request("POST", f"{self.url}/_microburst/rules", [{"service": "ssm", **r} for r in rules])

    @property
    def calls(self) -> int:
        told: int = json.loads(request("GET", f"{self.url}/_microburst/stats"))["requests"]["total"]
        return told

    def deliver(self, seconds: float = 20.0) -> Outcome:
        context = FakeLambdaContext(seconds)
        return self.guard.run_exactly_once(self._key, self._work, context=context).outcome

    def _work(self) -> int:
        self.runs.append(1)
        return 1


@pytest.fixture(scope="module")
def proxy_url(ministack_url: str) -> Iterator[str]:
    with microburst(ministack_url, []) as url:
        yield url


@pytest.fixture
def proxy(proxy_url: str) -> Proxy:
    proxy = Proxy(proxy_url)
    proxy.breaks()
    return proxy


def answering(code: str, status: int = 400, **rule: Any) -> dict[str, Any]:
    return {"operation": "PutParameter", "error": {"code": code, "status": status}, **rule}


#: Of the writes, the one that ends a claim.
COMPLETION: dict[str, Any] = {"body": "Overwrite"}

PASSING = [
    answering("ThrottlingException", times=6),
    answering("InternalServerError", 500, times=2),
    answering("ServiceUnavailable", 503, times=2),
    answering("InvalidSignatureException", 403, times=1),
    {"operation": "PutParameter", "reset": True, "times": 1},
    {"operation": "PutParameter", "response": {"abort_bytes": 0}, "times": 1},
    {"operation": "PutParameter", "response": {"truncate_frac": 0.5}, "times": 1},
    {"operation": "PutParameter", "response": {"corrupt_bytes": 9}, "times": 1},
]


@pytest.mark.parametrize("rule", PASSING, ids=str)
@pytest.mark.parametrize("at", [{}, COMPLETION], ids=["claim", "completion"])
def test_what_passes_is_tried_again(proxy: Proxy, rule: dict[str, Any], at: dict[str, Any]) -> None:
    proxy.breaks({**rule, **at})
    assert proxy.deliver() is Outcome.EXECUTED
    assert proxy.deliver() is Outcome.SKIPPED_COMPLETED
    assert proxy.runs == [1]


@pytest.mark.parametrize("response", [{"truncate_frac": 0.5}, {"corrupt_bytes": 9}], ids=str)
def test_an_answer_that_cannot_be_read_is_asked_for_again(
    proxy: Proxy, response: dict[str, Any]
) -> None:
    proxy.deliver()
    proxy.breaks({"operation": "GetParameter", "response": response, "times": 1})
    assert proxy.deliver() is Outcome.SKIPPED_COMPLETED
    assert proxy.runs == [1]


def test_throttling_that_does_not_pass_is_given_up_in_time(proxy: Proxy) -> None:
    proxy.breaks(answering("ThrottlingException"))

    def delivery(context: FakeLambdaContext) -> None:
        with pytest.raises(LedgerUnavailable):
            proxy.guard.run_exactly_once("k", _never, context=context)

    in_time(1.5, delivery)


@pytest.mark.parametrize(
    ("code", "kind", "cure"),
    [
        ("AccessDeniedException", LedgerMisconfigured, "allow ssm:PutParameter on arn:aws:ssm:"),
        ("InvalidKeyId", LedgerMisconfigured, "kms:Decrypt"),
        ("ParameterLimitExceeded", LedgerFull, "run the sweeper"),
        ("ExpiredTokenException", LedgerMisconfigured, "credentials"),
    ],
)
def test_a_refusal_for_good_is_sent_once_and_names_the_cure(
    proxy: Proxy, code: str, kind: type[IdempotencyError], cure: str
) -> None:
    proxy.breaks(answering(code))
    before = proxy.calls
    with pytest.raises(kind, match=cure):
        proxy.deliver()
    assert proxy.calls == before + 1
    assert proxy.runs == []


def test_a_completion_that_is_refused_for_good_is_loud_and_returns_the_result(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.breaks(answering("AccessDeniedException", **COMPLETION))
    assert proxy.deliver() is Outcome.EXECUTED
    [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "ssm:PutParameter" in line.getMessage()


def test_connections_that_were_dropped_while_the_sandbox_was_frozen_cost_nothing() -> None:
    ssm, port = StrictSSM(), free_port()
    guard = Guard(ledger=SSMLedger(endpoint_url=f"http://127.0.0.1:{port}"), local_cache=False)
    for outcome in (Outcome.EXECUTED, Outcome.SKIPPED_COMPLETED, Outcome.SKIPPED_COMPLETED):
        # What it leaves closes all its connections; the client finds out at its next call.
        with StrictSSMServer(ssm, port=port):
            assert guard.run_exactly_once("k", lambda: 1).outcome is outcome
    assert len(ssm.calls) == 2 + 2 + 2


def _never() -> None:
    raise AssertionError("must not be run")
