"""What the fake Parameter Store holds, and what it held a moment ago."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from .ssm_rules import Refusal


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a parameter."""

    number: int
    value: str
    type: str
    tier: str
    key_id: str | None
    description: str | None
    modified: datetime


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter with its kept versions, oldest first, and its labels by name."""

    versions: tuple[Version, ...]
    labels: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def newest(self) -> Version:
        """The version that a read without a selector gives."""
        return self.versions[-1]

    def select(self, selector: str) -> Version:
        """The version with that number or label, or the newest for an empty selector.

        Raises:
            Refusal: ParameterVersionNotFound.
        """
        if not selector:
            return self.newest
        number = int(selector) if selector.isdecimal() else self.labels.get(selector)
        for version in self.versions:
            if version.number == number:
                return version
        raise Refusal("ParameterVersionNotFound", f"no version {selector} of this parameter")


@dataclass(frozen=True, slots=True)
class _Change:
    at: float
    left: Parameter | None


class History:
    """The changes of every name, so that a read can be answered as of a moment ago.

    `remember` is how many seconds back `as_of` can look. The last two states of a name are always
    kept. Not safe among threads: the fake's lock guards it.
    """

    def __init__(self, remember: float) -> None:
        self._remember = remember
        self._changes: dict[str, list[_Change]] = {}
        self._tiers: Counter[str] = Counter()

    def write(self, name: str, left: Parameter | None, at: float) -> None:
        """What `name` is from `at` (seconds since the epoch) on; None once it is deleted."""
        old = self.current(name)
        if old is not None:
            self._tiers[old.newest.tier] -= 1
        if left is not None:
            self._tiers[left.newest.tier] += 1
        changes = self._changes.setdefault(name, [])
        changes.append(_Change(at, left))
        while len(changes) > 2 and changes[1].at <= at - self._remember:
            del changes[0]

    def names(self) -> list[str]:
        """Every name that there is or was, in order."""
        return sorted(self._changes)

    def current(self, name: str) -> Parameter | None:
        """What `name` is now."""
        changes = self._changes.get(name)
        return changes[-1].left if changes else None

    def before_last(self, name: str) -> Parameter | None:
        """What `name` was before its last change."""
        changes = self._changes.get(name, [])
        return changes[-2].left if len(changes) > 1 else None

    def as_of(self, name: str, moment: float) -> Parameter | None:
        """What `name` was at `moment`, in seconds since the epoch."""
        for change in reversed(self._changes.get(name, [])):
            if change.at <= moment:
                return change.left
        return None

    def deleted_at(self, name: str) -> float | None:
        """When `name` was deleted, or None where it is there or never was."""
        changes = self._changes.get(name)
        return changes[-1].at if changes and changes[-1].left is None else None

    def count(self, tier: str) -> int:
        """How many parameters of that tier there are."""
        return self._tiers[tier]
