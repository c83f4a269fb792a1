"""A guard, its ledger on the strict fake, and time that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from idemguard import Execution, Guard
from idemguard.ledger import Entry
from idemguard.ledgers.ssm import SSMLedger
from idemguard.record import Record, State, from_text
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.strict_ssm import StrictSSM

#: Seconds that a claim in these tests holds, and that a completed record is kept.
LEASE = 60.0
RETENTION = 3600.0


class Context:
    """A Lambda context with some seconds left from now on."""

    def __init__(self, clock: FrozenClock, seconds: float) -> None:
        self._clock = clock
        self._ends = clock.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self._ends - self._clock.monotonic()) * 1000)


class World:
    """One key, delivered as often as a test likes.

    Attributes:
        effects: one item for each time that the work was run to its end.
        name, full: of the key's record, without and with the ledger's prefix.
    """

    def __init__(self, store: StrictSSM | None = None, **ledger: Any) -> None:
        self.clock = FrozenClock()
        self.store = store or StrictSSM(self.clock)
        self.ledger = SSMLedger(self.store, clock=self.clock, **ledger)
        self.effects: list[int] = []
        self.puts: list[dict[str, Any]] = []
        self.name = f"ns/work/{self.guard().key('k').digest}"
        self.full = f"{self.ledger.prefix}/{self.name}"
        self.store.before_call = self._note

    def guard(self, **options: Any) -> Guard:
        defaults: dict[str, Any] = {
            "ledger": self.ledger,
            "namespace": "ns",
            "operation": "work",
            "lease": LEASE,
            "retention": RETENTION,
            "local_cache": False,
            "clock": self.clock,
        }
        return Guard(**{**defaults, **options})

    def deliver(
        self, work: Callable[[], Any] | None = None, *, left: float | None = None, **options: Any
    ) -> Execution[Any]:
        """Deliver the event once, with `left` seconds on the Lambda context."""
        context = None if left is None else Context(self.clock, left)
        return self.guard(**options).run_exactly_once("k", work or self.work, context=context)

    def work(self) -> int:
        self.effects.append(1)
        return len(self.effects)

    def create(self, record: Record) -> Entry:
        return self.ledger.create(self.name, record)

    def read(self) -> Entry:
        entry = self.ledger.read(self.name)
        assert entry is not None
        return entry

    def count(self, operation: str) -> int:
        """How often the store was sent that operation."""
        return sum(call[0] == operation for call in self.store.calls)

    def versions(self) -> list[State]:
        """The states of all versions of the record, oldest first, noise and all."""
        newest = self.store.get_parameter(Name=self.full)["Parameter"]["Version"]
        values = [
            self.store.get_parameter(Name=f"{self.full}:{number}")["Parameter"]["Value"]
            for number in range(1, newest + 1)
        ]
        return [from_text(value)[0].state for value in values]

    def _note(self, operation: str, request: Any) -> None:
        if operation == "PutParameter":
            self.puts.append(dict(request))


def claimed(token: str, **changes: Any) -> Record:
    """A claim as a guard of these tests writes it."""
    record = Record(State.CLAIMED, token, lease=LEASE, retention=RETENTION, fence=1)
    return replace(record, **changes)


class WorkFailed(Exception):
    """What failing work raises here."""


def fail() -> None:
    """Work that fails."""
    raise WorkFailed
