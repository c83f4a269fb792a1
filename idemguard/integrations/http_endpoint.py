"""How a request with an Idempotency-Key is answered, whatever form the handler has; see `http`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..codec import Codec
from ..delivery import Delivery, deliver
from ..errors import (
    InFlightError,
    InvalidOption,
    LedgerUnavailable,
    MissingKeyError,
    PayloadMismatchError,
    ResultNotStoredError,
)
from ..guard import Guard, KeptSetup, record_name
from ..keys import MISSING, NO_FINGERPRINT, Selector, make_key
from ..outcome import Outcome
from ..record import Key
from .http_messages import MalformedKey, Problem, idempotency_key, method_of, path_of, status_of

if TYPE_CHECKING:
    from ..decorator import KeySource
    from ..options import OptionArgs

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))

#: Who calls, by whom API Gateway or a function URL let in: the subject of a Cognito or JWT
#: authorizer, the principal of a Lambda authorizer (which must be one of its own for each caller),
#: the identity of a Cognito identity pool (whose users share one ARN), or the IAM principal's ARN.
CALLER = (
    "requestContext.not_null(authorizer.claims.sub, authorizer.jwt.claims.sub, "
    "authorizer.principalId, identity.cognitoIdentityId, "
    "authorizer.iam.cognitoIdentity.identityId, identity.userArn, authorizer.iam.userArn)"
)


class Kind(Enum):
    """Where a reply comes from: this request's own work, an earlier one's, or a refusal."""

    OWN = 1
    REPLAYED = 2
    PROBLEM = 3


Answer = tuple[Kind, Any]


class Endpoint:
    """How one handler or middleware answers a request; what both forms have in common."""

    def __init__(
        self,
        caller: KeySource | None,
        header: str,
        store_4xx: bool,
        documentation: str | None,
        options: OptionArgs,
    ) -> None:
        self._guard = Guard(**options)
        given = self._guard.options
        if given.result == "omit" and given.on_duplicate is None:
            raise InvalidOption(
                "result: a reply that is omitted cannot be replayed; store it, or pass on_duplicate="
            )
        self._caller = None if caller is None else Selector(caller, "caller")
        fingerprint = options.get("fingerprint", "http_body(@)")
        self._fingerprint = Selector(fingerprint, "fingerprint") if fingerprint else None
        codec = Codec(types=given.types, errors=given.permanent_types)
        self._setup = KeptSetup(self._guard, codec)
        self._header = header
        self._store_4xx = store_4xx
        self._documentation = documentation

    def answer(self, operation: str, event: Any, context: Any, work: Callable[[], Any]) -> Answer:
        """The reply to a request, and where it comes from."""
        if method_of(event) in SAFE_METHODS:
            return Kind.OWN, work()
        try:
            header = idempotency_key(event, self._header)
        except MalformedKey as error:
            return self._problem(
                400, "Malformed key", f"Correct the header {self._header}: {error}."
            )
        delivery = self._delivery(
            self._guard.options.operation or operation, event, context, header
        )
        begun = False

        def guarded() -> Any:
            nonlocal begun
            begun = True
            reply = work()
            if not self._is_stored(status_of(reply)):
                raise UnstoredReply(reply)
            return reply

        try:
            execution = deliver(delivery, guarded)
        except UnstoredReply as unstored:
            return Kind.OWN, unstored.reply
        except Exception as error:
            # What the work raised is not about this request's key.
            if begun or (problem := self._refusal(error, header)) is None:
                raise
            return problem
        if execution.outcome is Outcome.SKIPPED_IN_FLIGHT:
            return self._in_flight(None)
        if execution.outcome is Outcome.EXECUTED:
            return Kind.OWN, execution.result
        return Kind.REPLAYED, execution.result

    def _delivery(
        self, operation: str, event: Any, context: Any, header: str | None
    ) -> Delivery[Any]:
        caller, why = self._caller.find(event) if self._caller else (None, "")
        if why:
            raise MissingKeyError(
                f"{operation}: the request has no caller ({why}); pass caller= an expression for who "
                "sends it, or caller=None where all clients may share their keys",
                operation=operation,
            )
        setup = self._setup()
        payload = self._fingerprint.select(event) if self._fingerprint else NO_FINGERPRINT
        key = make_key(operation, [caller, method_of(event), path_of(event), header], payload)
        missing = None
        if header is None:
            # Nothing to derive an effect key from: other requests without a key are other work.
            key = Key(operation, "")
            missing = MissingKeyError(f"no header {self._header}", operation=operation)
        elif payload is MISSING:
            # Two payloads that cannot be read must not pass for the same one.
            missing = MissingKeyError("the payload cannot be read", operation=operation)
        fallback = self._guard.options.on_duplicate
        return Delivery(
            setup,
            key,
            record_name(setup.namespace, key),
            deadline=self._guard.deadline(context),
            fallback=(lambda: fallback(event, context)) if fallback else None,
            missing=missing,
        )

    def _is_stored(self, status: int) -> bool:
        return status < 400 or (status < 500 and self._store_4xx)

    def _refusal(self, error: Exception, header: str | None) -> Answer | None:
        if isinstance(error, InFlightError):
            return self._in_flight(error.retry_after)
        if isinstance(error, PayloadMismatchError):
            return self._problem(
                422,
                "Key used before",
                f"This {self._header} came with another request; use a new one.",
            )
        if isinstance(error, ResultNotStoredError):
            return self._problem(
                409,
                "Already done",
                "The request is done, and its reply was not kept. Do not repeat it.",
            )
        if isinstance(error, LedgerUnavailable):
            return self._problem(503, "Busy", "Nothing was done; send the request again.", 1.0)
        if isinstance(error, MissingKeyError):
            what = "a body that can be read" if header else f"a header {self._header}"
            return self._problem(400, "Missing key", f"Send {what} with this request.")
        return None

    def _in_flight(self, retry_after: float | None) -> Answer:
        return self._problem(
            409, "Outstanding request", "The first request with this key is at work.", retry_after
        )

    def _problem(
        self, status: int, title: str, detail: str, retry_after: float | None = None
    ) -> Answer:
        return Kind.PROBLEM, Problem(status, title, detail, retry_after).reply(self._documentation)


class UnstoredReply(BaseException):
    """Carries a reply that is not to be stored past the release of its claim.

    Not an Exception, so that ``permanent=Exception`` does not take it for a failure.
    """

    def __init__(self, reply: Any) -> None:
        super().__init__()
        self.reply = reply
