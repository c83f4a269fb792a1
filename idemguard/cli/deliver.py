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
    note: str = ""


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
    allow_open: Annotated[
        bool,
        typer.Option(
            "--allow-open",
            help="Accept a repeat out of the moment between an effect and the note of it.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Deliver an event to your handler: twice, at once, with a failing ledger, and with crashes.

    The ledger is one in memory, whatever the handler names, unless it was given a Ledger object.
    What the handler does besides is done: many times, if nothing guards it. Run it where that does
    no harm, or --fake what would.

    The answer is negative if the work is done more than once, or if the handler is not guarded.
    """
    given = load_event(event)
    whole = not sys.stdout.isatty()
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        work = _loaded(handler)
        effects = Effects()
        for name in watch or ():
            _enter(stack, name, effects.watch(name))
        for name in fake or ():
            _enter(stack, name, effects.watch(name, returns=None))
        scenarios = list(_Trial(work, given, effects, whole, allow_open).scenarios(times, workers))
    if json:
        print_json([_plain(scenario) for scenario in scenarios])
    else:
        for scenario in scenarios:
            out().print(scenario.name, style="bold")
            out().print(scenario.table, soft_wrap=True)
            if scenario.note:
                out().print(Text(f"note: {scenario.note}", "yellow"), soft_wrap=True)
            if scenario.complaint:
                out().print(Text(scenario.complaint, "red"), soft_wrap=True)
            out().print()
    if any(scenario.complaint for scenario in scenarios):
        raise typer.Exit(int(Exit.FINDING))


@dataclass(frozen=True)
class _Trial:
    handler: Handler
    event: Any
    effects: Effects
    whole: bool
    allow_open: bool

    def scenarios(self, times: int, workers: int) -> Iterator[_Scenario]:
        """One after the other; only the first if that is bad already."""
        done = deliver_in_turn(self.handler, self.event, times, effects=self.effects)
        complaint = _not_once(done)
        keys = len(frozenset[str]().union(*(one.keys for one in done)))
        yield self._told(
            f"{times} deliveries in turn",
            done,
            complaint,
            _SEVERAL.format(keys) if keys > 1 else "",
        )
        if complaint:
            return
        done = deliver_concurrently(self.handler, self.event, workers, effects=self.effects)
        # A BatchProcessor that two threads share loses records: then keys tell nothing.
        complaint = _not_once(done, same_keys=keys <= 1)
        note = _AT_ONCE if keys > 1 else ""
        yield self._told(f"{workers} deliveries at once", done, complaint, note)
        yield from self._failing()
        yield self._crashing()

    def _told(self, name: str, done: Deliveries, complaint: str, note: str = "") -> _Scenario:
        return _Scenario(name, done.table(whole=self.whole), [done], complaint, note)

    def _failing(self) -> Iterator[_Scenario]:
        """Two deliveries for each call of the ledger in turn, which fails once."""
        calm = FaultyLedger(MemoryLedger())
        deliver_in_turn(self.handler, self.event, 1, ledger=calm)
        for number, purpose in enumerate(calm.calls):
            ledger = FaultyLedger(MemoryLedger())
            ledger.inject(LedgerFault.throttle(), after=number)
            done = deliver_in_turn(self.handler, self.event, 2, ledger=ledger, effects=self.effects)
            name = f"2 deliveries, the ledger fails at the {purpose} of the first"
            if calm.calls.count(purpose) > 1:
                name += f", call {number + 1} of {len(calm.calls)}"
            yield self._told(name, done, "the work was done twice" if done.executed > 1 else "")

    def _crashing(self) -> _Scenario:
        report = deliver_with_crashes(self.handler, self.event, effects=self.effects)
        complaint = ""
        unanswered = [run.killed for run in report if not run.answered]
        if unanswered:
            complaint = f"never answered when killed {', '.join(unanswered)}"
        elif report.undisturbed:
            try:
                report.assert_once(allow_open=self.allow_open)
            except AssertionError as error:
                complaint = str(error).replace("assert_once(allow_open=True)", "--allow-open")
        return _Scenario(
            "killed at each place, and delivered again after its lease",
            report.table(),
            [run.deliveries for run in report],
            complaint,
        )


def _not_once(deliveries: Deliveries, *, same_keys: bool = True) -> str:
    first, *others = deliveries
    if any(outcome is not None for outcome in deliveries.outcomes):
        if deliveries.executed != 1:
            many = ", for one of its keys" if len(deliveries.executions) > 1 else ""
            return f"the work was done {deliveries.executed} times, not once{many}"
        other = Deliveries(others).executions.keys() - first.keys
        if same_keys and other and first.raised is None:
            return "the work was done again, under another key: the key differs by delivery"
        return ""
    if errors := [error for error in deliveries.errors if error]:
        return f"no delivery came to an outcome: the first raised {errors[0]}"
    return "the handler is not guarded: decorate it with idemguard.idempotent"


_SEVERAL = (
    "{} keys were seen in one event, as in a batch: executions are counted for each key. To look at "
    "one record, deliver that to the function that handles records"
)
_AT_ONCE = (
    "if a global BatchProcessor of Powertools is at work here, it cannot serve two threads of one "
    "process, and Lambda never asks that of it: what is raised or missing may come from that. Look "
    "at the deliveries in turn, or deliver one record to the function that handles records"
)


def _plain(scenario: _Scenario) -> dict[str, Any]:
    return {
        "scenario": scenario.name,
        "complaint": scenario.complaint,
        "note": scenario.note,
        "runs": [
            {
                "deliveries": [
                    {
                        "outcome": one.outcome,
                        "outcomes": dict(one.settled),
                        "attempt": one.attempt,
                        "error": one.error,
                    }
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
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise InvalidOption(f"handler: there is no module {error.name} here") from None
        raise InvalidOption(
            f"handler: {module} cannot be imported: there is no module {error.name} here"
        ) from None
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidOption(f"handler: {module} cannot be imported: {told}") from None
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise InvalidOption(f"handler: {module} has no {path} that can be called")
    return found  # type: ignore[no-any-return]


def _enter(stack: contextlib.ExitStack, name: str, watching: AbstractContextManager[Any]) -> None:
    try:
        stack.enter_context(watching)
    except Exception as error:  # also whatever a module of theirs raises when it is imported
        raise InvalidOption(f"watch: {name} cannot be watched: {error}") from None
