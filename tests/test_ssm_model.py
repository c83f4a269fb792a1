"""The client that the ledger makes for itself: same endpoints as the SDK's own, and a fall-back."""

from __future__ import annotations

from typing import Any

import boto3
import botocore.session
import pytest
from moto import mock_aws

from idemguard.clock import SYSTEM_CLOCK, Deadline
from idemguard.errors import LedgerMisconfigured
from idemguard.ledgers import open_ledger, ssm_client, ssm_model
from idemguard.ledgers.aws_client import AlreadySent, sent_once
from idemguard.ledgers.ssm_client import ClientMaker
from tests.servers import microburst, ssm_client_for

LONG = Deadline.after(SYSTEM_CLOCK, 3600)
_SDK = botocore.session.get_session()


def _regions() -> list[str]:
    known = [
        region
        for partition in _SDK.get_available_partitions()
        for region in _SDK.get_available_regions("ssm", partition, allow_non_regional=True)
        if not region.startswith("fips-")
    ]
    # Regions that are newer than the SDK's list resolve by their names.
    return [*known, "us-newer-7", "cn-newer-7"]


@pytest.mark.parametrize("region", _regions())
def test_the_endpoint_of_every_region_is_the_sdks(region: str) -> None:
    ours = ClientMaker(region=region, endpoint_url=None)(LONG)
    theirs = _SDK.create_client("ssm", region_name=region)

    assert _where(ours) == _where(theirs)


@pytest.mark.parametrize("setting", ["AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"])
@pytest.mark.parametrize("region", ["eu-west-1", "us-gov-west-1", "ca-central-1"])
def test_endpoint_settings_of_the_environment_are_followed(
    setting: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(setting, "true")

    ours = ClientMaker(region=region, endpoint_url=None)(LONG)
    theirs = boto3.Session().client("ssm", region_name=region)

    assert _where(ours) == _where(theirs)


def test_the_endpoint_variable_of_the_service_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSM", "http://127.0.0.1:1")

    assert ClientMaker(region=None, endpoint_url=None)(LONG).meta.endpoint_url == (
        "http://127.0.0.1:1"
    )


def test_an_sdk_that_works_otherwise_inside_gets_the_full_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> Any:
        raise AttributeError("no such thing in this SDK")

    monkeypatch.setattr(ssm_client, "session", broken)

    client = ClientMaker(region="eu-west-1", endpoint_url=None)(LONG)

    assert "SendCommand" in client.meta.service_model.operation_names


def test_the_short_model_describes_its_operations_as_the_sdk_does() -> None:
    theirs: Any = _SDK.get_service_model("ssm")
    ours = ssm_model.service_model()
    for name in ours["operations"]:
        operation = theirs.operation_model(name)
        for side, shape in (("Request", operation.input_shape), ("Result", operation.output_shape)):
            described = ours["shapes"][f"{name}{side}"]["members"]
            assert set(described) <= set(shape.members), name


@mock_aws
def test_its_calls_are_those_that_moto_knows() -> None:
    client = ClientMaker(region="eu-west-1", endpoint_url=None)(LONG)

    client.put_parameter(Name="/a/b", Value="v", Type="String", Overwrite=False, Tier="Standard")
    assert client.get_parameter(Name="/a/b")["Parameter"]["Value"] == "v"
    assert client.get_parameters(Names=["/a/b", "/a/c"])["InvalidParameters"] == ["/a/c"]
    assert client.describe_parameters()["Parameters"][0]["Name"] == "/a/b"
    assert client.delete_parameters(Names=["/a/b"])["DeletedParameters"] == ["/a/b"]


@pytest.mark.parametrize(
    "settings", ["endpoint_url=127.0.0.1:5155&region=eu-west-1", "region=not%20a%20region"]
)
def test_an_endpoint_or_region_that_is_none_says_what_to_check(settings: str) -> None:
    with pytest.raises(LedgerMisconfigured, match="AWS_DEFAULT_REGION"):
        open_ledger(f"ssm:///idempotency?{settings}").read("a/b/c")


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
def test_a_request_marked_so_is_sent_once_by_a_client_with_retries(
    mode: str, ministack_url: str
) -> None:
    lose = {"service": "ssm", "operation": "DeleteParameters", "response": {"abort_bytes": 0}}
    direct = ssm_client_for(ministack_url)
    direct.put_parameter(Name=f"/once/{mode}", Value="v", Type="String")

    with microburst(ministack_url, [lose]) as url:
        client = ssm_client_for(url, retries={"total_max_attempts": 4, "mode": mode})
        with pytest.raises(AlreadySent), sent_once(client, "ssm", "DeleteParameters"):
            client.delete_parameters(Names=[f"/once/{mode}"])

    # The answer was lost, and the name was free then for somebody else to take.
    assert direct.get_parameters(Names=[f"/once/{mode}"])["InvalidParameters"]


def _where(client: Any) -> tuple[Any, ...]:
    signer = client._request_signer
    return (
        client.meta.endpoint_url,
        client.meta.region_name,
        client.meta.partition,
        signer.region_name,
        signer.signing_name,
        signer.signature_version,
    )
