"""Parameter Store's calls, as many as the ledger makes. Knows nothing of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from ..clock import Clock, Deadline
from ..errors import LedgerFull, LedgerMisconfigured
from .aws_calls import Calls, date_of

EXISTS = "ParameterAlreadyExists"
NOT_FOUND = "ParameterNotFound"
NO_VERSION = "ParameterVersionNotFound"
CONTENTION = "TooManyUpdates"


class Refused(Exception):
    """An answer that the ticket rule has a use for: one of the four codes above."""

    def __init__(self, code: str, date: float | None) -> None:
        super().__init__(code)
        self.code = code
        self.date = date


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of a parameter: number, value, and when it landed (seconds since the epoch)."""

    number: int
    text: str
    modified: float


class Store(Calls):
    """The calls, with the store's own time (the response's ``Date``) beside every answer."""

    service = "ssm"
    title = "SSM"
    methods: ClassVar[Mapping[str, str]] = {
        "PutParameter": "put_parameter",
        "GetParameter": "get_parameter",
        "GetParameters": "get_parameters",
        "DeleteParameters": "delete_parameters",
        "DescribeParameters": "describe_parameters",
    }
    tells: ClassVar[Mapping[str, str]] = {
        "PutParameter": "Version",
        "GetParameter": "Parameter",
        "GetParameters": "Parameters",
        "DescribeParameters": "Parameters",
    }

    def __init__(
        self,
        client: Callable[[Deadline], Any],
        clock: Clock,
        *,
        root: str,
        tier: str,
        key_id: str | None,
    ) -> None:
        super().__init__(client, clock)
        self._root = root
        self._tier = tier
        self._key_id = key_id

    def put(
        self, name: str, text: str, description: str, *, overwrite: bool, deadline: Deadline | None
    ) -> tuple[int, float]:
        """Write a version; its number and the store's time."""
        request: dict[str, Any] = {
            "Name": name,
            "Value": text,
            "Description": description,
            "Type": "SecureString" if self._key_id else "String",
            # Always sent: an unset tier follows the account's default, and Advanced is irreversible.
            "Tier": self._tier,
            "Overwrite": overwrite,
        }
        if self._key_id:
            request["KeyId"] = self._key_id
        reply = self._call("PutParameter", deadline, request)
        return reply["Version"], self._date(reply)

    def get(self, name: str, *, deadline: Deadline | None) -> tuple[Stored, float]:
        """The newest version, or ``name:number``'s, and the store's time."""
        reply = self._call("GetParameter", deadline, {"Name": name, "WithDecryption": True})
        return _stored(reply["Parameter"]), self._date(reply)

    def get_many(
        self, names: Sequence[str], *, deadline: Deadline | None
    ) -> tuple[dict[str, Stored], float]:
        """The newest versions of up to ten names; missing ones are left out."""
        reply = self._call(
            "GetParameters", deadline, {"Names": list(names), "WithDecryption": True}
        )
        found = {item["Name"]: _stored(item) for item in reply["Parameters"]}
        return found, self._date(reply)

    def delete_once(self, names: Sequence[str], *, deadline: Deadline | None) -> frozenset[str]:
        """Delete up to ten names, sent once whatever the answer; the names that are gone.

        Never sent again: by the time of a second sending the name may hold somebody's claim.
        """
        reply = self._call("DeleteParameters", deadline, {"Names": list(names)}, once=True)
        return frozenset(reply.get("DeletedParameters", ()) or ()) | frozenset(
            reply.get("InvalidParameters", ()) or ()
        )

    def describe(
        self, path: str, *, cursor: str | None, deadline: Deadline | None
    ) -> tuple[Sequence[dict[str, Any]], str | None, float]:
        """One page of names below a path with their descriptions, and where to go on."""
        request: dict[str, Any] = {
            "ParameterFilters": [{"Key": "Path", "Option": "Recursive", "Values": [path]}],
            "MaxResults": 50,
        }
        if cursor:
            request["NextToken"] = cursor
        reply = self._call("DescribeParameters", deadline, request)
        return reply["Parameters"], reply.get("NextToken") or None, self._date(reply)

    def _named(self, code: str, error: Exception, action: str) -> Exception | None:
        if code in (EXISTS, NOT_FOUND, NO_VERSION, CONTENTION):
            return Refused(code, date_of(error.response))  # type: ignore[attr-defined]
        if code in ("InvalidKeyId", "KMSAccessDeniedException"):
            return LedgerMisconfigured(
                f"the KMS key {self._key_id or 'of this parameter'} cannot be used: check that it "
                f"exists, is enabled and in this Region, and allow {self._key_actions()} on it"
            )
        if code == "ParameterLimitExceeded":
            return LedgerFull(
                "the account holds as many parameters of this tier as it may (10,000 standard): run "
                "the sweeper, shorten retention, or use tier=Advanced (100,000)"
            )
        if code == "ParameterMaxVersionLimitExceeded":
            return LedgerMisconfigured(
                f"a label keeps the oldest version of a record under {self._root}: remove the label"
            )
        return None

    def _resource(self, action: str) -> str:
        if action == "DescribeParameters":
            resource = "* (it has no narrower resource)"
        else:
            resource = f"arn:aws:ssm:REGION:ACCOUNT:parameter{self._root}/*"
        if self._key_id:
            return f"{resource}, and {self._key_actions()} on {self._key_id}"
        return resource

    def _key_actions(self) -> str:
        # https://docs.aws.amazon.com/kms/latest/developerguide/services-parameter-store.html
        encrypt = "kms:Encrypt" if self._tier == "Standard" else "kms:GenerateDataKey"
        return f"kms:Decrypt and {encrypt}"

    def _refused(self, code: str, action: str) -> str:
        return (
            f"SSM refuses ssm:{action} under {self._root} with {code}: check prefix, tier "
            f"({self._tier}) and the account's settings"
        )


def _stored(item: dict[str, Any]) -> Stored:
    return Stored(item["Version"], item["Value"], _epoch(item["LastModifiedDate"]))


def _epoch(moment: datetime) -> float:
    return moment.timestamp()
