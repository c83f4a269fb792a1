"""The end of a process in the middle of its work, as a test plays it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from .effects import Effect


class Crash(BaseException):
    """The process is gone: what it still does reaches neither the ledger nor the recorded effects.

    Not an Exception, so that no ``except Exception`` of a handler goes on living.
    """


class Life:
    """Whether the process that runs a delivery is still there.

    An exception has to stand in for the kill, and it unwinds through ``finally`` and ``except``
    blocks that a real kill would not run. So whatever reaches the world asks here first.
    """

    def __init__(self) -> None:
        self._crash: Crash | None = None

    @property
    def crash(self) -> Crash | None:
        """What ended it, if it is over."""
        return self._crash

    def check(self) -> None:
        """Raise the crash again if there was one."""
        if self._crash is not None:
            raise self._crash

    def end(self, crash: Crash) -> NoReturn:
        """Crash here."""
        self._crash = crash
        raise crash

    def begin(self) -> None:
        """A new process."""
        self._crash = None

    def happened(self, effect: Effect) -> None:
        """An effect has just reached the world."""
