"""One parameter of Parameter Store with its versions, and the store's own clock."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

#: Off the whole second, so that rounding of the Date header to seconds is always in play.
START = 1_750_000_000.4
WINDOW = 30.0


class Answer(Exception):
    """The store refuses, with this AWS error code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Version:
    """One version, with what the properties need to know of it.

    `counts` is judged here by the words of the protocol, not by the ledger's code. `ground` is its
    identity for telling states of the world apart: random tokens are left out of it.
    """

    number: int
    text: str
    description: str
    modified: float
    writer: int
    life: int
    counts: bool
    state: str
    token: str
    lease: float
    retention: float
    ground: int

    def age(self, now: float) -> float:
        return now - self.modified


@dataclass(slots=True)
class World:
    """The parameter and the time.

    Attributes:
        kept: versions that can still be read, oldest first; empty when there is no parameter.
        life: all versions since the parameter was last created, purged ones too.
        past: what `kept` was earlier and until when, oldest first, for stale reads.
        ever: all versions of all lives.
        lives: how often the parameter was created.
        noise: versions written that do not count.
    """

    history: int = 100
    reuse_wait: float = 30.0
    now: float = START
    kept: tuple[Version, ...] = ()
    life: tuple[Version, ...] = ()
    past: list[tuple[float, tuple[Version, ...]]] = field(
        default_factory=list[tuple[float, tuple[Version, ...]]]
    )
    ever: list[Version] = field(default_factory=list[Version])
    lives: int = 0
    noise: int = 0
    deleted: float | None = None

    def put(self, text: str, description: str, overwrite: bool, writer: int) -> Version:
        """Append a version, or create the parameter.

        Raises:
            Answer: it exists and `overwrite` is false, or its name was deleted a moment ago.
        """
        if not self.kept:
            if self.deleted is not None and self.now - self.deleted < self.reuse_wait:
                raise Answer("TooManyUpdates")
        elif not overwrite:
            raise Answer("ParameterAlreadyExists")
        number = self.kept[-1].number + 1 if self.kept else 1
        self.lives += number == 1
        version = _version(number, text, description, self.now, writer, self.lives)
        self._change((*self.kept, version)[-self.history :])
        self.life = (*self.life, version) if number > 1 else (version,)
        self.ever.append(version)
        self.noise += writer >= 0 and not version.counts
        return version

    def delete(self) -> bool:
        """Remove the parameter; whether it was there."""
        if not self.kept:
            return False
        self._change(())
        self.life = ()
        self.deleted = self.now
        return True

    @property
    def head(self) -> Version | None:
        """The newest version that counts, purged or not; None when nobody holds the name."""
        return next((v for v in reversed(self.life) if v.counts), None)

    def ground(self) -> int:
        """A number that is the same for the same state of the store."""
        return hash((tuple(v.ground for v in self.life), len(self.kept), self.deleted, self.now))

    def _change(self, kept: tuple[Version, ...]) -> None:
        self.past.append((self.now, self.kept))
        self.kept = kept


def _version(
    number: int, text: str, description: str, now: float, writer: int, life: int
) -> Version:
    wire: dict[str, Any] = json.loads(text)
    modified = round(now, 3)
    prev, seen, token = wire["p"], wire.get("s"), wire["t"]
    timely = number == 1 if seen is None else abs(modified - seen) <= WINDOW
    return Version(
        number,
        text,
        description,
        modified,
        writer,
        life,
        prev == number - 1 and timely,
        wire["x"],
        token,
        wire.get("l", 0.0),
        wire.get("k", 0.0),
        hash((life, number, text.replace(token, str(writer)), modified)),
    )
