"""``iam``: the least policy."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from ..errors import InvalidOption
from ..iam import FORMATS, Scope
from ..ledgers.ssm import SSMLedger
from ..options import Options
from .terminal import Json, LedgerUrl, ledger_of, print_json, reporting


class Role(str, Enum):
    """Whose policy."""

    handler = "handler"
    sweeper = "sweeper"


Format = Enum("Format", {name: name for name in FORMATS}, type=str)  # type: ignore[misc]


@reporting
def iam(
    role: Annotated[
        Role,
        typer.Option(help="The function that handles events; or the sweeper and who is on call."),
    ] = Role.handler,
    namespace: Annotated[str, typer.Option(help="Only this namespace's records.")] = "",
    prefix: Annotated[str | None, typer.Option(help="By default the ledger's.")] = None,
    key: Annotated[
        str | None, typer.Option(help="The KMS key of SecureStrings; by default the ledger's.")
    ] = None,
    region: Annotated[str, typer.Option(help="By default any.")] = "*",
    account: Annotated[str, typer.Option(help="By default any, which is the role's own.")] = "*",
    partition: Annotated[str, typer.Option(help="aws, aws-cn or aws-us-gov.")] = "aws",
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.json,  # type: ignore[attr-defined]
    ledger: LedgerUrl = None,
    json: Json = False,
) -> None:
    """Print the least IAM policy. Calls nothing."""
    of = ledger_of(ledger)
    if not isinstance(of, SSMLedger):
        raise InvalidOption("ledger: only a ledger on Parameter Store (ssm:///) has an IAM policy")
    if namespace := namespace.strip("/"):
        Options(namespace=namespace)
    scope = Scope(
        prefix=of.prefix if prefix is None else SSMLedger(prefix=prefix).prefix,
        namespace=namespace,
        key_id=key or of.key_id,
        tier=of.tier,
        region=region,
        account=account,
        partition=partition,
    )
    text = FORMATS[str(format.value)](role.value, scope)
    if json:
        print_json({"role": role.value, "format": format.value, "policy": text})
    else:
        print(text)
