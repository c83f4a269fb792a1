"""Counting what a handler does to the world: mails sent, cards charged, rows written."""

from __future__ import annotations

import functools
import inspect
import pkgutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from unittest import mock

from .crash import Life

F = TypeVar("F", bound=Callable[..., Any])

_REAL: Any = object()


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect that reached the world.

    Attributes:
        name: what it is called.
        key: the effect key that went with it, by which the service behind it drops repeats.
        arguments: what it was called with, as text.
    """

    name: str
    key: str | None = None
    arguments: str = ""


class Effects:
    """Counts effects, three ways.

    - In the handler's fakes: ``effects.record("mail-sent")``, with ``key=effect_key("mail-sent")``
      where the real service drops a second request with the same key.
    - Round a function: ``charge = effects.wrap("charge", charge)``.
    - Behind the handler's back: ``with effects.watch("shop.mail.ses.send_email"): ...``.

    Safe among threads.
    """

    def __init__(self) -> None:
        self._made: list[Effect] = []
        self._lock = threading.Lock()
        self._life: Life | None = None

    def __repr__(self) -> str:
        return f"Effects({counted(self.made) or 'none'})"

    @property
    def made(self) -> list[Effect]:
        """All effects, in order."""
        with self._lock:
            return list(self._made)

    @property
    def calls(self) -> Counter[str]:
        """How often each effect was asked for, by name."""
        return calls_of(self.made)

    @property
    def counts(self) -> Counter[str]:
        """How often each effect was done, by name: requests with one effect key are done once."""
        return counts_of(self.made)

    @property
    def distinct(self) -> Counter[str]:
        """With how many different arguments each effect was asked for, by name."""
        return Counter(name for name, _ in {(made.name, made.arguments) for made in self.made})

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._made.clear()

    def record(self, name: str, /, *args: Any, key: str | None = None, **kwargs: Any) -> None:
        """Count an effect that has just been done.

        Args:
            name: what it is called.
            args: anything that tells one such effect from another.
            key: the effect key that was sent along, if the service behind it drops repeats by it.
            kwargs: as `args`.
        """
        self._check()
        self._note(name, key, args, kwargs)

    def wrap(self, name: str, function: F, *, key: Callable[..., str | None] | None = None) -> F:
        """`function`, counted each time that it returns; also an ``async def``.

        Args:
            name: what the effect is called.
            function: what does it.
            key: takes the same arguments and tells the effect key among them.
        """
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                self._check()
                effect_key = key(*args, **kwargs) if key else None
                result = await function(*args, **kwargs)
                self._note(name, effect_key, args, kwargs)
                return result

            return cast(F, awaited)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            self._check()
            effect_key = key(*args, **kwargs) if key else None
            result = function(*args, **kwargs)
            self._note(name, effect_key, args, kwargs)
            return result

        return cast(F, called)

    @contextmanager
    def watch(
        self,
        target: str,
        *,
        name: str | None = None,
        key: Callable[..., str | None] | None = None,
        returns: Any = _REAL,
    ) -> Iterator[Effects]:
        """Count the calls of what a dotted name stands for, while the ``with`` block runs.

        ```python
        with effects.watch("shop.mail.ses.send_email", returns={"MessageId": "1"}):
            deliver_with_crashes(handler, event, effects=effects).assert_once()
        ```

        Args:
            target: where the handler looks it up, as for `unittest.mock.patch`.
            name: what the effect is called; by default the last part of `target`.
            key: takes the same arguments and tells the effect key among them.
            returns: the answer to give; without it, the real thing is called.

        Raises:
            ImportError, AttributeError: there is no such thing.
            TypeError: it cannot be called.
        """
        place, _, attribute = target.rpartition(".")
        owner: Any = pkgutil.resolve_name(place) if place else None
        if owner is None:
            raise ImportError(f"target: {target!r} names no module; write module.name")
        # Of a class, what stands in it: bound to the class, its methods would not get their self.
        real: Any = (
            inspect.getattr_static(owner, attribute)
            if isinstance(owner, type)
            else getattr(owner, attribute)
        )
        kind = type(real) if isinstance(real, (staticmethod, classmethod)) else None
        function: Any = real.__func__ if kind else real
        if not callable(function):
            raise TypeError(f"target: {target!r} is a {type(real).__name__}, which nobody can call")
        if returns is not _REAL:
            function = _answering(function, returns)
        counted: Any = self.wrap(name or attribute, function, key=key)
        with mock.patch.object(owner, attribute, kind(counted) if kind else counted):
            yield self

    @contextmanager
    def during(self, life: Life) -> Iterator[None]:
        """Let a crash of `life` end the counting as it ends the work; the deliverers do this."""
        before, self._life = self._life, life
        try:
            yield
        finally:
            self._life = before

    def _check(self) -> None:
        if self._life is not None:
            self._life.check()

    def _note(self, name: str, key: str | None, args: tuple[Any, ...], kwargs: Any) -> None:
        parts = [repr(arg) for arg in args]
        parts += [f"{name}={value!r}" for name, value in sorted(kwargs.items())]
        effect = Effect(name, key, ", ".join(parts))
        with self._lock:
            self._made.append(effect)
        if self._life is not None:
            self._life.happened(effect)


def calls_of(effects: list[Effect]) -> Counter[str]:
    """How often each was asked for, by name."""
    return Counter(effect.name for effect in effects)


def counts_of(effects: list[Effect]) -> Counter[str]:
    """How often each was done, by name, where requests with one effect key are done once."""
    keyed = {(effect.name, effect.key) for effect in effects if effect.key is not None}
    counts = Counter(name for name, _ in keyed)
    counts.update(effect.name for effect in effects if effect.key is None)
    return counts


def counted(effects: list[Effect]) -> str:
    """The counts as text, such as ``charge 1, mail-sent 2 (3 calls)``."""
    calls = calls_of(effects)
    return ", ".join(
        f"{name} {count}" + (f" ({calls[name]} calls)" if calls[name] != count else "")
        for name, count in sorted(counts_of(effects).items())
    )


def _answering(function: Any, answer: Any) -> Any:
    if inspect.iscoroutinefunction(function):

        async def answer_later(*args: Any, **kwargs: Any) -> Any:
            return answer

        return answer_later
    return lambda *args, **kwargs: answer
