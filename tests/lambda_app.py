"""Handlers for the Lambda emulator: they note what they do in a file, and die when they are told to.

`JOURNAL` names the file. An event may hold `sleep`, seconds that its work takes before the effect,
and `dies`, for its first attempt: "before" its effect or "after" it and before the completion, by
SIGKILL, or "asleep", by the function's timeout.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from idemguard import Guard, Hook, effect_key, step
from idemguard.outcome import Details, Phase


def note(what: str, event: dict[str, Any], more: str = "") -> None:
    """A line in the journal, in one write."""
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{what} {event['id']} {more}".rstrip().encode() + b"\n")
    finally:
        os.close(file)


def _die_once(event: dict[str, Any], where: str) -> None:
    mark = Path(f"{os.environ['JOURNAL']}.{event['id']}.died")
    if event.get("dies") != where or mark.exists():
        return
    mark.touch()
    note("died", event, where)
    if where == "asleep":
        time.sleep(900)
    os.kill(os.getpid(), signal.SIGKILL)


class _DyingAtCompletion(Hook):
    """Hooks are told nothing of the event, so the handler leaves it here."""

    event: dict[str, Any]

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        if phase is Phase.COMPLETE:
            _die_once(self.event, "after")
        return None


_dying = _DyingAtCompletion()
_guard = Guard(hooks=[_dying])


@_guard.idempotent(key="id", operation="pay")
def pay(event: dict[str, Any], context: object) -> dict[str, str]:
    """Work with one effect."""
    _dying.event = event
    note("begun", event)
    time.sleep(event.get("sleep", 0))
    _die_once(event, "asleep")
    _die_once(event, "before")
    note("effect", event, effect_key("payment"))
    return {"paid": event["id"]}


@_guard.idempotent(key="id", operation="order")
def order(event: dict[str, Any], context: object) -> dict[str, str]:
    """Work of two steps."""
    _dying.event = event
    note("begun", event)
    step("charge", lambda: note("charged", event))
    step("ship", lambda: note("shipped", event))
    return {"ordered": event["id"]}
