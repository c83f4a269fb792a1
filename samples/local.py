"""What the demo and the tests share to run handlers on this machine: a context, events, a kill."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard.outcome import Details, Hook, Phase, observed_by

SAMPLES = Path(__file__).parent


class LocalContext(LambdaContext):
    """A Lambda context with always the same time left, so a claim's lease is known: 30.5 seconds."""

    def __init__(self) -> None:
        self._function_name = "local"
        self._function_version = "$LATEST"
        self._memory_limit_in_mb = 128
        self._invoked_function_arn = "arn:aws:lambda:eu-west-1:111122223333:function:local"
        self._aws_request_id = "00000000-0000-4000-8000-000000000000"

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 30_000


def event_of(sample: str, name: str = "event") -> Any:
    """The event file of a sample, fresh at each call."""
    return json.loads((SAMPLES / sample / f"{name}.json").read_text(encoding="utf-8"))


def killed(call: Callable[[], object], phase: Phase, *, step: str = "", done: bool = False) -> bool:
    """Run `call` like a sandbox that is killed on entering `phase`, or once it is `done`.

    The thread stops there for good: no `finally`, no release and no completion follows, as after
    a SIGKILL. Tells whether it came that far.
    """
    kill = _Kill(phase, step, done)
    # A daemon, for it never ends.
    thread = threading.Thread(target=lambda: kill.run(call), daemon=True)
    with observed_by(kill):
        thread.start()
        kill.over.wait()
    return kill.struck


class _Kill(Hook):
    def __init__(self, phase: Phase, step: str, done: bool) -> None:
        self.over = threading.Event()
        self.struck = False
        self._where = (phase, step)
        self._done = done

    def run(self, call: Callable[[], object]) -> None:
        try:
            call()
        finally:
            self.over.set()

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        if (phase, details.step or "") != self._where:
            return None
        return self._after() if self._done else self._before()

    def _before(self) -> NoReturn:
        self.struck = True
        self.over.set()
        while True:
            threading.Event().wait()

    @contextmanager
    def _after(self) -> Iterator[None]:
        yield
        self._before()
