"""The least that IAM must allow: for the function that handles events, and for the one that sweeps.

What is granted follows the calls: a handler reads and writes records; a sweeper lists, reads in
batches, overwrites and deletes in batches, and creates nothing. The person on call needs the
sweeper's permissions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from .errors import InvalidOption

Role = Literal["handler", "sweeper"]

#: A key that AWS manages needs no permission of its own.
_MANAGED_KEY = "alias/aws/ssm"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which records a policy is about.

    Attributes:
        prefix: the ledger's.
        namespace: one application's records; all under the prefix by default.
        key_id: the KMS key of a ledger of SecureStrings: an ARN, an id or an alias.
        tier: of the parameters; KMS encrypts the two tiers in different ways.
        region, account, partition: for the ARNs; ``*`` is any.
    """

    prefix: str = "/idempotency"
    namespace: str = ""
    key_id: str | None = None
    tier: str = "Standard"
    region: str = "*"
    account: str = "*"
    partition: str = "aws"

    @property
    def records(self) -> str:
        """The ARN of the records."""
        path = "/".join(
            part for part in (*self.prefix.split("/"), self.namespace.strip("/")) if part
        )
        return f"arn:{self.partition}:ssm:{self.region}:{self.account}:parameter/{path}/*"


def policy(role: Role, scope: Scope) -> dict[str, Any]:
    """The policy document of a role, as IAM takes it.

    Raises:
        InvalidOption: there is no such role.
    """
    if role == "handler":
        statements = [_allow("IdemguardRecords", ["GetParameter", "PutParameter"], scope.records)]
    elif role == "sweeper":
        bars = _allow("IdemguardBars", ["PutParameter"], scope.records)
        # A sweeper bars what is there; that it can create nothing keeps a mistake small.
        bars["Condition"] = {"StringEquals": {"ssm:Overwrite": "true"}}
        statements = [
            _allow(
                "IdemguardRecords",
                ["DeleteParameters", "GetParameter", "GetParameters"],
                scope.records,
            ),
            bars,
            # It has no narrower resource.
            _allow("IdemguardListing", ["DescribeParameters"], "*"),
        ]
    else:
        raise InvalidOption(f"role: {role!r} is not handler or sweeper")
    if scope.key_id and scope.key_id != _MANAGED_KEY:
        statements.append(_key(scope, scope.key_id))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(sid: str, actions: Sequence[str], resource: str) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": [f"ssm:{action}" for action in actions],
        "Resource": resource,
    }


def _key(scope: Scope, key_id: str) -> dict[str, Any]:
    # https://docs.aws.amazon.com/kms/latest/developerguide/services-parameter-store.html
    encrypt = "kms:Encrypt" if scope.tier == "Standard" else "kms:GenerateDataKey"
    keys = f"arn:{scope.partition}:kms:{scope.region}:{scope.account}:key/"
    alias = key_id[key_id.find("alias/") :] if "alias/" in key_id else ""
    condition: dict[str, Any] = {"StringLike": {"kms:ViaService": f"ssm.{scope.region}.*"}}
    if alias:
        # A policy names keys, not aliases.
        condition["ForAnyValue:StringEquals"] = {"kms:ResourceAliases": alias}
    return {
        "Sid": "IdemguardKey",
        "Effect": "Allow",
        "Action": ["kms:Decrypt", encrypt],
        "Resource": f"{keys}*" if alias else key_id if key_id.startswith("arn:") else keys + key_id,
        "Condition": condition,
    }


def as_json(role: Role, scope: Scope) -> str:
    """The policy document as JSON."""
    return json.dumps(policy(role, scope), indent=2)


def as_sam(role: Role, scope: Scope) -> str:
    """The policy as YAML for a function's ``Policies`` in a SAM template."""
    here = _filled(scope, "${AWS::Region}", "${AWS::AccountId}", "${AWS::Partition}")
    lines = ["Policies:", '  - Version: "2012-10-17"', "    Statement:"]
    for statement in policy(role, here)["Statement"]:
        lines.append(f"      - Sid: {statement['Sid']}")
        lines.append("        Effect: Allow")
        lines.append("        Action:")
        lines += [f"          - {action}" for action in statement["Action"]]
        lines.append(f"        Resource: {_sub(statement['Resource'])}")
        if "Condition" in statement:
            lines.append("        Condition:")
            for test, keys in statement["Condition"].items():
                lines.append(f"          {test}:")
                lines += [f"            {name}: {_sub(value)}" for name, value in keys.items()]
    return "\n".join(lines)


def _sub(text: str) -> str:
    return ("!Sub " if "${" in text else "") + json.dumps(text)


def as_terraform(role: Role, scope: Scope) -> str:
    """The policy as a Terraform ``aws_iam_policy_document``."""
    here = _filled(
        scope,
        "${data.aws_region.current.name}",
        "${data.aws_caller_identity.current.account_id}",
        "${data.aws_partition.current.partition}",
    )
    document = policy(role, here)
    blocks = [
        f'data "{kind}" "current" {{}}'
        for kind in ("aws_caller_identity", "aws_partition", "aws_region")
        if f"data.{kind}.current" in json.dumps(document)
    ]
    statements = "\n\n".join(_statement(item) for item in document["Statement"])
    blocks.append(f'data "aws_iam_policy_document" "idemguard_{role}" {{\n{statements}\n}}')
    return "\n\n".join(blocks)


def _statement(statement: Mapping[str, Any]) -> str:
    lines = [
        "  statement {",
        f"    sid       = {json.dumps(statement['Sid'])}",
        f"    actions   = {json.dumps(statement['Action'])}",
        f"    resources = {json.dumps([statement['Resource']])}",
    ]
    for test, keys in statement.get("Condition", {}).items():
        for name, value in keys.items():
            lines += [
                "",
                "    condition {",
                f"      test     = {json.dumps(test)}",
                f"      variable = {json.dumps(name)}",
                f"      values   = {json.dumps([value])}",
                "    }",
            ]
    return "\n".join([*lines, "  }"])


def _filled(scope: Scope, region: str, account: str, partition: str) -> Scope:
    """The scope with what the tool at deployment knows, where nothing is given."""
    return replace(
        scope,
        region=region if scope.region == "*" else scope.region,
        account=account if scope.account == "*" else scope.account,
        partition=partition if scope.partition == "aws" else scope.partition,
    )


FORMATS: Mapping[str, Callable[[Role, Scope], str]] = {
    "json": as_json,
    "sam": as_sam,
    "terraform": as_terraform,
}
