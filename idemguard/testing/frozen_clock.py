"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import threading

from ..clock import Clock

# Different origins, so that code which mixes the two scales is caught.
_MONOTONIC_ORIGIN = 1_000.0
_WALL_ORIGIN = 1_750_000_000.0


class FrozenClock(Clock):
    """Time moves only by `advance` and by `sleep`, which returns at once; safe among threads.

    Attributes:
        next_jitter: seconds that `jitter` answers, never more than it is asked for; with None
            (the default) it answers half of what it is asked for.
    """

    def __init__(self, wall: float = _WALL_ORIGIN) -> None:
        self.next_jitter: float | None = None
        self._origin = wall
        self._elapsed = 0.0
        self._lock = threading.Lock()

    def advance(self, seconds: float) -> None:
        """Move both scales forward by that many seconds.

        Raises:
            ValueError: `seconds` is negative: a monotonic clock never turns back.
        """
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} seconds: time only moves forward")
        with self._lock:
            self._elapsed += seconds

    def monotonic(self) -> float:
        with self._lock:
            return _MONOTONIC_ORIGIN + self._elapsed

    def wall(self) -> float:
        with self._lock:
            return self._origin + self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    async def sleep_async(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)  # The others' turn.

    def jitter(self, upto: float) -> float:
        return upto / 2 if self.next_jitter is None else min(self.next_jitter, upto)
