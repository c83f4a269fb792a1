"""``key``: what a key expression makes of events."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from .. import sources
from ..canonical import plain
from ..errors import InvalidOption
from ..guard import record_name
from ..keys import MISSING, Selector, make_key
from ..options import Options
from ..volatile import Finding, findings
from .events import load_event
from .terminal import Exit, Json, facts, out, print_json, reporting


@dataclass(frozen=True)
class _Delivery:
    event: str
    digest: str | None
    name: str | None
    selected: Any
    missing: str


@reporting
def key(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="EXPR EVENT...",
            help="A key expression, and events: files, - for stdin, or JSON.",
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", help="A key for each record of a batch, as in SQS.")
    ] = False,
    suggest: Annotated[
        bool,
        typer.Option("--suggest", help="Name the ready-made expression; all arguments are events."),
    ] = False,
    operation: Annotated[
        str, typer.Option(help="The work's name, which is part of the key.")
    ] = "handler",
    namespace: Annotated[str, typer.Option(help="For the record's name.")] = "default",
    json: Json = False,
) -> None:
    """Show the key of each event: what is missing and why, what is volatile, whether they agree.

    With several events, they are taken for deliveries of the same work: the answer is negative if
    their keys differ. It also is if a key is missing, or holds a field that changes from delivery
    to delivery.
    """
    Options(namespace=namespace)
    if suggest:
        return _suggest([(given, load_event(given)) for given in arguments], json)
    if len(arguments) < 2:
        raise InvalidOption("event: give one or more after the expression")
    expression, *given = arguments
    selector = Selector(expression)
    deliveries = [
        _delivery(selector, name, event, operation, namespace)
        for source in given
        for name, event in _events(source, records)
    ]
    volatile = findings(selector)
    digests = {delivery.digest for delivery in deliveries}
    agree = len(digests) == 1 and None not in digests
    if json:
        print_json(
            {
                "expression": expression,
                "operation": operation,
                "deliveries": [asdict(delivery) for delivery in deliveries],
                "volatile": [asdict(finding) for finding in volatile],
                "agree": agree,
            }
        )
    else:
        _print(deliveries, volatile, agree)
    if volatile or None in digests or (not agree and not records):
        raise typer.Exit(int(Exit.FINDING))
    return None


def _events(source: str, records: bool) -> list[tuple[str, Any]]:
    event = load_event(source)
    label = source if len(source) <= 40 else source[:39] + "…"
    if not records:
        return [(label, event)]
    return [
        (f"{label} record {number}", record)
        for number, record in enumerate(sources.records(event), 1)
    ]


def _delivery(
    selector: Selector, name: str, event: Any, operation: str, namespace: str
) -> _Delivery:
    value, missing = selector.find(event)
    if value is MISSING:
        if sources.records(event) != [event]:
            missing += "; this is a batch: with --records its records are looked at one by one"
        return _Delivery(name, None, None, None, missing)
    made = make_key(operation, value)
    return _Delivery(name, made.digest, record_name(namespace, made), plain(value), "")


def _print(deliveries: list[_Delivery], volatile: list[Finding], agree: bool) -> None:
    for delivery in deliveries:
        selected = jsonlib.dumps(delivery.selected, default=str, ensure_ascii=False)
        out().print(
            facts(
                ("event", delivery.event),
                ("selected", None if delivery.missing else Text(selected)),
                ("missing", Text(delivery.missing, "red") if delivery.missing else None),
                ("digest", delivery.digest),
                ("record", delivery.name),
            ),
            "",
        )
    for finding in volatile:
        out().print(Text.assemble(("volatile: ", "yellow"), str(finding)))
    if len(deliveries) > 1:
        count = len({delivery.digest for delivery in deliveries if delivery.digest})
        text = f"all {len(deliveries)} have the same key" if agree else f"{count} different keys"
        out().print(Text(text, "green" if agree else "yellow"))


def _suggest(events: list[tuple[str, Any]], json: bool) -> None:
    found = [
        (name, sources.suggest(event), sources.records(event) != [event]) for name, event in events
    ]
    if json:
        print_json(
            [
                {
                    "event": name,
                    "source": suggested[0] if suggested else None,
                    "expression": suggested[1] if suggested else None,
                    "for_each_record": each,
                }
                for name, suggested, each in found
            ]
        )
    else:
        for name, suggested, each in found:
            use = f"idemguard.sources.{suggested[0]}" if suggested else "(no known source)"
            out().print(
                facts(
                    ("event", name),
                    ("use", use + (", for each of its records" if suggested and each else "")),
                    ("which is", suggested[1] if suggested else None),
                ),
                "",
            )
    if not all(suggested for _, suggested, _ in found):
        raise typer.Exit(int(Exit.FINDING))
