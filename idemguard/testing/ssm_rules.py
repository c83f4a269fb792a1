"""What Parameter Store refuses, as pure checks.

Sources, unless a line says otherwise: the API reference of PutParameter (also botocore's service
model, ``ssm/2014-11-06``) and the user guide's pages on parameter names, tiers and versions.
The error texts are this package's own: no code should read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import signature
from typing import Any

from botocore.exceptions import ParamValidationError
from botocore.loaders import create_loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

#: Newest versions that are kept.
VERSIONS_KEPT = 100
#: Names in one GetParameters or DeleteParameters.
BATCH = 10
#: Entries on one page of DescribeParameters and of GetParametersByPath.
DESCRIBE_PAGE = 50
PATH_PAGE = 10
#: Seconds after a delete during which the name cannot be used again.
REUSE_WAIT = 30.0

STANDARD = "Standard"
ADVANCED = "Advanced"
INTELLIGENT = "Intelligent-Tiering"
TIERS = (STANDARD, ADVANCED, INTELLIGENT)
VALUE_BYTES = {STANDARD: 4096, ADVANCED: 8192}

SECURE = "SecureString"
_TYPES = ("String", "StringList", SECURE)
_DESCRIPTION_LENGTH = 1024
_NAME_LENGTH = 1011
_LEVELS = 15
_NAME = re.compile(r"[a-zA-Z0-9_.-]+|(/[a-zA-Z0-9_.-]+)+")


class Refusal(Exception):
    """The store says no, with this AWS error code."""

    def __init__(self, code: str, message: str = "", *, status: int = 400) -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.status = status


def invalid(message: str) -> Refusal:
    """A refusal with the code that AWS uses for most malformed requests."""
    return Refusal("ValidationException", message)


def check_shape(operation: str, request: Mapping[str, Any], handler: Callable[..., object]) -> None:
    """Check members and their types before sending, as boto3 does.

    Raises:
        ParamValidationError: boto3 would refuse it, or this fake does not support the member.
    """
    model = _service_model().operation_model(operation)
    report = ParamValidator().validate(request, model.input_shape)
    if report.has_errors():
        raise ParamValidationError(report=report.generate_report())
    unsupported = set(request) - set(signature(handler).parameters)
    if unsupported:
        raise ParamValidationError(
            report=f"StrictSSM does not support {', '.join(sorted(unsupported))} in {operation}"
        )


@lru_cache(maxsize=1)
def _service_model() -> ServiceModel:
    return ServiceModel(create_loader().load_service_model("ssm", "service-2"), "ssm")


def check_name(name: str) -> None:
    """Refuse what cannot be the name of any parameter, to read or to write."""
    if not _NAME.fullmatch(name):
        raise invalid(
            "a name has letters, digits and _.- only, in levels that each follow a single slash"
        )


def check_new_name(name: str, arn: str) -> None:
    """Refuse names that cannot be written."""
    check_name(name)
    start = name.lstrip("/").lower()
    if start.startswith("aws"):
        # This code, not ValidationException: aws-solutions/quota-monitor-for-aws#30.
        raise Refusal("AccessDeniedException", "names that begin with aws are reserved")
    if start.startswith("ssm"):
        raise invalid("a name cannot begin with ssm")
    if name.strip("/").count("/") + 1 > _LEVELS:
        raise Refusal("HierarchyLevelLimitExceededException", f"at most {_LEVELS} levels")
    if len(arn) > _NAME_LENGTH:
        raise invalid(f"a name has at most {_NAME_LENGTH} characters, its ARN's prefix included")


def check_value(value: str) -> None:
    """Refuse values that no tier takes."""
    if not value:
        raise invalid("a value has at least one character")
    if "}}" in value.partition("{{")[2]:
        raise invalid("a value cannot hold anything within double braces")


def check_size(value: str, tier: str) -> None:
    """Refuse values too large for the tier, counted in bytes of UTF-8."""
    limit = VALUE_BYTES[tier]
    if len(value.encode()) > limit:
        raise invalid(f"a value of tier {tier} has at most {limit} bytes")


def check_description(description: str | None) -> None:
    """Refuse descriptions that are too long."""
    if description is not None and len(description) > _DESCRIPTION_LENGTH:
        raise invalid(f"a description has at most {_DESCRIPTION_LENGTH} characters")


def check_tier(tier: str | None) -> None:
    """Refuse unknown tiers."""
    if tier is not None and tier not in TIERS:
        raise invalid(f"a tier is one of {', '.join(TIERS)}")


def check_type(kind: str | None, key_id: str | None) -> None:
    """Refuse unknown types, and a KMS key for a type that is not encrypted."""
    if kind is not None and kind not in _TYPES:
        raise invalid(f"a type is one of {', '.join(_TYPES)}")
    if key_id is not None and kind is not None and kind != SECURE:
        raise invalid(f"KeyId goes with {SECURE} only")


def check_batch(names: Sequence[str]) -> None:
    """Refuse batches that are empty or too large."""
    if not 1 <= len(names) <= BATCH:
        raise invalid(f"a batch has 1 to {BATCH} names")


def check_path(path: str) -> None:
    """Refuse what is not a hierarchy."""
    if not path.startswith("/"):
        raise invalid("a path begins with a slash")
    if path != "/":
        check_name(path.removesuffix("/"))


def check_page_size(size: int, limit: int) -> None:
    """Refuse page sizes out of bounds."""
    if not 1 <= size <= limit:
        raise invalid(f"MaxResults is 1 to {limit}")
