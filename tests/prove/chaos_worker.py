"""One process of the chaos: it receives copies of events, and again, until each is acknowledged."""

from __future__ import annotations

import heapq
import json
import logging
import os
import random
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from idemguard import Claim, Event, Guard, Hook, IdempotencyError, Ledger, current_claim
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing import FakeLambdaContext
from tests.servers import DUMMY_AWS, ssm_client_for

#: Seconds that an invocation may take: an SDK that retries by itself needs many for one call.
TIMEOUT = 20.0
#: Seconds of the lease that a holder leaves behind who dies before the effect.
_ABANDONED = 2.0
_OPERATION = "pay"


@dataclass(frozen=True)
class Copy:
    """One message that carries an event; a source delivers it until it is acknowledged.

    Attributes:
        key: which event.
        number: which copy of it.
        due: seconds after the start before which it is not delivered.
        dies: the first delivery claims the key and dies before the work.
        failures: attempts of the event's work that fail.
        waits: a delivery that finds another at work waits for it.
    """

    key: int
    number: int
    due: float
    dies: bool
    failures: int
    waits: bool


@dataclass(frozen=True)
class Plan:
    """What one process receives, and what it has to receive it with.

    Attributes:
        client: "own" for the ledger's own client, "user's" for one with retries of the SDK's.
        journal: the file to write down what happened, outside of any ledger.
        patience: seconds after which a copy that is still not acknowledged counts as lost.
    """

    url: str
    client: str
    copies: tuple[Copy, ...]
    journal: Path
    threads: int
    patience: float


class WorkFailed(Exception):
    """What failing work raises; its source delivers again."""


class TimedOut(BaseException):
    """In the place of Lambda's SIGKILL when an invocation's time is up."""


class Journal(Hook):
    """Appends lines to a file of its process, each in one write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, **facts: Any) -> None:
        # The monotonic clock is one for all processes of a machine.
        line = json.dumps({"what": what, "at": time.monotonic(), **facts})
        os.write(self._file, f"{line}\n".encode())

    def observe(self, event: Event) -> None:
        self.write("happening", name=event.happening.name, digest=event.details.key_digest)


class Worker:
    """The deliveries of one process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._journal = Journal(plan.journal)
        self._guard = Guard(
            ledger=_ledger(plan),
            namespace="chaos",
            operation=_OPERATION,
            local_cache=False,  # The ledger decides alone.
            hooks=[self._journal],
        )
        self._pay = self._guard.idempotent(key="order")(self._work)
        self._pay_or_wait = self._guard.idempotent(key="order", on_in_flight="wait")(self._work)
        self._lock = threading.Lock()
        self._queue: list[tuple[float, int, int, Copy]] = []

    def run(self) -> None:
        start = time.monotonic()
        for copy in self._plan.copies:
            self._put(copy, start + copy.due, 0)
        self._end = start + self._plan.patience
        with ThreadPoolExecutor(self._plan.threads) as pool:
            for thread in [pool.submit(self._receive) for _ in range(self._plan.threads)]:
                thread.result()

    def _put(self, copy: Copy, due: float, tries: int) -> None:
        with self._lock:
            heapq.heappush(self._queue, (due, secrets.randbits(64), tries, copy))

    def _receive(self) -> None:
        while time.monotonic() < self._end:
            with self._lock:
                if not self._queue:
                    return
                due, _, tries, copy = heapq.heappop(self._queue)
            time.sleep(max(0.0, due - time.monotonic()))
            if not self._deliver(copy, first=tries == 0):
                # As a queue does after its visibility timeout.
                again = time.monotonic() + random.uniform(0.1, 0.5) * min(tries + 1, 4)
                self._put(copy, again, tries + 1)

    def _deliver(self, copy: Copy, *, first: bool) -> bool:
        """Whether the delivery ended well, so that the source forgets the message."""
        event = {"order": copy.key, "failures": copy.failures}
        context = FakeLambdaContext(TIMEOUT)
        handler = self._pay_or_wait if copy.waits else self._pay
        self._journal.write("delivered", key=copy.key)
        try:
            if copy.dies and first:
                self._die(copy)
                return False
            answer = handler(event, context)
        except (WorkFailed, TimedOut) as error:
            self._journal.write("failed", key=copy.key, error=type(error).__name__)
        except IdempotencyError as error:
            what = "refused" if error.retryable else "unexpected"
            self._journal.write(what, key=copy.key, error=f"{type(error).__name__}: {error}")
        except Exception as error:
            self._journal.write("unexpected", key=copy.key, error=repr(error))
        else:
            self._journal.write("acknowledged", key=copy.key, copy=copy.number, answer=answer)
            return True
        return False

    def _die(self, copy: Copy) -> None:
        guard = Guard(
            ledger=self._guard.options.ledger,
            namespace="chaos",
            operation=_OPERATION,
            local_cache=False,
            lease=_ABANDONED,
        )
        if isinstance(guard.claim(copy.key), Claim):
            self._journal.write("died", key=copy.key)

    def _work(self, event: dict[str, int], context: FakeLambdaContext) -> dict[str, Any]:
        key, claim = event["order"], current_claim()
        facts: dict[str, Any] = {"key": key, "run": secrets.token_hex(8)}
        self._journal.write("begun", **facts, digest=claim.key_digest, fence=claim.fencing_token)
        try:
            time.sleep(random.uniform(0.0, 0.03))
            if claim.attempt <= event["failures"]:
                raise WorkFailed
            if not context.get_remaining_time_in_millis():
                raise TimedOut
            self._journal.write("effect", **facts)
            return {"order": key, "receipt": facts["run"]}
        finally:
            self._journal.write("ended", **facts)


def _ledger(plan: Plan) -> Ledger:
    if plan.client == "own":
        # Its client finds the endpoint in the environment.
        return SSMLedger(prefix="/chaos")
    retries = {"mode": "standard", "total_max_attempts": 3}
    client = ssm_client_for(plan.url, read_timeout=2, retries=retries, max_pool_connections=32)
    return SSMLedger(client, prefix="/chaos")


def work_through(plan: Plan) -> None:
    """Receive everything in the plan; the main function of a process."""
    os.environ.update(DUMMY_AWS, AWS_ENDPOINT_URL_SSM=plan.url)
    # Thousands of refusals are meant to happen; the journal has them.
    logging.getLogger("idemguard").disabled = True
    Worker(plan).run()
