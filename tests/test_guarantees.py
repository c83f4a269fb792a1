"""The page of guarantees: its checks are there, and what it says is not promised is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from idemguard import Claim, Guard, Outcome
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing.frozen_clock import FrozenClock
from tests.prove.__main__ import PROVERS
from tests.worlds import World, ssm_world

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")


@pytest.fixture
def ssm() -> World:
    return ssm_world()


def delete(world: World) -> None:
    """As a person would, by hand."""
    [name] = world.names
    world.ssm.delete_parameter(Name=f"/idempotency/{name}")


# The page.


def test_every_check_that_the_page_names_exists() -> None:
    nodes = sorted(set(re.findall(r"`(tests/[^`\s]+)`", PAGE)))
    assert len(nodes) > 30
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *nodes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_attack_is_on_the_page_and_none_that_there_is_not() -> None:
    named = re.findall(r"`python -m tests\.prove ([^`]*)`", PAGE)
    assert {name for command in named for name in re.findall(r"--only (\w+)", command)} == set(
        PROVERS
    )
    assert set(re.findall(r"(--\w+)", " ".join(named))) == {"--only", "--seconds", "--seed"}
    assert re.findall(r"^\| `(\w+)` \| ", PAGE, re.M) == list(PROVERS)


def test_what_a_promise_rests_on_is_on_the_page() -> None:
    rows = set(re.findall(r"^\| ([AN]\d+) \|", PAGE, re.M))
    assert set(re.findall(r"\b[AN]\d+\b", PAGE)) == rows


# What is not promised.


def test_a_deleted_record_is_forgotten_with_its_result_and_its_fence(ssm: World) -> None:
    guard = Guard(ledger=ssm.ledger, clock=ssm.clock, local_cache=False, lease=60)
    guard.run_exactly_once("k", lambda: "first")
    held = guard.claim("other")
    assert isinstance(held, Claim)
    guard.complete(held)
    for name in ssm.names:
        ssm.ssm.delete_parameter(Name=f"/idempotency/{name}")
    ssm.clock.advance(31)

    assert guard.run_exactly_once("k", lambda: "again").result == "again"
    behind = FrozenClock(wall=ssm.clock.wall() - 3600)
    machine = Guard(ledger=SSMLedger(ssm.ssm, clock=behind), clock=behind, local_cache=False)
    claim = machine.claim("other")
    assert isinstance(claim, Claim)
    assert claim.fencing_token < held.fencing_token


@pytest.mark.parametrize("claimed_meanwhile", [False, True])
def test_a_record_that_is_deleted_in_mid_work_is_written_anew_by_its_holder(
    ssm: World, claimed_meanwhile: bool
) -> None:
    guard = Guard(ledger=ssm.ledger, clock=ssm.clock, local_cache=False, lease=900)
    claim = guard.claim("k")
    assert isinstance(claim, Claim)
    delete(ssm)
    ssm.clock.advance(31)
    if claimed_meanwhile:
        guard.run_exactly_once("k", lambda: "another's")
    guard.complete(claim, "the holder's")

    replay = guard.run_exactly_once("k", lambda: "a third")
    assert replay.outcome is Outcome.SKIPPED_COMPLETED
    assert replay.result == ("another's" if claimed_meanwhile else "the holder's")


def test_a_warm_container_sees_a_deleted_record_after_a_quarter_of_an_hour(ssm: World) -> None:
    warm = Guard(ledger=ssm.ledger, clock=ssm.clock, lease=60)
    warm.run_exactly_once("k", lambda: "first")
    delete(ssm)
    ssm.clock.advance(880)
    assert warm.run_exactly_once("k", lambda: "again").result == "first"
    ssm.clock.advance(30)
    assert warm.run_exactly_once("k", lambda: "again").result == "again"
