"""Processes that are copies of one another are not taken for one another."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.servers import DUMMY_AWS

# Run in a process of its own: forking needs one without threads. A restored snapshot, as Lambda's
# SnapStart makes it, is the same thing: several processes go on from one warm memory.
_WARM = """
import os, random, secrets, uuid
from idemguard import Claim, Guard, InFlightError
from idemguard.clock import SYSTEM_CLOCK
from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger

CHILDREN = 8

def token(ledger):
    claim = Guard(ledger=ledger).claim("k")
    assert isinstance(claim, Claim)
    return claim.holding.record.token

def in_children(say):
    '''What each of several forks of this process, as it is now, says.'''
    pipes = []
    for _ in range(CHILDREN):
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                os.write(writing, say().encode())
            finally:
                os._exit(0)
        os.close(writing)
        pipes.append(os.fdopen(reading, "rb"))
    said = [pipe.read().decode() for pipe in pipes]
    for pipe in pipes:
        pipe.close()
        assert os.wait()[1] == 0
    return said

# Warm: everything has been used that chance could come from.
token(MemoryLedger()), random.random(), secrets.token_hex(), uuid.uuid4(), SYSTEM_CLOCK.jitter(1.0)
"""

_TOKENS = """
def say():
    random.seed(0)
    return token(MemoryLedger())

tokens = in_children(say) + [say(), say()]
assert all(len(text) == 32 for text in tokens), tokens
assert len(set(tokens)) == CHILDREN + 2, tokens
"""

_JITTER = """
def say():
    random.seed(0)
    return repr(SYSTEM_CLOCK.jitter(1.0))

assert len(set(in_children(say))) == CHILDREN
"""

_RACE = """
ledger = SSMLedger()
guard = Guard(ledger=ledger, namespace="identity", local_cache=False)
# A connection and a client that the children get copies of.
guard.run_exactly_once("warm-up", lambda: 1)
key = secrets.token_hex()

def say():
    random.seed(0)
    ran = []
    try:
        guard.run_exactly_once(key, lambda: ran.append(1))
    except InFlightError:
        pass
    return f"{guard.run_exactly_once('warm-up', lambda: 2).result}{len(ran)}"

# The parent's own connection is as good as before.
said = in_children(say)
assert guard.run_exactly_once(key, lambda: 2).result is None
assert sorted(said) == ["10"] * (CHILDREN - 1) + ["11"], said
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(_TOKENS, id="tokens differ"),
        pytest.param(_JITTER, id="back-off differs"),
        pytest.param(_RACE, id="one effect among siblings with copies of a client"),
    ],
)
def test_forks_of_a_warm_process_are_told_apart_although_random_is_seeded(
    script: str, ministack_url: str
) -> None:
    environment = {**os.environ, **DUMMY_AWS, "AWS_ENDPOINT_URL_SSM": ministack_url}
    done = subprocess.run(
        [sys.executable, "-c", _WARM + script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
