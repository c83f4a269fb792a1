"""Driving a delivery of awaitable work. Imported only where there is some: asyncio takes its time."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import replace
from typing import TypeVar, cast

from .delivery import Delivery
from .outcome import Execution, Phase

T = TypeVar("T")


async def deliver_async(delivery: Delivery[T], work: Callable[[], Awaitable[T]]) -> Execution[T]:
    """Drive a delivery of awaitable work; the ledger, which blocks, is waited for in a thread."""
    with delivery.phase(Phase.CLAIM):
        claimed = await in_thread(delivery.attempt, undo=delivery.abort)
        # Not in a thread: many that wait would take up the pool that the one at work needs.
        while delivery.pause is not None:
            await delivery.clock.sleep_async(delivery.pause)
            claimed = await in_thread(delivery.attempt, undo=delivery.abort)
    if not claimed:
        answer = cast("Execution[T]", delivery.answer)
        if inspect.isawaitable(answer.result):  # of an `on_duplicate` that is async itself
            return replace(answer, result=await answer.result)
        return answer
    try:
        with delivery.working():
            result = await work()
    except BaseException as error:
        with delivery.ending_phase(error):
            await in_thread(functools.partial(delivery.abort, error))
        raise
    with delivery.phase(Phase.COMPLETE):
        return await in_thread(functools.partial(delivery.close, result))


async def in_thread(
    call: Callable[[], T], undo: Callable[[BaseException], None] | None = None
) -> T:
    """Run `call` in a thread to its end even if the task is cancelled; then `undo` it there."""
    cancelled: list[BaseException] = []
    lock = threading.Lock()
    finished = False

    def run() -> T:
        nonlocal finished
        outcome = call()
        with lock:
            finished = True
            late = cancelled[0] if cancelled else None
        if late is not None and undo is not None:
            undo(late)
        return outcome

    loop = asyncio.get_running_loop()
    thread = loop.run_in_executor(None, functools.partial(copy_context().run, run))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError as error:
        # Nobody awaits the thread any more: what it raises has been seen to.
        thread.add_done_callback(lambda done: done.cancelled() or done.exception())
        with lock:
            cancelled.append(error)
            undo_here = finished
        if undo_here and undo is not None:
            await asyncio.shield(asyncio.to_thread(undo, error))
        raise
