"""What is promised, in AWS's own Lambda runtime: killed by its timeout, killed outright, cold and warm."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from idemguard.testing.ssm_server import StrictSSMServer
from tests.rie import ROOT, LambdaSandbox

#: Seconds after which a function is killed, and of a lease that outlasts the kill and a cold start.
_TIMEOUT = 2
_LEASE = 8
_SANDBOXES = 4
_ROUNDS = 20


class Function:
    """A function and its journal; its sandboxes share one Parameter Store."""

    def __init__(self, ssm_url: str, journal: Path, stack: ExitStack) -> None:
        self._env = {"AWS_ENDPOINT_URL_SSM": ssm_url, "JOURNAL": str(journal)}
        self._journal = journal
        self._stack = stack

    def sandbox(
        self, handler: str = "pay", timeout: int = 30, lease: int | None = None
    ) -> LambdaSandbox:
        env = self._env if lease is None else {**self._env, "IDEMGUARD_LEASE": str(lease)}
        return self._stack.enter_context(
            LambdaSandbox(f"tests.lambda_app.{handler}", env, timeout, task_root=ROOT)
        )

    def lines(self) -> list[str]:
        return self._journal.read_text().splitlines() if self._journal.exists() else []

    def count(self) -> Counter[str]:
        """How often each thing was done."""
        return Counter(line.split()[0] for line in self.lines())


@pytest.fixture
def function(ministack_url: str, tmp_path: Path) -> Iterator[Function]:
    with ExitStack() as stack:
        # A namespace of its own in the shared store: the key of each test is its folder's name.
        yield Function(ministack_url, tmp_path / "journal", stack)


@pytest.fixture
def order_id(tmp_path: Path) -> str:
    return tmp_path.name


def is_in_flight(answer: str) -> bool:
    told = json.loads(answer)
    return isinstance(told, dict) and told.get("errorType") == "InFlightError"


def delivered_until_answered(sandbox: LambdaSandbox, event: dict[str, Any]) -> tuple[str, int]:
    """The answer, and how many deliveries were refused as in flight before it."""
    deadline = time.monotonic() + 60
    refused = 0
    while is_in_flight(answer := sandbox.invoke(event)):
        assert time.monotonic() < deadline, "in flight for ever"
        refused += 1
        time.sleep(0.3)
    return answer, refused


def test_a_handler_killed_by_its_timeout_is_taken_over_when_its_lease_is_over(
    function: Function, order_id: str
) -> None:
    sandbox = function.sandbox(timeout=_TIMEOUT, lease=_LEASE)
    assert "Task timed out" in sandbox.invoke({"id": order_id, "sleep": 60})
    assert function.count() == {"begun": 1}

    answer, refused = delivered_until_answered(sandbox, {"id": order_id})

    assert refused >= 1
    assert json.loads(answer) == {"paid": order_id}
    assert function.count() == {"begun": 2, "effect": 1}


def test_by_default_the_lease_is_over_soon_after_the_timeout_killed_the_handler(
    function: Function, order_id: str
) -> None:
    dying, other = function.sandbox(timeout=_TIMEOUT), function.sandbox()
    with ThreadPoolExecutor() as pool:
        invocation = pool.submit(dying.invoke, {"id": order_id, "sleep": 60})
        while not function.lines():
            time.sleep(0.02)
        # The first one is at work: its lease is what Lambda has given it.
        assert is_in_flight(other.invoke({"id": order_id}))
        answer, _ = delivered_until_answered(other, {"id": order_id})
        assert "Task timed out" in invocation.result()
    assert json.loads(answer) == {"paid": order_id}
    assert function.count() == {"begun": 2, "effect": 1}


@pytest.mark.parametrize(("dies", "effects"), [("before", 1), ("after", 2)])
def test_a_kill_repeats_an_effect_only_where_it_fell_between_effect_and_completion(
    function: Function, order_id: str, dies: str, effects: int
) -> None:
    sandbox = function.sandbox(timeout=_TIMEOUT)
    sandbox.invoke({"id": order_id, "dies": dies})
    assert function.count()["died"] == 1

    answer, _ = delivered_until_answered(sandbox, {"id": order_id, "dies": dies})

    assert json.loads(answer) == {"paid": order_id}
    assert function.count()["effect"] == effects
    # What is repeated carries the same effect key, by which a service downstream drops it.
    assert len({line for line in function.lines() if line.startswith("effect")}) == 1


def test_steps_that_were_done_before_the_kill_are_not_done_again(
    function: Function, order_id: str
) -> None:
    sandbox = function.sandbox("order", timeout=_TIMEOUT)
    sandbox.invoke({"id": order_id, "dies": "after"})
    assert function.count() == {"begun": 1, "charged": 1, "shipped": 1, "died": 1}

    answer, _ = delivered_until_answered(sandbox, {"id": order_id, "dies": "after"})

    assert json.loads(answer) == {"ordered": order_id}
    assert function.count() == {"begun": 2, "charged": 1, "shipped": 1, "died": 1}


def test_the_host_of_a_sandbox_can_go_down_in_mid_work(function: Function, order_id: str) -> None:
    dying, other = function.sandbox(timeout=_TIMEOUT), function.sandbox()
    with ThreadPoolExecutor() as pool:
        invocation = pool.submit(dying.invoke, {"id": order_id, "sleep": 60})
        while not function.lines():
            time.sleep(0.02)
        dying.kill()
        assert invocation.exception() is not None
    answer, _ = delivered_until_answered(other, {"id": order_id})
    assert json.loads(answer) == {"paid": order_id}
    assert function.count() == {"begun": 2, "effect": 1}


def test_a_warm_sandbox_answers_a_duplicate_by_itself_and_a_cold_one_asks_the_ledger(
    tmp_path: Path,
) -> None:
    with StrictSSMServer() as server, ExitStack() as stack:
        function = Function(server.url, tmp_path / "journal", stack)
        sandbox = function.sandbox()

        def calls(sandbox: LambdaSandbox) -> list[str]:
            before = len(server.ssm.calls)
            assert json.loads(sandbox.invoke({"id": "a"})) == {"paid": "a"}
            return [call[0] for call in server.ssm.calls[before:]]

        assert calls(sandbox) == ["PutParameter", "PutParameter"]
        assert calls(sandbox) == []
        assert calls(function.sandbox()) == ["PutParameter", "GetParameter"]
        assert function.count() == {"begun": 1, "effect": 1}


def test_four_sandboxes_race_for_one_event_and_it_has_one_effect(
    function: Function, order_id: str
) -> None:
    sandboxes = [function.sandbox() for _ in range(_SANDBOXES)]
    barrier = threading.Barrier(_SANDBOXES)

    def race(at: int) -> list[str]:
        sandboxes[at].invoke({"id": f"{order_id}-warm-up-{at}"})
        answers: list[str] = []
        for number in range(_ROUNDS):
            barrier.wait(60)
            answers.append(sandboxes[at].invoke({"id": f"{order_id}-{number}"}))
        return answers

    with ThreadPoolExecutor(_SANDBOXES) as pool:
        races = list(pool.map(race, range(_SANDBOXES)))

    for number, answers in enumerate(zip(*races, strict=True)):
        done = [answer for answer in answers if not is_in_flight(answer)]
        assert done
        assert {json.loads(answer)["paid"] for answer in done} == {f"{order_id}-{number}"}
    effects = Counter(line.split()[1] for line in function.lines() if line.startswith("effect"))
    assert set(effects.values()) == {1}
    assert len(effects) == _SANDBOXES + _ROUNDS
