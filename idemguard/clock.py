"""Where "now", waiting and chance come from.

No decision about a record uses these: the age of an entry is told by the store's own clock. They
bound waiting and the time left, and one object holds them so that a test can hold time still.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

# SystemRandom: a restored snapshot or a forked process must not repeat its sibling's back-off.
_chance = random.SystemRandom()


class Clock:
    """The machine's clocks; subclass to control time."""

    def monotonic(self) -> float:
        """Seconds that only rise; they may stand still while the sandbox is frozen."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch, as this machine believes; may be wrong, may jump."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Wait that many seconds, in a task."""
        import asyncio  # Slow to import; whoever is in a task has it.

        await asyncio.sleep(seconds)

    def jitter(self, upto: float) -> float:
        """A random number of seconds from 0 to `upto`."""
        return _chance.uniform(0.0, upto)


SYSTEM_CLOCK = Clock()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on one clock's monotonic scale by which something must have ended."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        """The moment `seconds` from now."""
        return cls(clock, clock.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left; negative once it has passed."""
        return self.at - self.clock.monotonic()

    def earlier(self, seconds: float) -> Deadline:
        """A deadline that leaves `seconds` in reserve."""
        return Deadline(self.clock, self.at - seconds)
