"""The claim, as the work sees it."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone

from .clock import Clock, Deadline
from .errors import InvalidOption, StepError
from .holding import Holding
from .outcome import Details


@dataclass(frozen=True, slots=True)
class Claim:
    """A won right to run the work, held by one attempt, with a lease.

    Attributes:
        operation, key_digest, namespace: which unit of work.
        attempt: 1 for the first; one more for each retry or takeover; 0 for work that was let run
            unguarded, by ``on_missing_key="run"`` or ``on_ledger_error="run"``.
        fencing_token: rises with every claim of this key; for conditional writes downstream
            ("only if the stored token is not larger").
        lease: seconds for which the claim holds, from when it was won.
    """

    operation: str
    key_digest: str
    namespace: str
    attempt: int
    fencing_token: int
    lease: float
    clock: Clock = field(repr=False, compare=False)
    #: What writes to the ledger for this claim; None where the work runs unguarded.
    holding: Holding | None = field(repr=False, compare=False)
    #: When the Lambda function will be stopped, if known; work inside this work has it too.
    limit: Deadline | None = field(default=None, repr=False, compare=False)
    #: The claim that the work round this one works under.
    outer: Claim | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        details: Details,
        lease: float,
        clock: Clock,
        limit: Deadline | None,
        holding: Holding | None = None,
    ) -> Claim:
        """The claim of one delivery; without a holding, what work that runs unguarded sees."""
        return cls(
            operation=details.operation,
            key_digest=details.key_digest,
            namespace=details.namespace,
            attempt=details.attempt,
            fencing_token=holding.record.fence if holding else 0,
            lease=lease,
            clock=clock,
            holding=holding,
            limit=limit,
        )

    @property
    def details(self) -> Details:
        """Which delivery it was won by, for hooks and errors."""
        return Details(self.operation, self.key_digest, self.namespace, self.attempt)

    @property
    def ended(self) -> bool:
        """Whether it has been completed, released or lost; never so where the work runs unguarded."""
        return self.holding is not None and self.holding.ended

    def remaining(self) -> float:
        """Seconds until the lease ends; negative once the key may be taken over."""
        return self.lease - (self.holding.held_for() if self.holding else 0.0)

    @property
    def deadline(self) -> datetime:
        """When the lease ends, by this machine's clock, in UTC."""
        return datetime.fromtimestamp(self.clock.wall() + self.remaining(), timezone.utc)

    def effect_key(self, name: str, *, max_length: int = 64) -> str:
        """A stable identity for one downstream effect of this work; see `idemguard.effect_key`.

        Raises:
            InvalidOption: `max_length` is not from 16 to 64.
            StepError: the event held no key, so there is nothing stable to derive it from.
        """
        if not 16 <= max_length <= 64:
            raise InvalidOption("max_length: an effect key has 16 to 64 characters")
        if not self.key_digest:
            raise StepError("the event held no key, so no effect key can be derived from it")
        parts = "\0".join((self.namespace, self.operation, self.key_digest, name))
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:max_length]


#: The innermost claim that the code running here works under.
current: ContextVar[Claim | None] = ContextVar("idemguard_claim", default=None)
