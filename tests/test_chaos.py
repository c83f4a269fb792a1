"""Real clients in several processes through a proxy that breaks one call in ten; `make prove` runs more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.prove import chaos

KEYS = 100


def test_every_key_has_one_effect_and_none_is_lost_although_every_tenth_call_is_broken() -> None:
    result = chaos.chaos(KEYS, seed=1, processes=3, threads=6)
    print(result.figures)
    assert not result.broken
    assert result.acknowledged == result.copies
    assert result.executions == KEYS + result.repeats
    # Nothing is shown by a quiet sea.
    assert set(result.faults) == set(chaos.FAULTS)
    assert 0.05 < result.faults.total() / result.calls < 0.2
    assert min(result.failures, result.deaths, result.takeovers, result.refusals) > 0


def line(what: str, **facts: Any) -> dict[str, Any]:
    return {"what": what, "at": 0.0, "key": 0, **facts}


def run(name: str, at: float = 0.0, fence: int = 1, *, effect: bool = True) -> list[dict[str, Any]]:
    lines = [line("begun", run=name, digest="d", fence=fence, at=at)]
    lines += [line("effect", run=name, at=at)] if effect else []
    return [*lines, line("ended", run=name, at=at + 1)]


def acknowledged(copy: int, receipt: str) -> dict[str, Any]:
    return line("acknowledged", copy=copy, answer={"receipt": receipt}, at=9.0)


def happening(name: str) -> dict[str, Any]:
    return line("happening", name=name, digest="d")


GOOD = [*run("a"), acknowledged(0, "a"), acknowledged(1, "a")]


@pytest.mark.parametrize(
    ("lines", "broken"),
    [
        (GOOD, None),
        ([], "1 keys have no effect"),
        (GOOD[:-1], "1 copies were never acknowledged"),
        ([*GOOD, *run("b", at=2, fence=2)], "2 effects, 0 not recorded"),
        ([*GOOD, *run("b", at=2, fence=2), happening("COMPLETE_FAILED")], None),
        ([*GOOD[:-1], acknowledged(1, "b")], "2 different answers"),
        ([*GOOD, *run("b", at=0.5, fence=2, effect=False)], "two holders at once"),
        ([*GOOD, *run("b", at=2, fence=1, effect=False)], "fence did not rise"),
        ([*GOOD, line("unexpected", error="LedgerFull")], "LedgerFull"),
        ([*GOOD, happening("LEASE_LOST")], "1 leases were lost"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_judge_of_the_chaos_sees_what_is_broken(
    lines: list[dict[str, Any]], broken: str | None
) -> None:
    result = chaos.Chaos(keys=1, copies=2)
    chaos.judge(result, lines)
    assert len(result.broken) >= (broken is not None)
    if broken is None:
        assert not result.broken
    else:
        assert broken in "; ".join(result.broken)
