"""Parameter Store's calls as this package needs them: timed, retried within a budget, errors named.

Knows nothing of records. Every retry is here, so that a call's worst case is decided in one place:
the client this package makes has the SDK's own retries off (a client of the user's may have them
on; that is allowed for wherever a call is not idempotent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from ..clock import Clock, Deadline
from ..errors import LedgerFull, LedgerMisconfigured, LedgerUnavailable
from .ssm_client import AlreadySent, sent_once

#: Seconds that one call keeps trying where no deadline is given.
PATIENCE = 10.0
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 2.0

_TRANSIENT = frozenset(
    {
        "ThrottlingException",
        "Throttling",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "SlowDown",
        "InternalServerError",
        "InternalFailure",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "RequestTimeoutException",
    }
)
# A sandbox that was frozen in mid-call sends a request that is minutes old when it thaws.
_SIGNED_TOO_EARLY = frozenset(
    {"InvalidSignatureException", "RequestExpired", "SignatureDoesNotMatch", "RequestTimeTooSkewed"}
)
_DENIED = frozenset({"AccessDeniedException", "AccessDenied", "UnauthorizedOperation"})
_CREDENTIALS = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "ExpiredTokenException",
        "ExpiredToken",
        "IncompleteSignature",
        "MissingAuthenticationToken",
    }
)

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


class Store:
    """The calls, with the store's own time (the response's ``Date``) beside every answer."""

    def __init__(
        self,
        client: Callable[[float], Any],
        clock: Clock,
        *,
        root: str,
        tier: str,
        key_id: str | None,
    ) -> None:
        self._client = client
        self._clock = clock
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
        return reply.get("Parameters", ()), reply.get("NextToken") or None, self._date(reply)

    def _date(self, reply: dict[str, Any]) -> float:
        date = _date_of(reply)
        if date is None:
            raise LedgerMisconfigured(
                "the SSM endpoint answers without a Date header, which tells the age of records; "
                "check the endpoint or proxy behind AWS_ENDPOINT_URL_SSM"
            )
        return date

    def _call(
        self, action: str, deadline: Deadline | None, request: dict[str, Any], *, once: bool = False
    ) -> dict[str, Any]:
        deadline = deadline or Deadline.after(self._clock, PATIENCE)
        method = _METHODS[action]
        wait = _FIRST_WAIT
        resigned = once
        while True:
            remaining = deadline.remaining()
            if remaining <= 0:
                raise LedgerUnavailable(f"no time left for ssm:{action} before the deadline")
            try:
                client = self._client(remaining)
                with sent_once(client, action) if once else nullcontext():
                    reply: dict[str, Any] = getattr(client, method)(**request)
                return reply
            except Exception as error:
                reason = self._transient(error)
                if reason is None and not resigned and _code(error) in _SIGNED_TOO_EARLY:
                    resigned = True
                    continue
                if reason is None:
                    raise self._refusal(error, action) from None
            pause = self._clock.jitter(wait)
            if once or pause >= deadline.remaining():
                raise LedgerUnavailable(
                    f"ssm:{action} failed for now ({reason}); deliver again later"
                )
            self._clock.sleep(pause)
            wait = min(wait * 2, _LONGEST_WAIT)

    def _transient(self, error: Exception) -> str | None:
        """Why it may go well next time, or None."""
        from botocore.exceptions import ConnectionError as NotConnected
        from botocore.exceptions import HTTPClientError

        code = _code(error)
        if code is None:
            dropped = isinstance(error, (HTTPClientError, NotConnected, AlreadySent))
            return type(error).__name__ if dropped else None
        metadata = error.response["ResponseMetadata"]  # type: ignore[attr-defined]
        status = metadata.get("HTTPStatusCode", 400)
        return code if code in _TRANSIENT or status >= 500 or status == 429 else None

    def _refusal(self, error: Exception, action: str) -> Exception:
        """The error that names the cure. Never AWS's own text: it may quote values."""
        from botocore.exceptions import BotoCoreError

        code = _code(error)
        if code in (EXISTS, NOT_FOUND, NO_VERSION, CONTENTION):
            return Refused(code, _date_of(error.response))  # type: ignore[attr-defined]
        if code in _DENIED:
            return LedgerMisconfigured(
                f"access denied: allow ssm:{action} on {self._resource(action)}"
                + (
                    f", and kms:Decrypt and kms:GenerateDataKey on {self._key_id}"
                    if self._key_id
                    else ""
                )
            )
        if code in ("InvalidKeyId", "KMSAccessDeniedException"):
            return LedgerMisconfigured(
                f"the KMS key {self._key_id or 'of this parameter'} cannot be used: check that it "
                "exists, is enabled and in this Region, and allow kms:Decrypt and "
                "kms:GenerateDataKey on it"
            )
        if code in _CREDENTIALS or code in _SIGNED_TOO_EARLY:
            return LedgerMisconfigured(
                f"SSM refuses the credentials or the machine's clock ({code}): renew the first, check "
                "the second"
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
        if code is not None:
            return LedgerMisconfigured(
                f"SSM refuses ssm:{action} under {self._root} with {code}: check prefix, tier "
                f"({self._tier}) and the account's settings"
            )
        if isinstance(error, BotoCoreError):
            return LedgerMisconfigured(
                f"the SDK cannot call ssm:{action} ({type(error).__name__}): check Region, "
                "credentials and endpoint"
            )
        return error

    def _resource(self, action: str) -> str:
        if action == "DescribeParameters":
            return "* (it has no narrower resource)"
        return f"arn:aws:ssm:REGION:ACCOUNT:parameter{self._root}/*"


_METHODS = {
    "PutParameter": "put_parameter",
    "GetParameter": "get_parameter",
    "GetParameters": "get_parameters",
    "DeleteParameters": "delete_parameters",
    "DescribeParameters": "describe_parameters",
}


def _stored(item: dict[str, Any]) -> Stored:
    return Stored(item["Version"], item["Value"], _epoch(item["LastModifiedDate"]))


def _epoch(moment: datetime) -> float:
    return moment.timestamp()


def _code(error: Exception) -> str | None:
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return None
    code = response.get("Error", {}).get("Code")
    return code if isinstance(code, str) else None


def _date_of(reply: dict[str, Any]) -> float | None:
    text = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return _seconds(text) if text else None


@lru_cache(maxsize=8)
def _seconds(date: str) -> float:
    return parsedate_to_datetime(date).timestamp()
