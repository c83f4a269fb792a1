"""``deliver``: a user's own handler under what at-least-once delivery does to it."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from ..errors import InvalidOption
from ..ledgers.memory import MemoryLedger
from ..testing.concurrency import deliver_concurrently
from ..testing.crashes import deliver_with_crashes
from ..testing.deliveries import Deliveries
from ..testing.deliveries import deliver as deliver_in_turn
from ..testing.effects import Effects
from ..testing.faults import FaultyLedger, LedgerFault
from .events import load_event
from .terminal import Exit, Json, out, print_json, reporting

Handler = Callable[..., Any]


@dataclass(frozen=True)
class _Scenario:
    name: str
    table: str
    deliveries: list[Deliveries]
    complaint: str


@reporting
def deliver(
    handler: Annotated[
        str, typer.Argument(metavar="MODULE:HANDLER", help="Such as app.main:handler.")
    ],
    event: Annotated[str, typer.Argument(metavar="EVENT", help="A file, - for stdin, or JSON.")],
    times: Annotated[int, typer.Option(min=2, help="Deliveries in turn.")] = 2,
    workers: Annotated[int, typer.Option(min=2, help="Deliveries at once.")] = 2,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Count the calls of this function, such as app.mail.send."
        ),
    ] = None,
    fake: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The same, and answer None in its place."),
    ] = None,
    json: Json = False,
) -> None:
    """Deliver an event to your handler: twice, at once, with a failing ledger, and with crashes.

    The ledger is one in memory, whatever the handler names, unless it was given a Ledger object.
    What the handler does besides is done: many times, if nothing guards it. Run it where that does
    no harm, or --fake what would.

    The answer is negative if the work is done more than once, or if the handler is not guarded.
    """
    given = load_event(event)
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        work = _loaded(handler)
        effects = Effects()
        for name in watch or ():
            _enter(stack, name, effects.watch(name))
        for name in fake or ():
            _enter(stack, name, effects.watch(name, returns=None))
        scenarios = list(_scenarios(work, given, effects, times, workers))
    if json:
        print_json([_plain(scenario) for scenario in scenarios])
    else:
        for scenario in scenarios:
            out().print(scenario.name, style="bold")
            out().print(scenario.table, soft_wrap=True)
            if scenario.complaint:
                out().print(Text(scenario.complaint, "red"), soft_wrap=True)
            out().print()
    if any(scenario.complaint for scenario in scenarios):
        raise typer.Exit(int(Exit.FINDING))


def _scenarios(
    handler: Handler, event: Any, effects: Effects, times: int, workers: int
) -> Iterator[_Scenario]:
    in_turn = deliver_in_turn(handler, event, times, effects=effects)
    complaint = _not_once(in_turn)
    yield _Scenario(f"{times} deliveries in turn", in_turn.table(), [in_turn], complaint)
    if complaint:
        return
    at_once = deliver_concurrently(handler, event, workers, effects=effects)
    yield _Scenario(f"{workers} deliveries at once", at_once.table(), [at_once], _not_once(at_once))
    yield from _failing(handler, event, effects)
    yield _crashing(handler, event, effects)


def _failing(handler: Handler, event: Any, effects: Effects) -> Iterator[_Scenario]:
    """Two deliveries for each call of the ledger in turn, which fails once."""
    calm = FaultyLedger(MemoryLedger())
    deliver_in_turn(handler, event, 1, ledger=calm)
    for number, purpose in enumerate(calm.calls):
        ledger = FaultyLedger(MemoryLedger())
        ledger.inject(LedgerFault.throttle(), after=number)
        done = deliver_in_turn(handler, event, 2, ledger=ledger, effects=effects)
        twice = "the work was done twice" if done.executed > 1 else ""
        name = f"2 deliveries, the ledger fails at the {purpose} of the first"
        yield _Scenario(name, done.table(), [done], twice)


def _crashing(handler: Handler, event: Any, effects: Effects) -> _Scenario:
    report = deliver_with_crashes(handler, event, effects=effects)
    complaint = ""
    unanswered = [run.killed for run in report if not run.answered]
    if unanswered:
        complaint = f"never answered when killed {', '.join(unanswered)}"
    elif report.undisturbed:
        try:
            report.assert_once(allow_open=True)
        except AssertionError as error:
            complaint = str(error)
    return _Scenario(
        "killed at each place, and delivered again after its lease",
        report.table(),
        [run.deliveries for run in report],
        complaint,
    )


def _not_once(deliveries: Deliveries) -> str:
    if any(outcome is not None for outcome in deliveries.outcomes):
        executed = deliveries.executed
        return "" if executed == 1 else f"the work was done {executed} times, not once"
    if errors := [error for error in deliveries.errors if error]:
        return f"no delivery came to an outcome: the first raised {errors[0]}"
    return "the handler is not guarded: decorate it with idemguard.idempotent"


def _plain(scenario: _Scenario) -> dict[str, Any]:
    return {
        "scenario": scenario.name,
        "complaint": scenario.complaint,
        "runs": [
            {
                "deliveries": [
                    {"outcome": one.outcome, "attempt": one.attempt, "error": one.error}
                    for one in deliveries
                ],
                "effects": dict(deliveries.counts),
            }
            for deliveries in scenario.deliveries
        ],
    }


def _loaded(given: str) -> Handler:
    module, colon, path = given.partition(":")
    if not colon or not module or not path:
        raise InvalidOption(f"handler: {given!r} is not of the form MODULE:HANDLER")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidOption(f"handler: there is no module {error.name} here") from None
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise InvalidOption(f"handler: {module} has no {path} that can be called")
    return found  # type: ignore[no-any-return]


def _enter(stack: contextlib.ExitStack, name: str, watching: AbstractContextManager[Any]) -> None:
    try:
        stack.enter_context(watching)
    except (ImportError, AttributeError, TypeError) as error:
        raise InvalidOption(f"watch: {name} cannot be watched: {error}") from None
