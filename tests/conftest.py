"""Fixtures for every test; no test can reach a real AWS account."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.servers import DUMMY_AWS, ministack_url
from tests.worlds import WORLDS, World

__all__ = ["event", "ministack_url"]

# For the tests of the fixtures that users get.
pytest_plugins = ["pytester"]

# Before any test module is imported, for some make clients at import time.
for name in list(os.environ):
    if name.startswith(("AWS_", "IDEMGUARD_", "POWERTOOLS_")):
        del os.environ[name]
os.environ.update(DUMMY_AWS)

# How long an example takes says more about the machine than about the code. In CI the same
# examples are drawn each time, so that a red run is about the change.
settings.register_profile("idemguard", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("prove", deadline=None, max_examples=1_000)
settings.load_profile("idemguard")


@pytest.fixture
def event() -> Callable[[str], Any]:
    """Loads tests/events/NAME.json, fresh at each call."""

    def load(name: str) -> Any:
        return json.loads((Path(__file__).parent / "events" / f"{name}.json").read_text())

    return load


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> World:
    """A ledger of each kind, with time standing still."""
    return WORLDS[request.param]()
