"""What can go wrong on the way to Parameter Store and back, to be injected into a StrictSSM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Transport(Enum):
    """How a call can end without an answer."""

    CLOSED = "the connection closes before the answer"
    CONNECT_TIMEOUT = "no connection within the time allowed"
    UNREACHABLE = "no connection at all"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one call, in this order: wait, apply it or not, answer or not.

    The class methods below are the usual ones; `dataclasses.replace` combines them, as in
    `replace(Fault.lost_response(), delay=5)`.

    Attributes:
        delay: seconds to sleep, on the fake's clock, before the call is applied.
        applied: whether the store carries the call out.
        code: the AWS error code to answer with, whatever the store said.
        message: the text of that error.
        status: the HTTP status of that error.
        transport: how the connection fails, in place of an answer.
        resent: the SDK sends the lost call again by itself, and the second answer counts.
    """

    delay: float = 0.0
    applied: bool = True
    code: str | None = None
    message: str = ""
    status: int = 400
    transport: Transport | None = None
    resent: bool = False

    @property
    def hides_answer(self) -> bool:
        """Whether the caller gets something other than what the store answered."""
        return self.resent or self.transport is not None or self.code is not None

    @classmethod
    def refused(cls, code: str, message: str = "", *, status: int = 400) -> Fault:
        """Answer with this AWS error; the call is not applied."""
        return cls(applied=False, code=code, message=message, status=status)

    @classmethod
    def throttle(cls) -> Fault:
        """Over the quota."""
        return cls.refused("ThrottlingException", "Rate exceeded")

    @classmethod
    def server_error(cls, *, applied: bool = False) -> Fault:
        """HTTP 500; with `applied`, after the call was carried out."""
        return cls(applied=applied, code="InternalServerError", message="Try again.", status=500)

    @classmethod
    def denied(cls) -> Fault:
        """IAM does not allow the action."""
        return cls.refused("AccessDeniedException", "The role is not authorized for this action.")

    @classmethod
    def too_many_updates(cls) -> Fault:
        """Another update of the same parameter is under way; AWS sends no text with it."""
        return cls.refused("TooManyUpdates")

    @classmethod
    def expired_signature(cls) -> Fault:
        """The request was signed too long ago, as after a freeze of the sandbox in mid-call."""
        return cls.refused("InvalidSignatureException", "Signature expired: signed too long ago.")

    @classmethod
    def kms_key_not_found(cls) -> Fault:
        """The key does not exist; SSM reports KMS's NotFoundException so."""
        return cls.refused("InvalidKeyId", "The key does not exist. (Service: AWSKMS)")

    @classmethod
    def kms_key_disabled(cls) -> Fault:
        """The key is disabled; SSM reports KMS's DisabledException so."""
        return cls.refused("InvalidKeyId", "The key is disabled. (Service: AWSKMS)")

    @classmethod
    def kms_denied(cls) -> Fault:
        """The role may not use the key; SSM passes KMS's own code on."""
        return cls.refused("AccessDeniedException", "No access to the key. (Service: AWSKMS)")

    @classmethod
    def lost_response(cls, *, resent: bool = False) -> Fault:
        """Apply the call and lose the answer: ConnectionClosedError.

        With `resent`, the SDK's retry sends the call again and its second answer counts.
        """
        return cls(transport=Transport.CLOSED, resent=resent)

    @classmethod
    def connect_timeout(cls) -> Fault:
        """ConnectTimeoutError; the call never left."""
        return cls(applied=False, transport=Transport.CONNECT_TIMEOUT)

    @classmethod
    def not_sent(cls) -> Fault:
        """EndpointConnectionError; the call never left."""
        return cls(applied=False, transport=Transport.UNREACHABLE)

    @classmethod
    def slow(cls, seconds: float) -> Fault:
        """The call takes that long to arrive, is then applied and answered."""
        return cls(delay=seconds)


#: Nothing goes wrong.
NO_FAULT = Fault()

#: Any operation, for `StrictSSM.inject`.
ANY = "*"


@dataclass(slots=True)
class _Rule:
    operation: str
    fault: Fault
    times: int
    after: int
    name_contains: str | None

    def concerns(self, operation: str, names: Sequence[str]) -> bool:
        if self.operation not in (ANY, operation):
            return False
        wanted = self.name_contains
        return wanted is None or any(wanted in name for name in names)


class FaultPlan:
    """The faults still to come. Not safe among threads: the fake's lock guards it."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def add(
        self, operation: str, fault: Fault, *, times: int, after: int, name_contains: str | None
    ) -> None:
        """Plan a fault for `times` calls, behind the next `after` calls that it concerns."""
        if times < 1 or after < 0:
            raise ValueError(f"times={times} must be 1 or more, and after={after} 0 or more")
        self._rules.append(_Rule(operation, fault, times, after, name_contains))

    def take(self, operation: str, names: Sequence[str]) -> Fault:
        """The fault of this call: the oldest one that is due.

        Every fault counts the calls that it concerns, also those that another one hits; a fault
        that is due while an older one hits waits for the next call.
        """
        due: _Rule | None = None
        for rule in self._rules:
            if not rule.concerns(operation, names):
                continue
            if rule.after > 0:
                rule.after -= 1
            elif due is None:
                due = rule
        if due is None:
            return NO_FAULT
        due.times -= 1
        if due.times == 0:
            self._rules.remove(due)
        return due.fault
