"""``list``, ``show`` and ``stats``: what a ledger holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from .. import failures, upkeep
from ..errors import InvalidOption
from ..ledger import Entry, Ledger
from ..options import DEFAULT_LEDGER
from ..record import State
from .terminal import (
    COLORS,
    Exit,
    Json,
    LedgerUrl,
    Under,
    colored,
    facts,
    fail,
    ledger_of,
    out,
    path_of,
    print_json,
    reporting,
    span,
    table,
    told,
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="NAMESPACE/OPERATION/DIGEST, the whole parameter name, or DIGEST alone, which is searched.",
    ),
]


def _listed(lines: Iterator[upkeep.Line]) -> Iterator[upkeep.Line]:
    """The same, with the count shown while it goes on."""
    count = 0
    with told().status("listing …") as status:
        for line in lines:
            yield line
            count += 1
            if count % 50 == 0:
                status.update(f"listing … {count} names")


@reporting
def list_(
    under: Under = "",
    state: Annotated[
        str, typer.Option(metavar="STATE", help="Only claimed, completed, released, …")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many names.")] = 1000,
    ledger: LedgerUrl = None,
    json: Json = False,
) -> None:
    """List records by what the store tells without reading them: state, age, time to expiry."""
    if state and state.upper() not in State.__members__:
        known = ", ".join(one.lower() for one in State.__members__)
        raise InvalidOption(f"state: {state!r} is not one of {known}")
    shown: list[upkeep.Line] = []
    more = False
    for line in _listed(upkeep.lines(ledger_of(ledger), path_of(under))):
        if state and (line.state is None or line.state.name != state.upper()):
            continue
        if len(shown) == limit:
            more = True
            break
        shown.append(line)
    if json:
        print_json(
            [
                {
                    "name": line.name,
                    "state": line.state.name.lower() if line.state else None,
                    "age": round(line.age, 3),
                    "expires_in": None if line.expires_in is None else round(line.expires_in, 3),
                }
                for line in shown
            ]
        )
        return
    if shown:
        out().print(
            f"{'state':<12} {'age':>8} {'expires in':>10}  name", style="bold", soft_wrap=True
        )
    for line in shown:
        word = line.state.name.lower() if line.state else "not a record"
        expires = line.expires_in
        when = "expired" if expires is not None and expires <= 0 else span(expires)
        # One line each, however narrow the terminal: a name must be copied whole.
        out().print(
            Text(f"{word:<12}", COLORS.get(word, "")),
            f"{span(line.age):>8} {when:>10}  {line.name}",
            soft_wrap=True,
        )
    told().print(
        f"{len(shown)} name{'' if len(shown) == 1 else 's'}"
        + (", and more: raise --limit" if more else "")
    )


def found(ledger: Ledger, name: str, url: str | None) -> Entry:
    """The record under a name as a user gives it; ends the command if there is none."""
    prefix = getattr(ledger, "prefix", "")
    if prefix and name.startswith(f"{prefix}/"):
        name = name[len(prefix) + 1 :]
    if "/" in name:
        entry = ledger.read(name)
    else:
        with told().status("searching …"):
            names = list(upkeep.names_of(ledger, name))
        if len(names) > 1:
            fail(f"several records have this digest: {', '.join(names)}", Exit.FINDING)
        entry = ledger.read(names[0]) if names else None
    if entry is None:
        fail(
            f"there is no record {name} in {url or DEFAULT_LEDGER}; give NAMESPACE/OPERATION/DIGEST "
            "or DIGEST: idemguard list shows the names",
            Exit.FINDING,
        )
    return entry


def describe(entry: Entry, *, with_result: bool) -> dict[str, Any]:
    """A record as plain values; results, step values and error arguments only if asked for."""
    record = entry.record
    claimed = record.state is State.CLAIMED
    told: dict[str, Any] = {
        "name": entry.name,
        "state": record.state.name.lower(),
        "age": round(entry.age, 3),
        "lease": record.lease,
        "lease_left": round(max(0.0, record.lease - entry.age), 3) if claimed else None,
        "retention": record.retention,
        "expires_in": round(record.horizon - entry.age, 3),
        "attempt": record.attempt,
        "fence": record.fence,
        "fingerprint": record.fingerprint,
        "steps": sorted(record.steps),
        "has_result": record.result is not None,
        "error_type": None if record.error is None else failures.error_type(record.error),
        "reason": record.reason or None,
    }
    if with_result:
        told["result"] = record.result
        told["error"] = record.error
        told["step_results"] = dict(record.steps)
    return told


@reporting
def show(
    name: Name,
    with_result: Annotated[
        bool, typer.Option("--with-result", help="Also results, which may be confidential.")
    ] = False,
    ledger: LedgerUrl = None,
    json: Json = False,
) -> None:
    """Show one record, without its results unless they are asked for."""
    told = describe(found(ledger_of(ledger), name, ledger), with_result=with_result)
    if json:
        print_json(told)
        return
    hidden = "kept; shown with --with-result" if told["has_result"] and not with_result else None
    out().print(
        facts(
            ("name", told["name"]),
            ("state", colored(told["state"])),
            ("age", span(told["age"])),
            ("lease left", None if told["lease_left"] is None else span(told["lease_left"])),
            ("expires in", span(told["expires_in"]) if told["expires_in"] > 0 else "expired"),
            ("attempt", told["attempt"]),
            ("fence", told["fence"]),
            ("fingerprint", told["fingerprint"]),
            ("steps done", ", ".join(told["steps"]) or None),
            ("error", told["error_type"]),
            ("reason", told["reason"]),
            ("result", hidden),
            *((field, told.get(field)) for field in ("result", "error", "step_results")),
        )
    )


@reporting
def stats(under: Under = "", ledger: LedgerUrl = None, json: Json = False) -> None:
    """Count records by state, operation and age; tell what room and what rate is left."""
    of = ledger_of(ledger)
    counted = upkeep.statistics(of, _listed(upkeep.lines(of, path_of(under))), whole=not under)
    if json:
        print_json(counted.as_dict())
        return
    for title, counts in (
        ("state", counted.states),
        ("operation", counted.operations),
        ("age", counted.ages),
    ):
        rows = table(title, ">records")
        for name, count in counts.items():
            rows.add_row(colored(name), str(count))
        out().print(rows, "")
    share = counted.share_of_quota
    out().print(
        facts(
            ("records", counted.records),
            ("expired", f"{counted.expired}, to be swept" if counted.expired else 0),
            ("head-room", _room(counted)),
            (
                "rate",
                f"{counted.per_second:.3g} records a second over the last hour"
                + ("" if share is None else f", {share:.1%} of the default quota"),
            ),
        )
    )


def _room(counted: upkeep.Statistics) -> str | None:
    if counted.head_room is None:
        return None
    return f"at most {counted.head_room} of {counted.capacity}; other parameters count too"
