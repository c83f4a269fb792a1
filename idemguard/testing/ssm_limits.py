"""How fast the fake Parameter Store may be called, and how fresh its answers are."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping

from .ssm_rules import Refusal

# AWS counts the three reads together.
_KINDS = {
    "PutParameter": "write",
    "GetParameter": "read",
    "GetParameters": "read",
    "GetParametersByPath": "read",
    "DeleteParameter": "delete",
    "DeleteParameters": "delete",
    "DescribeParameters": "list",
}


class Quotas:
    """Calls allowed within any second, by kind; None for no limit."""

    def __init__(self, limits: Mapping[str, int | None]) -> None:
        self._limits = {kind: limit for kind, limit in limits.items() if limit is not None}
        self._charged: dict[str, deque[float]] = {kind: deque() for kind in self._limits}

    def charge(self, operation: str, now: float) -> None:
        """Count one call.

        Raises:
            Refusal: ThrottlingException; a refused call is not counted.
        """
        kind = _KINDS.get(operation, "")
        if kind not in self._limits:
            return
        charged = self._charged[kind]
        while charged and charged[0] <= now - 1.0:
            charged.popleft()
        if len(charged) >= self._limits[kind]:
            raise Refusal("ThrottlingException", "Rate exceeded")
        charged.append(now)


class Staleness:
    """Decides which reads answer as of before the last write."""

    def __init__(self, chance: float | Callable[[str], bool], seed: int) -> None:
        self._chance = chance
        self._random = random.Random(seed)
        self._scheduled: Counter[str] = Counter()

    def schedule(self, name: str, times: int) -> None:
        """Make the next `times` reads of `name` stale."""
        self._scheduled[name] += times

    def hits(self, name: str) -> bool:
        """Whether this read of `name` is stale."""
        if self._scheduled[name] > 0:
            self._scheduled[name] -= 1
            return True
        if callable(self._chance):
            return self._chance(name)
        return self._random.random() < self._chance
