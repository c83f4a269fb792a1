"""The SSM client that the ledger makes for itself, on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import aws_client
from .ssm_model import session


class ClientMaker(aws_client.ClientMaker):
    """Makes SSM clients from a model that is as short as the ledger's calls."""

    def __init__(self, *, region: str | None, endpoint_url: str | None) -> None:
        super().__init__("ssm", region=region, endpoint_url=endpoint_url)

    def _create(self, settings: Mapping[str, Any]) -> Any:
        from botocore.exceptions import BotoCoreError

        try:
            return session().create_client("ssm", **settings)
        except BotoCoreError:
            raise
        except Exception:
            # An SDK that works otherwise inside: slower, and just as good.
            return super()._create(settings)
