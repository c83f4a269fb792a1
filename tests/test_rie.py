"""A real Lambda runtime runs a handler on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rie import LambdaSandbox

HANDLER = """
import os
import pathlib
import time

def handler(event, context):
    partial = pathlib.Path(__file__).with_name("partial")
    partial.write_text(str(os.getpid()))
    partial.rename(partial.with_name("started"))
    time.sleep(event.get("sleep", 0))
    left = context.get_remaining_time_in_millis()
    return {"said": os.environ["WORD"], "name": context.function_name, "in_time": left > 0}
"""


@pytest.fixture
def task_root(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(HANDLER)
    return tmp_path


def test_a_handler_is_invoked_with_its_environment_and_context(task_root: Path) -> None:
    with LambdaSandbox("app.handler", {"WORD": "hello"}, task_root=task_root) as sandbox:
        answer = json.loads(sandbox.invoke({}))
    assert answer == {"said": "hello", "name": "sandbox", "in_time": True}


def test_the_timeout_kills_the_handler_and_the_next_invocation_starts_cold(task_root: Path) -> None:
    with LambdaSandbox("app.handler", {"WORD": "again"}, timeout=1, task_root=task_root) as sandbox:
        assert "Task timed out" in sandbox.invoke({"sleep": 30})
        assert json.loads(sandbox.invoke({}))["said"] == "again"


def test_a_killed_sandbox_takes_the_running_handler_with_it(task_root: Path) -> None:
    with (
        LambdaSandbox("app.handler", {"WORD": "hello"}, 60, task_root=task_root) as sandbox,
        ThreadPoolExecutor() as pool,
    ):
        invocation = pool.submit(sandbox.invoke, {"sleep": 50})
        started = task_root / "started"
        eventually(started.exists)
        sandbox.kill()
        with pytest.raises(OSError, match=r"closed|reset"):
            invocation.result()
        pid = started.read_text()
        eventually(lambda: not alive(pid))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "did not happen in 30 s"
        time.sleep(0.02)


def alive(pid: str) -> bool:
    try:
        state = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
