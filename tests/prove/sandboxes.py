"""Four real Lambda sandboxes, many events, and handlers that are killed before and after their effect."""

from __future__ import annotations

import heapq
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.prove.proof import Proof
from tests.rie import ROOT, LambdaSandbox
from tests.servers import ministack

_SANDBOXES = 4
_COPIES = 3
_TIMEOUT = 3
#: How an event's first attempt ends; what is no end for `tests.lambda_app` is a good one.
_ENDS = ("well", "well", "well", "well", "before", "after", "asleep")
#: Seconds after which a copy that is still not answered counts as lost.
_PATIENCE = 120.0


@dataclass(frozen=True)
class _Order:
    id: str
    end: str

    @property
    def event(self) -> dict[str, str]:
        return {"id": self.id, "dies": self.end}

    @property
    def effects(self) -> int:
        """A kill between effect and completion repeats the effect, once; no other does."""
        return 2 if self.end == "after" else 1


class _Queue:
    """Copies of events that are delivered until they are answered."""

    def __init__(self, orders: Sequence[_Order], chance: random.Random) -> None:
        now = time.monotonic()
        self._chance = chance
        self._lock = threading.Lock()
        self._due: list[tuple[float, float, _Order]] = []
        self.left = 0
        self.deliveries = 0
        self.refused = 0
        self._end = now + len(orders) + _PATIENCE
        for number, order in enumerate(orders):
            for _ in range(_COPIES):
                self._put(now + number * 0.02 + chance.uniform(0, 0.1), order)
                self.left += 1

    def _put(self, due: float, order: _Order) -> None:
        heapq.heappush(self._due, (due, self._chance.random(), order))

    def work_off(self, sandbox: LambdaSandbox) -> None:
        """Deliver to one sandbox, one event at a time."""
        while self.left and time.monotonic() < self._end:
            with self._lock:
                ready = self._due and self._due[0][0] <= time.monotonic()
                order = heapq.heappop(self._due)[2] if ready else None
            if order is None:
                time.sleep(0.02)
                continue
            answer = sandbox.invoke(order.event)
            with self._lock:
                self.deliveries += 1
                if _is_answer(answer, order):
                    self.left -= 1
                    continue
                self.refused += "InFlightError" in answer
                self._put(time.monotonic() + self._chance.uniform(0.2, 1.0), order)


def _is_answer(answer: str, order: _Order) -> bool:
    try:
        return bool(json.loads(answer) == {"paid": order.id})
    except ValueError:
        return False


def prove(seconds: float, seed: int) -> Proof:
    """About two events a second of the time there is."""
    began = time.monotonic()
    chance = random.Random(seed)
    number = max(20, round(seconds * 2))
    orders = [_Order(f"{seed}-{at}", chance.choice(_ENDS)) for at in range(number)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idemguard-")))
        journal = folder / "journal"
        environment = {
            "AWS_ENDPOINT_URL_SSM": stack.enter_context(ministack()),
            "JOURNAL": str(journal),
        }
        sandboxes = [
            stack.enter_context(
                LambdaSandbox("tests.lambda_app.pay", environment, _TIMEOUT, task_root=ROOT)
            )
            for _ in range(_SANDBOXES)
        ]
        queue = _Queue(orders, chance)
        with ThreadPoolExecutor(_SANDBOXES) as pool:
            list(pool.map(queue.work_off, sandboxes))
        lines = [line.split() for line in journal.read_text().splitlines()]
    done = Counter((what, order) for what, order, *_ in lines)
    effects = {order.id: done["effect", order.id] for order in orders}
    broken = [
        f"event {order.id}, whose first attempt ended {order.end}: {effects[order.id]} effects"
        for order in orders
        if effects[order.id] != order.effects
    ]
    if queue.left:
        broken.append(f"{queue.left} copies were never answered")
    return Proof(
        "sandboxes",
        {
            "keys": number,
            "copies": number * _COPIES,
            "deliveries": queue.deliveries,
            "executions": sum(effects.values()),
            "losses": sum(not count for count in effects.values()),
            "repeats": sum(max(0, count - 1) for count in effects.values()),
            "kills between effect and completion": sum(o.end == "after" for o in orders),
            "other kills": sum(o.end in ("before", "asleep") for o in orders),
            "refused for now": queue.refused,
        },
        broken,
        time.monotonic() - began,
    )
