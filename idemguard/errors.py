"""Everything idemguard raises, in one tree.

    IdempotencyError
    ├── InvalidKeyExpression      at decoration: the key or fingerprint expression cannot work
    ├── InvalidOption             at decoration or configuration: an option has a value it cannot have
    ├── MissingKeyError           the event holds no key; the work was not run
    ├── InFlightError             another delivery holds the key (retryable)
    ├── PayloadMismatchError      the key was used before with another payload
    ├── PermanentFailureError     the work failed for good before, and its exception cannot be rebuilt
    ├── ResultNotStoredError      the work is done, but its result is not there to be replayed
    ├── UnsupportedResultError    a result holds a type that cannot be kept
    ├── ReentrantCallError        the work called itself with its own key
    ├── LeaseLostError            another attempt has taken the claim over
    ├── StepError                 a step was used outside of a claim, twice, or does not fit
    └── LedgerError               the ledger could not do what was asked
        ├── LedgerUnavailable     throttled, unreachable or broken for now (retryable)
        ├── LedgerMisconfigured   access denied, an unusable KMS key, a name the store refuses
        ├── LedgerFull            the store holds as many records as it may
        └── UnreadableRecordError the entry under the key's name is not a record this version can read

Every error carries what is known of the delivery (``operation``, ``key_digest``) and ``retryable``:
whether delivering the same event again later can help. No error holds a payload or a raw key.
"""

from __future__ import annotations

from typing import ClassVar


class IdempotencyError(Exception):
    """Base of every error in this package.

    Attributes:
        operation: name of the decorated work, or None where no delivery is concerned.
        key_digest: digest of the key, never the key itself.
        retryable: whether the same event, delivered again later, can succeed.
    """

    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, operation: str | None = None, key_digest: str | None = None
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.key_digest = key_digest

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(
    cls: type[IdempotencyError], args: tuple[object, ...], state: dict[str, object]
) -> IdempotencyError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class InvalidKeyExpression(IdempotencyError):
    """The key or fingerprint expression cannot be compiled, or names an unknown function."""


class InvalidOption(IdempotencyError):
    """An option or environment variable has a value that it cannot have."""


class MissingKeyError(IdempotencyError):
    """The event holds no key: the selection is absent, null, empty, or has a null member."""


class InFlightError(IdempotencyError):
    """Another delivery with this key is at work now; deliver again later.

    Attributes:
        retry_after: seconds until the other claim's lease ends, at the latest; None when unknown.
    """

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        key_digest: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, operation=operation, key_digest=key_digest)
        self.retry_after = retry_after


class PayloadMismatchError(IdempotencyError):
    """The key was used before with another payload; the fingerprints differ."""


class PermanentFailureError(IdempotencyError):
    """The work failed for good in an earlier delivery, and its own exception cannot be rebuilt.

    Attributes:
        error_type: the earlier exception's type, as ``module:qualname``.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        key_digest: str | None = None,
        error_type: str | None = None,
    ) -> None:
        super().__init__(message, operation=operation, key_digest=key_digest)
        self.error_type = error_type


class ResultNotStoredError(IdempotencyError):
    """The work (or the step) is done, but its result was not kept, so it cannot be replayed.

    Attributes:
        reason: ``"too large"``, ``"unsupported type"``, ``"omitted"`` or ``"type changed"``.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        key_digest: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, operation=operation, key_digest=key_digest)
        self.reason = reason


class UnsupportedResultError(IdempotencyError):
    """A result holds a value of a type that cannot be kept and given back equal.

    Attributes:
        type_name: the type, as ``module:qualname``.
        where: the place in the result, such as ``$.items[2].price``; field names and indexes only.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        key_digest: str | None = None,
        type_name: str | None = None,
        where: str | None = None,
    ) -> None:
        super().__init__(message, operation=operation, key_digest=key_digest)
        self.type_name = type_name
        self.where = where


class ReentrantCallError(IdempotencyError):
    """Work that holds a key was called again with the same key from inside itself."""


class LeaseLostError(IdempotencyError):
    """The claim is no longer this attempt's: its lease ran out and another attempt took it over."""


class StepError(IdempotencyError):
    """A step was used outside of claimed work, used twice in one attempt, or has no room left."""


class LedgerError(IdempotencyError):
    """The ledger could not do what was asked of it."""


class LedgerUnavailable(LedgerError):
    """The store throttles, does not answer or fails for now; deliver again later."""

    retryable = True


class LedgerMisconfigured(LedgerError):
    """The store refuses for good: permissions, KMS key, name or tier. The text names the cure."""


class LedgerFull(LedgerError):
    """The store holds as many records as it may; sweep it, or move to a larger tier."""


class UnreadableRecordError(LedgerError):
    """The entry under this key's name is not a record that this version can read.

    It may be somebody's configuration, a truncated value, or a record of a newer version. It is
    neither overwritten nor run past: a person has to look at it.
    """
