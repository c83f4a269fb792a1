"""A ledger with a clock that a test moves: in memory, and on the strict fake of Parameter Store."""

from __future__ import annotations

from dataclasses import dataclass

from idemguard import Ledger
from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.strict_ssm import StrictSSM


@dataclass(frozen=True)
class Context:
    """As much of a Lambda context as anybody looks at."""

    clock: FrozenClock
    ends: float
    aws_request_id: str = "a-request"
    function_name: str = "a-function"
    memory_limit_in_mb: int = 128
    invoked_function_arn: str = "arn:aws:lambda:eu-west-1:111122223333:function:a-function"

    def get_remaining_time_in_millis(self) -> int:
        return round(max(0.0, self.ends - self.clock.monotonic()) * 1000)


@dataclass(frozen=True)
class World:
    """One ledger, and the clock of the store and of the machine."""

    clock: FrozenClock
    ledger: Ledger
    ssm: StrictSSM

    def context(self, seconds: float = 30.0) -> Context:
        """The context of an invocation that may take so long."""
        return Context(self.clock, self.clock.monotonic() + seconds)

    @property
    def names(self) -> list[str]:
        """All that stands in the ledger."""
        return [item.name for page in self.ledger.scan() for item in page.items]

    @property
    def record(self) -> str:
        """The text form of the only record there is, as far as it can be seen."""
        [name] = self.names
        entry = self.ledger.read(name)
        assert entry is not None
        return repr(entry.record)


def memory_world() -> World:
    clock = FrozenClock()
    return World(clock, MemoryLedger(clock), StrictSSM(clock))


def ssm_world() -> World:
    clock = FrozenClock()
    ssm = StrictSSM(clock)
    return World(clock, SSMLedger(ssm, clock=clock), ssm)


WORLDS = {"memory": memory_world, "ssm": ssm_world}
