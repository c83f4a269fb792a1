"""Checks whether a ledger on Parameter Store can be used from here, by calls that change nothing.

Only with ``write=True`` a parameter of its own is written, overwritten, read and deleted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .clock import SYSTEM_CLOCK, Clock
from .ledgers.aws_calls import Answer, answer_of, date_of
from .ledgers.ssm import SSMLedger

#: Where the probes stand, below the ledger's prefix.
PROBE = "idemguard-doctor"

# Seconds by which a signature's time may be wrong before AWS refuses it, and before it is worth a word
# (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html).
_SKEW_REFUSED = 300.0
_SKEW_ODD = 30.0

_SETTING = "/ssm/parameter-store/"
_THROUGHPUT = _SETTING + "high-throughput-enabled"
_TIER = _SETTING + "default-parameter-tier"


class Status(Enum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the examination: what was looked at, what was found, and the cure if any."""

    name: str
    status: Status
    found: str
    cure: str = ""


def examine(
    ledger: SSMLedger, *, write: bool = False, clock: Clock = SYSTEM_CLOCK
) -> Iterator[Check]:
    """Look at region, credentials, clock, permissions and the account's settings, one after the other.

    Ends early where nothing that follows could be told.

    Args:
        ledger: whose settings and credentials to use.
        write: also write a parameter below the prefix, and delete it.
        clock: for tests.
    """
    from botocore.exceptions import BotoCoreError

    try:
        client = ledger.full_client()
    except (BotoCoreError, ValueError) as error:
        yield _no_client(error)
        return
    yield Check("region", Status.OK, _where(client))
    doctor = _Doctor(ledger, client, clock)
    yield from doctor.reach()
    if not doctor.reached:
        return
    yield from doctor.permissions()
    if write:
        yield from doctor.write()
    else:
        yield Check("write", Status.SKIPPED, "not tried", "try it with --write")
    yield from doctor.settings()


def _no_client(error: Exception) -> Check:
    from botocore.exceptions import NoRegionError, ProfileNotFound

    found = f"no client can be made ({type(error).__name__})"
    if isinstance(error, NoRegionError):
        cure = "set AWS_DEFAULT_REGION (or region= in the URL)"
        return Check("region", Status.FAIL, found, cure)
    if isinstance(error, ProfileNotFound):
        cure = "AWS_PROFILE names a profile that is not configured: correct or unset it"
        return Check("credentials", Status.FAIL, found, cure)
    if isinstance(error, ValueError):
        cure = "correct endpoint_url= in the URL, such as http://127.0.0.1:5103, or region="
        return Check("endpoint", Status.FAIL, found, cure)
    return Check("client", Status.FAIL, found, "check region, profile and the ledger's URL")


def _where(client: Any) -> str:
    meta = client.meta
    region = getattr(meta, "region_name", None) or "a region of the client's own"
    return f"{region}, {getattr(meta, 'endpoint_url', None) or 'a client of its own'}"


class _Doctor:
    def __init__(self, ledger: SSMLedger, client: Any, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tier = ledger.tier
        self._key_id = ledger.key_id
        self._path = f"{ledger.prefix}/{PROBE}"
        self._absent = f"{self._path}/absent-{secrets.token_hex(4)}"
        self._resource = f"arn:aws:ssm:REGION:ACCOUNT:parameter{ledger.prefix}/*"
        self.reached = False

    def reach(self) -> Iterator[Check]:
        """Whether the store answers, to these credentials, at which time; and whether it may be read."""
        before = self._clock.wall()
        reply, refused = self._try(lambda: self._client.get_parameter(Name=self._absent))
        now = (before + self._clock.wall()) / 2
        date = refused.date if refused else date_of(reply)
        if refused and date is None:
            credentials = refused.code in ("NoCredentialsError", "PartialCredentialsError")
            yield Check(
                "credentials" if credentials else "connection",
                Status.FAIL,
                f"no answer ({refused.code})",
                "configure credentials: environment, profile or role"
                if credentials
                else "check network, endpoint and VPC endpoint policy",
            )
            return
        if date is not None:
            yield self._skew(now - date)
        if refused and refused.credentials:
            yield Check(
                "credentials",
                Status.FAIL,
                f"refused ({refused.code})",
                "renew the credentials, and check this machine's clock",
            )
            return
        yield Check("credentials", Status.OK, "accepted")
        if refused and refused.transient:
            yield Check(
                "connection",
                Status.FAIL,
                f"answers {refused.code}",
                "try again later; if it stays so, turn on higher throughput or lower the rate",
            )
            return
        self.reached = True
        yield self._permission("read", "GetParameter", refused, Status.FAIL)

    def permissions(self) -> Iterator[Check]:
        """What the sweeper and the person on call need; a handler can do without."""
        _, refused = self._try(lambda: self._client.get_parameters(Names=[self._absent]))
        yield self._permission("read in batches", "GetParameters", refused, Status.WARN)
        filters = [{"Key": "Path", "Option": "Recursive", "Values": [self._path]}]
        _, refused = self._try(
            lambda: self._client.describe_parameters(ParameterFilters=filters, MaxResults=1)
        )
        yield self._permission("list", "DescribeParameters", refused, Status.WARN)
        _, refused = self._try(lambda: self._client.delete_parameters(Names=[self._absent]))
        yield self._permission("delete", "DeleteParameters", refused, Status.WARN)

    def write(self) -> Iterator[Check]:
        """Write a parameter as the ledger would, twice, read it, and delete it."""
        # A name of its own each time: a deleted one cannot be used again for 30 seconds.
        name = f"{self._path}/written-{secrets.token_hex(4)}"
        request: dict[str, Any] = {
            "Name": name,
            "Value": "idemguard doctor",
            "Description": "written by idemguard doctor, and deleted",
            "Type": "SecureString" if self._key_id else "String",
            "Tier": self._tier,
        }
        if self._key_id:
            request["KeyId"] = self._key_id
        _, refused = self._try(lambda: self._client.put_parameter(**request))
        yield self._permission("create", "PutParameter", refused, Status.FAIL)
        if refused:
            return
        _, refused = self._try(lambda: self._client.put_parameter(**request, Overwrite=True))
        yield self._permission("overwrite", "PutParameter", refused, Status.FAIL)
        _, refused = self._try(lambda: self._client.get_parameter(Name=name, WithDecryption=True))
        yield self._permission("read it back", "GetParameter", refused, Status.FAIL)
        _, refused = self._try(lambda: self._client.delete_parameters(Names=[name]))
        if refused:
            found = f"{name} is left behind ({refused.code})"
            yield Check("clean up", Status.WARN, found, "delete it by hand")

    def settings(self) -> Iterator[Check]:
        """Higher throughput and the default tier, as set for the account in this Region."""
        value, refused = self._setting(_THROUGHPUT)
        if refused:
            yield self._unknown("throughput", refused)
        elif value == "true":
            yield Check("throughput", Status.OK, "higher: about 10 writes a second, at a price")
        else:
            yield Check(
                "throughput",
                Status.OK,
                "default: about 3 writes a second in the account and Region, so 1.5 new events",
                "for more, turn on higher throughput for Parameter Store; it is charged per call",
            )
        value, refused = self._setting(_TIER)
        if refused:
            yield self._unknown("tier", refused)
        else:
            yield Check(
                "tier", Status.OK, f"{self._tier}, as the ledger says; the account's is {value}"
            )

    def _setting(self, name: str) -> tuple[str, Answer | None]:
        reply, refused = self._try(lambda: self._client.get_service_setting(SettingId=name))
        return (reply.get("ServiceSetting", {}).get("SettingValue", ""), refused)

    def _unknown(self, name: str, refused: Answer) -> Check:
        cure = "nothing breaks without it"
        if refused.denied:
            resource = f"arn:aws:ssm:REGION:ACCOUNT:servicesetting{_SETTING}*"
            cure = f"to see it, allow ssm:GetServiceSetting on {resource}; {cure}"
        return Check(name, Status.WARN, f"cannot be told ({refused.code})", cure)

    def _skew(self, skew: float) -> Check:
        found = f"this machine is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
        if abs(skew) >= _SKEW_REFUSED:
            return Check("clock", Status.FAIL, found, "set the clock: AWS refuses such signatures")
        if abs(skew) >= _SKEW_ODD:
            return Check("clock", Status.WARN, found, "set the clock, with NTP")
        return Check("clock", Status.OK, "agrees with the store's")

    def _permission(self, name: str, action: str, refused: Answer | None, worst: Status) -> Check:
        if refused is None or refused.code == "ParameterNotFound":
            return Check(name, Status.OK, f"ssm:{action} is allowed")
        if refused.denied:
            resource = "*" if action == "DescribeParameters" else self._resource
            cure = f"allow ssm:{action} on {resource}"
            if self._key_id and action == "PutParameter":
                cure += f", and the use of {self._key_id} by KMS"
            if worst is Status.WARN:
                cure += ", for the sweeper and for listing; a handler does not need it"
            return Check(name, worst, f"ssm:{action} is denied", cure)
        if refused.transient:
            return Check(name, Status.WARN, f"{refused.code} for now", "try again later")
        if refused.code in ("InvalidKeyId", "KMSAccessDeniedException"):
            cure = f"check that KMS key {self._key_id} exists, is enabled and in this Region"
            return Check(name, worst, refused.code, cure)
        return Check(name, worst, f"refused ({refused.code})", "check prefix, tier and settings")

    def _try(self, call: Callable[[], Any]) -> tuple[dict[str, Any], Answer | None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call(), None
        except (BotoCoreError, ClientError) as error:
            return {}, answer_of(error)
