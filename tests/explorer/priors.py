"""What stands under the name when a scenario begins, left by somebody who is gone."""

from __future__ import annotations

from idemguard.lifecycle import SWEEP_LEASE
from idemguard.record import Record, State, to_text

from .machines import Rules
from .world import World


def nothing(world: World, rules: Rules) -> None:
    """The name is free."""


def _lay(world: World, record: Record, ago: float, *, prev: int | None = None) -> None:
    """Put a record of somebody gone, written that many seconds before the start."""
    present, world.now = world.now, world.now - ago
    newest = world.kept[-1].number if world.kept else 0
    ticket: dict[str, object] = {"p": newest if prev is None else prev}
    if newest:
        ticket["s"] = round(world.now, 3)
    world.put(to_text(record, **ticket), "idemguard", bool(newest), -1)
    world.now = present


def _gone(rules: Rules, state: State = State.CLAIMED, token: str = "gone") -> Record:
    result = {"by": -1} if state is State.COMPLETED else None
    return Record(
        state, token=token, lease=rules.lease, retention=rules.retention, fence=1, result=result
    )


def stale_claim(world: World, rules: Rules) -> None:
    """A holder died; its lease is over."""
    _lay(world, _gone(rules), rules.lease + 1)


def live_claim(world: World, rules: Rules) -> None:
    """A holder died; its lease is not over yet."""
    _lay(world, _gone(rules), 1)


def released(world: World, rules: Rules) -> None:
    """The work failed and may be tried again."""
    _lay(world, _gone(rules), 3)
    _lay(world, _gone(rules, State.RELEASED), 2)


def completed(world: World, rules: Rules) -> None:
    """The work is done."""
    _lay(world, _gone(rules), 3)
    _lay(world, _gone(rules, State.COMPLETED), 2)


def expired(world: World, rules: Rules) -> None:
    """The work was done longer ago than it is kept for."""
    _lay(world, _gone(rules, State.COMPLETED), rules.retention + 2)


def left_barred(world: World, rules: Rules) -> None:
    """A sweeper died between its bar and its delete, long ago."""
    _lay(world, _gone(rules, State.COMPLETED), 2 * SWEEP_LEASE + rules.retention)
    _lay(world, Record(State.SWEPT, token="sweeper", lease=SWEEP_LEASE), SWEEP_LEASE + 1)


def noisy(world: World, rules: Rules) -> None:
    """A holder died, and somebody who lost wrote after it."""
    _lay(world, _gone(rules), rules.lease + 2)
    _lay(world, _gone(rules, token="loser"), rules.lease + 1, prev=0)


def expired_and_noisy(world: World, rules: Rules) -> None:
    """Done long ago, retried before, and somebody who lost wrote after it."""
    _lay(world, _gone(rules), rules.retention + 4)
    _lay(world, _gone(rules, State.COMPLETED), rules.retention + 3)
    _lay(world, _gone(rules, token="loser"), rules.retention + 2, prev=0)


def buried(world: World, rules: Rules) -> None:
    """Done a moment ago, under so much noise that the history no longer reaches down to it."""
    completed(world, rules)
    for _ in range(world.history):
        _lay(world, _gone(rules, token="loser"), 1, prev=0)
