"""The local servers do what the other tests take for granted."""

from __future__ import annotations

import pytest
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.exceptions import HTTPClientError

from tests.servers import CannotStart, microburst, serving, ssm_client_for, tool

LOSE_FIRST_WRITE = {
    "service": "ssm",
    "operation": "PutParameter",
    "times": 1,
    "response": {"abort_bytes": 0},
}


def test_ministack_keeps_a_parameter_and_tells_the_time(ministack_url: str) -> None:
    client = ssm_client_for(ministack_url)
    client.put_parameter(Name="/servers/kept", Value="v", Type="String")
    answer = client.get_parameter(Name="/servers/kept")
    assert answer["Parameter"]["Value"] == "v"
    assert "date" in answer["ResponseMetadata"]["HTTPHeaders"]


def test_microburst_loses_the_answer_of_a_write_that_was_applied(ministack_url: str) -> None:
    with microburst(ministack_url, [LOSE_FIRST_WRITE]) as url:
        client = ssm_client_for(url, retries={"total_max_attempts": 1})
        with pytest.raises((BotoConnectionError, HTTPClientError)):
            client.put_parameter(Name="/servers/lost", Value="v", Type="String")
        with pytest.raises(client.exceptions.ParameterAlreadyExists):
            client.put_parameter(Name="/servers/lost", Value="w", Type="String")
        assert client.get_parameter(Name="/servers/lost")["Parameter"]["Value"] == "v"


def test_a_server_that_cannot_start_is_an_error_with_its_output() -> None:
    command = [tool("python"), "-c", "raise SystemExit('no port for me')"]
    with (
        pytest.raises(CannotStart, match="no port for me"),
        serving(command, {}, lambda: False),
    ):
        pass
