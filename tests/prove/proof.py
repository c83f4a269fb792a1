"""What one attack on the guarantees came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Proof:
    """The figures of one prover.

    Attributes:
        name: what `--only` calls it.
        figures: what was done and met, by name, in the order to print.
        broken: each promise that did not hold, in words; empty when all held.
        seconds: how long it took.
    """

    name: str
    figures: Mapping[str, int | str] = field(default_factory=dict[str, int | str])
    broken: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every promise held."""
        return not self.broken
