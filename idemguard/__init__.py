"""Make AWS Lambda handlers safe under at-least-once delivery, with SSM Parameter Store as the ledger."""

from .claim import Claim
from .decorator import idempotent
from .errors import (
    IdempotencyError,
    InFlightError,
    InvalidKeyExpression,
    InvalidOption,
    LeaseLostError,
    LedgerError,
    LedgerFull,
    LedgerMisconfigured,
    LedgerUnavailable,
    MissingKeyError,
    PayloadMismatchError,
    PermanentFailureError,
    ReentrantCallError,
    ResultNotStoredError,
    StepError,
    UnreadableRecordError,
    UnsupportedResultError,
)
from .guard import Guard
from .ledger import Ledger
from .outcome import Event, Execution, Happening, Hook, Outcome, Phase
from .record import Key
from .steps import current_claim, effect_key, step
from .volatile import VolatileKeyWarning

__version__ = "0.1.0"

__all__ = [
    "Claim",
    "Event",
    "Execution",
    "Guard",
    "Happening",
    "Hook",
    "IdempotencyError",
    "InFlightError",
    "InvalidKeyExpression",
    "InvalidOption",
    "Key",
    "LeaseLostError",
    "Ledger",
    "LedgerError",
    "LedgerFull",
    "LedgerMisconfigured",
    "LedgerUnavailable",
    "MissingKeyError",
    "Outcome",
    "PayloadMismatchError",
    "PermanentFailureError",
    "Phase",
    "ReentrantCallError",
    "ResultNotStoredError",
    "StepError",
    "UnreadableRecordError",
    "UnsupportedResultError",
    "VolatileKeyWarning",
    "current_claim",
    "effect_key",
    "idempotent",
    "step",
]
