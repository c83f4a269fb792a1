"""`make prove` runs what it is asked to, prints the figures, and fails when a promise was broken."""

from __future__ import annotations

import pytest

from tests.prove import __main__ as prove
from tests.prove.proof import Proof


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Two provers, of which the second finds a broken promise; what they were asked for."""
    calls: list[tuple[str, int, int]] = []

    def good(seconds: float, seed: int) -> Proof:
        calls.append(("good", round(seconds), seed))
        return Proof("good", {"keys": 2000, "losses": 0, "kinds": "a 1, b 2"}, seconds=1.4)

    def bad(seconds: float, seed: int) -> Proof:
        calls.append(("bad", round(seconds), seed))
        return Proof("bad", {"schedules": 7}, ["two holders at once"])

    provers = {"good": prove.Prover("works", 0.3, good), "bad": prove.Prover("fails", 0.1, bad)}
    monkeypatch.setattr(prove, "PROVERS", provers)
    return calls


def test_all_attacks_share_the_time_and_one_broken_promise_fails(
    asked: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert prove.main(["--seconds", "40", "--seed", "5"]) == 1
    assert asked == [("good", 30, 5), ("bad", 10, 5)]
    printed = capsys.readouterr().out
    assert "BROKEN: two holders at once" in printed
    assert [line.split() for line in printed.splitlines()[-3:]] == [
        ["attack", "schedules", "keys", "losses", "broken", "promises", "seconds"],
        ["good", "2,000", "0", "0", "1"],
        ["bad", "7", "1", "0"],
    ]


def test_one_attack_can_be_chosen_and_has_all_of_the_time(
    asked: list[tuple[str, int, int]],
) -> None:
    assert prove.main(["--only", "good", "--seconds", "40", "--seed", "5"]) == 0
    assert asked == [("good", 40, 5)]


def test_an_attack_that_there_is_not_is_wrong_usage() -> None:
    with pytest.raises(SystemExit, match="2"):
        prove.main(["--only", "nothing"])
