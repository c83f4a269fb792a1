from __future__ import annotations

import pytest

from idemguard import Ledger, sources
from idemguard.clock import Deadline
from idemguard.ledger import Entry
from idemguard.ledgers.memory import MemoryLedger
from idemguard.record import Record
from samples import demo
from samples.registration_expiry import handler as job


@pytest.fixture(autouse=True)
def _nothing_published() -> None:
    job.published.clear()


def test_the_demo_is_right_and_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    for sample in ("registration_expiry", "multi_step_order", "outbox"):
        assert any(line.strip().startswith(sample) for line in lines)


class Forgetful(MemoryLedger):
    """Knows of nothing that was there before."""

    def create(self, name: str, record: Record, *, deadline: Deadline | None = None) -> Entry:
        return MemoryLedger().create(name, record)


def test_without_protection_the_demo_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forgetful: type[Ledger] = Forgetful
    monkeypatch.setattr(demo, "MemoryLedger", forgetful)
    monkeypatch.setattr(demo, "PATIENCE", 0.1)
    assert demo.main() == 1
    assert "<- should be" in capsys.readouterr().out


def test_every_ready_made_key_is_shown_that_an_event_file_is_there_for() -> None:
    assert set(sources.ALL) - set(demo.FILES) == {"ALB", "FUNCTION_URL", "RABBITMQ"}
