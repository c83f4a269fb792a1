"""The fixtures as a user's project finds them: installed, with nothing to import or configure."""

from __future__ import annotations

import subprocess
import sys

import pytest

HANDLER = """
from idemguard import idempotent

sent = []

@idempotent(key="id", retention=3600)
def handler(event, context):
    sent.append(event["id"])
    return len(sent)
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A user's project with one handler."""
    pytester.makepyfile(users_shop=HANDLER)
    return pytester


def test_the_fixtures_are_listed_with_what_they_do(pytester: pytest.Pytester) -> None:
    listed = pytester.runpytest("--fixtures").stdout.str()
    assert "idempotency_ledger" in listed
    assert "A new MemoryLedger in place of every ledger" in listed
    assert "idempotency_outcomes" in listed
    assert "idempotency_clock" in listed


def test_each_test_has_a_ledger_of_its_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest, users_shop

        @pytest.mark.parametrize("test", [1, 2])
        def test_runs_once(test, idempotency_ledger):
            users_shop.sent.clear()
            assert [users_shop.handler({"id": "a"}, None) for _ in range(3)] == [1, 1, 1]
            assert users_shop.sent == ["a"]
            [page] = idempotency_ledger.scan()
            assert len(page.items) == 1
        """
    )
    project.runpytest().assert_outcomes(passed=2)


def test_outcomes_are_collected_as_they_happen(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import users_shop

        def test_outcomes(idempotency_ledger, idempotency_outcomes):
            assert idempotency_outcomes == []
            users_shop.handler({"id": "a"}, None)
            users_shop.handler({"id": "a"}, None)
            assert [each["outcome"] for each in idempotency_outcomes] == [
                "EXECUTED", "SKIPPED_COMPLETED"
            ]
        """
    )
    project.runpytest().assert_outcomes(passed=1)


def test_the_clock_lets_retention_run_out(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import users_shop
        from idemguard.testing import deliver

        def test_time(idempotency_clock, idempotency_ledger):
            first = users_shop.handler({"id": "a"}, None)
            idempotency_clock.advance(3599)
            assert users_shop.handler({"id": "a"}, None) == first
            idempotency_clock.advance(2)
            assert users_shop.handler({"id": "a"}, None) == first + 1

        def test_time_between_deliveries(idempotency_clock, idempotency_ledger):
            assert deliver(users_shop.handler, {"id": "a"}).executed == 1
            assert deliver(users_shop.handler, {"id": "a"}).executed == 0
            idempotency_clock.advance(3601)
            assert deliver(users_shop.handler, {"id": "a"}).executed == 1
        """
    )
    project.runpytest().assert_outcomes(passed=2)


def test_a_failing_assertion_shows_what_was_delivered(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import users_shop
        from idemguard.testing import deliver

        def test_wrong(idempotency_ledger):
            assert deliver(users_shop.handler, {"id": "a"}).executed == 2
        """
    )
    result = project.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 = <EXECUTED, SKIPPED_COMPLETED>.executed*"])


def test_loading_the_plugin_loads_nothing_that_a_run_may_not_need() -> None:
    script = (
        "import sys, idemguard.pytest_plugin; "
        "found = {'boto3', 'botocore', 'pydantic', 'aws_lambda_powertools', 'idemguard.testing', "
        "'asyncio'} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
