"""What the SDK must know of SSM to make the five calls of the ledger, and a session that knows no more.

`boto3.client("ssm")` parses a model of 950 KB and the endpoints of every service there is, and
lists the SDK's data folder. The calls that are described here need a few dozen names of it, and the
endpoint rules and partitions are still the SDK's own.
"""

from __future__ import annotations

from typing import Any

VERSION = "2014-11-06"
_TEXT = "Text"
_TEXTS = "Texts"
_NUMBER = "Number"
_FLAG = "Flag"
_TIME = "Time"


def _structure(**members: str) -> dict[str, Any]:
    return {"type": "structure", "members": {name: {"shape": of} for name, of in members.items()}}


def _list(of: str) -> dict[str, Any]:
    return {"type": "list", "member": {"shape": of}}


_SHAPES: dict[str, Any] = {
    _TEXT: {"type": "string"},
    _TEXTS: _list(_TEXT),
    _NUMBER: {"type": "long"},
    _FLAG: {"type": "boolean"},
    _TIME: {"type": "timestamp"},
    "Parameter": _structure(
        Name=_TEXT, Type=_TEXT, Value=_TEXT, Version=_NUMBER, LastModifiedDate=_TIME
    ),
    "Parameters": _list("Parameter"),
    "Metadata": _structure(
        Name=_TEXT,
        Type=_TEXT,
        Description=_TEXT,
        Tier=_TEXT,
        Version=_NUMBER,
        LastModifiedDate=_TIME,
    ),
    "MetadataList": _list("Metadata"),
    "Filter": _structure(Key=_TEXT, Option=_TEXT, Values=_TEXTS),
    "Filters": _list("Filter"),
    "PutParameterRequest": _structure(
        Name=_TEXT,
        Description=_TEXT,
        Value=_TEXT,
        Type=_TEXT,
        KeyId=_TEXT,
        Overwrite=_FLAG,
        Tier=_TEXT,
    ),
    "PutParameterResult": _structure(Version=_NUMBER, Tier=_TEXT),
    "GetParameterRequest": _structure(Name=_TEXT, WithDecryption=_FLAG),
    "GetParameterResult": _structure(Parameter="Parameter"),
    "GetParametersRequest": _structure(Names=_TEXTS, WithDecryption=_FLAG),
    "GetParametersResult": _structure(Parameters="Parameters", InvalidParameters=_TEXTS),
    "DeleteParametersRequest": _structure(Names=_TEXTS),
    "DeleteParametersResult": _structure(DeletedParameters=_TEXTS, InvalidParameters=_TEXTS),
    "DescribeParametersRequest": _structure(
        ParameterFilters="Filters", MaxResults=_NUMBER, NextToken=_TEXT
    ),
    "DescribeParametersResult": _structure(Parameters="MetadataList", NextToken=_TEXT),
}

_OPERATIONS = (
    "PutParameter",
    "GetParameter",
    "GetParameters",
    "DeleteParameters",
    "DescribeParameters",
)


def service_model() -> dict[str, Any]:
    """The service description, in the SDK's own format."""
    return {
        "version": "2.0",
        "metadata": {
            "apiVersion": VERSION,
            "auth": ["aws.auth#sigv4"],
            "endpointPrefix": "ssm",
            "jsonVersion": "1.1",
            "protocol": "json",
            "protocols": ["json"],
            "serviceId": "SSM",
            "signatureVersion": "v4",
            "targetPrefix": "AmazonSSM",
            "uid": f"ssm-{VERSION}",
        },
        "operations": {
            name: {
                "name": name,
                "http": {"method": "POST", "requestUri": "/"},
                "input": {"shape": f"{name}Request"},
                "output": {"shape": f"{name}Result"},
            }
            for name in _OPERATIONS
        },
        "shapes": _SHAPES,
    }


def session() -> Any:
    """A botocore session that knows SSM only.

    Raises:
        Exception: of any kind, where this SDK's inner workings are not those that it relies on.
    """
    from botocore.loaders import Loader
    from botocore.session import get_session

    class OnlySSM(Loader):  # type: ignore[misc]
        def load_service_model(
            self, service_name: str, type_name: str, api_version: str | None = None
        ) -> Any:
            if type_name == "service-2":
                return service_model()
            return self.load_data(f"ssm/{VERSION}/{type_name}")

        def load_data_with_path(self, name: str) -> Any:
            if name == "endpoints":
                partitions, path = super().load_data_with_path("partitions")
                return _endpoints(partitions), path
            return super().load_data_with_path(name)

    known = get_session()
    if known.get_config_variable("use_fips_endpoint") or known.get_config_variable(
        "use_dualstack_endpoint"
    ):
        raise LookupError("these endpoints follow rules of their own")
    known.register_component("data_loader", OnlySSM())
    return known


def _endpoints(partitions: dict[str, Any]) -> dict[str, Any]:
    """The SDK's list of endpoints, for SSM alone, from its list of partitions."""
    return {
        "version": 3,
        "partitions": [
            {
                "partition": partition["id"],
                "partitionName": partition["id"],
                "dnsSuffix": partition["outputs"]["dnsSuffix"],
                "regionRegex": partition["regionRegex"],
                "regions": {},
                "defaults": {
                    "hostname": "{service}.{region}.{dnsSuffix}",
                    "protocols": ["https"],
                    "signatureVersions": ["v4"],
                },
                "services": {"ssm": {"endpoints": {name: {} for name in partition["regions"]}}},
            }
            for partition in partitions["partitions"]
        ],
    }
