"""What becomes of deliveries, as plain dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypedDict

from ..outcome import Event, Hook, observed_by


class Captured(TypedDict):
    """One happening of one delivery.

    Attributes:
        happening: a value of `idemguard.Happening`, such as ``"executed"`` or ``"taken over"``.
        outcome: a name of `idemguard.Outcome`, where the happening settles the delivery.
        operation, key_digest, namespace: which unit of work.
        attempt: which attempt of the key it is; 0 where there was no claim.
        error: the type of the exception, if there was one.
    """

    happening: str
    outcome: str | None
    operation: str
    key_digest: str
    namespace: str
    attempt: int
    error: str | None


class Listener(Hook):
    """Hands every happening on as a dict."""

    def __init__(self, note: Callable[[Captured], object]) -> None:
        self._note = note

    def observe(self, event: Event) -> None:
        details = event.details
        self._note(
            {
                "happening": event.happening.value,
                "outcome": event.outcome.value if event.outcome else None,
                "operation": details.operation,
                "key_digest": details.key_digest,
                "namespace": details.namespace,
                "attempt": details.attempt,
                "error": event.error,
            }
        )


@contextmanager
def capture_outcomes() -> Iterator[list[Captured]]:
    """Collect what happens in every delivery of this process while the ``with`` block runs.

    ```python
    with capture_outcomes() as captured:
        handler(event, context)
        handler(event, context)
    assert [each["outcome"] for each in captured] == ["EXECUTED", "SKIPPED_COMPLETED"]
    ```

    Holds no payload and no key. Happenings that do not settle a delivery (a failure of the work, a
    takeover, a ledger that cannot be reached) have None for their outcome.
    """
    captured: list[Captured] = []
    with observed_by(Listener(captured.append)):
        yield captured
