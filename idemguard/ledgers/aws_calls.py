"""A store's calls as ledgers need them: timed, retried within a budget, errors named.

Every retry is here, so that a call's worst case is decided in one place: the clients this package
makes have the SDK's own retries off (a client of the user's may have them on; that is allowed for
wherever a call is not idempotent).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, ClassVar

from ..clock import Clock, Deadline
from ..errors import LedgerMisconfigured, LedgerUnavailable
from .aws_client import AlreadySent, sent_once

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
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "TransactionConflictException",
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


class Calls(ABC):
    """The calls of one store; a subclass says which there are and what its refusals mean."""

    #: As IAM and the SDK name the service, and as people do.
    service: ClassVar[str]
    title: ClassVar[str]
    #: The client's methods, by IAM action.
    methods: ClassVar[Mapping[str, str]]
    #: A member that every answer to an action has. The SDK makes an empty one of an answer cut short.
    tells: ClassVar[Mapping[str, str]] = {}

    def __init__(self, client: Callable[[Deadline], Any], clock: Clock) -> None:
        self._client = client
        self._clock = clock

    @abstractmethod
    def _named(self, code: str, error: Exception, action: str) -> Exception | None:
        """The error for a code that only this service has; None leaves it to what all services have."""

    @abstractmethod
    def _resource(self, action: str) -> str:
        """What a policy must allow `action` on, and whatever it must allow besides."""

    @abstractmethod
    def _refused(self, code: str, action: str) -> str:
        """What to tell of a refusal that nothing more is known of."""

    def _call(
        self, action: str, deadline: Deadline | None, request: dict[str, Any], *, once: bool = False
    ) -> dict[str, Any]:
        deadline = deadline or Deadline.after(self._clock, PATIENCE)
        method = self.methods[action]
        wait = _FIRST_WAIT
        resigned = once
        while True:
            if deadline.remaining() <= 0:
                raise LedgerUnavailable(
                    f"no time left for {self.service}:{action} before the deadline"
                )
            try:
                client = self._client(deadline)
                with sent_once(client, self.service, action) if once else nullcontext():
                    reply: dict[str, Any] = getattr(client, method)(**request)
                if action in self.tells and self.tells[action] not in reply:
                    raise _CutShort
                return reply
            except Exception as error:
                reason = _transient(error)
                if reason is None and not resigned and code_of(error) in _SIGNED_TOO_EARLY:
                    resigned = True
                    continue
                refusal = self._refusal(error, action) if reason is None else None
            # Outside of `except`, so that AWS's own text, which may quote values, is not behind it.
            if refusal is not None:
                raise refusal
            pause = self._clock.jitter(wait)
            if once or pause >= deadline.remaining():
                raise LedgerUnavailable(
                    f"{self.service}:{action} failed for now ({reason}); deliver again later"
                )
            self._clock.sleep(pause)
            wait = min(wait * 2, _LONGEST_WAIT)

    def _date(self, reply: Mapping[str, Any]) -> float:
        """The store's time in a reply."""
        date = date_of(reply)
        if date is None:
            raise self._timeless()
        return date

    def _timeless(self) -> LedgerMisconfigured:
        return LedgerMisconfigured(
            f"the {self.title} endpoint answers without a Date header, which tells the age of "
            f"records; check the endpoint or proxy behind AWS_ENDPOINT_URL_{self.service.upper()}"
        )

    def _refusal(self, error: Exception, action: str) -> Exception:
        """The error that names the cure. Never AWS's own text: it may quote values."""
        from botocore.exceptions import BotoCoreError

        code = code_of(error)
        if code is None:
            # The SDK tells of an endpoint or Region that is none with a plain ValueError.
            if isinstance(error, (BotoCoreError, ValueError)):
                return LedgerMisconfigured(
                    f"the SDK cannot call {self.service}:{action} ({type(error).__name__}): check "
                    "Region, credentials and endpoint (AWS_DEFAULT_REGION is set, an endpoint "
                    'begins with http); to try it without AWS: ledger="memory://"'
                )
            return error
        named = self._named(code, error, action)
        if named is not None:
            return named
        if code in _DENIED:
            return LedgerMisconfigured(
                f"access denied: allow {self.service}:{action} on {self._resource(action)}"
            )
        if code in _CREDENTIALS or code in _SIGNED_TOO_EARLY:
            return LedgerMisconfigured(
                f"{self.title} refuses the credentials or the machine's clock ({code}): renew the "
                "first, check the second"
            )
        return LedgerMisconfigured(self._refused(code, action))


class _CutShort(Exception):
    """An answer that is there in part; what was asked for may be done."""


def code_of(error: Exception) -> str | None:
    """AWS's code for an error, if the error is AWS's."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return None
    code = response.get("Error", {}).get("Code")
    return code if isinstance(code, str) else None


def date_of(reply: Mapping[str, Any]) -> float | None:
    """The store's time in a reply, in seconds since the epoch, if it is told."""
    text = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return _seconds(text) if text else None


@lru_cache(maxsize=8)
def _seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


def _transient(error: Exception) -> str | None:
    """Why it may go well next time, or None."""
    from botocore.exceptions import ConnectionError as NotConnected
    from botocore.exceptions import HTTPClientError
    from botocore.parsers import ResponseParserError

    code = code_of(error)
    if code is None:
        lost = (HTTPClientError, NotConnected, AlreadySent)
        garbled = (_CutShort, ResponseParserError, UnicodeDecodeError)
        return type(error).__name__.strip("_") if isinstance(error, (*lost, *garbled)) else None
    metadata = error.response.get("ResponseMetadata", {})  # type: ignore[attr-defined]
    status = metadata.get("HTTPStatusCode", 400)
    return code if code in _TRANSIENT or status >= 500 or status == 429 else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call that failed says.

    Attributes:
        code: AWS's error code, or the exception's type.
        date: the store's time, where it answered.
        denied, credentials, transient: whether it is the policy, the credentials or the machine's
            clock, or something that may pass.
    """

    code: str
    date: float | None
    denied: bool
    credentials: bool
    transient: bool


def answer_of(error: Exception) -> Answer:
    """What a failed call of any boto3 client says, for whoever asks by hand."""
    code = code_of(error)
    return Answer(
        code=code or type(error).__name__,
        date=date_of(error.response) if code else None,  # type: ignore[attr-defined]
        denied=code in _DENIED,
        credentials=code in _CREDENTIALS or code in _SIGNED_TOO_EARLY,
        transient=_transient(error) is not None,
    )
