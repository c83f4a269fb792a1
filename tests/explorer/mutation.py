"""Takes a guard out of the code by editing a function's source, and puts it back.

When the code changes so that an edit does not apply any more, it says so instead of testing nothing.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from .properties import Property
from .scenarios import Scenario

BOTH_RUN = frozenset(
    {
        Property.ONE_HOLDER,
        Property.DONE_ONCE,
        Property.ONLY_WINNERS_RUN,
        Property.NO_ERASURE,
    }
)


@dataclass(frozen=True, slots=True)
class Edit:
    """In the function at `where` (``module:attribute``), each text becomes the one beside it."""

    where: str
    changes: tuple[tuple[str, str], ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        module, _, path = self.where.partition(":")
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        before = getattr(owner, name)
        setattr(owner, name, self._edited(before))
        try:
            yield
        finally:
            setattr(owner, name, before)

    def _edited(self, function: Any) -> Any:
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in self.changes:
            assert source.count(old) == 1, f"{self.where} has changed: adapt the mutant"
            source = source.replace(old, new)
        namespace: dict[str, Any] = {}
        # The module's own `from __future__` line is not in the function's source.
        code = f"from __future__ import annotations\n{source}"
        exec(compile(code, f"<mutant of {self.where}>", "exec"), function.__globals__, namespace)
        return namespace[function.__name__]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard taken out, where that shows, and which promises it breaks."""

    name: str
    edits: tuple[Edit, ...]
    scenario: Scenario
    breaks: frozenset[Property] = BOTH_RUN

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Within it the code is mutated."""
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(edit.applied())
            yield
