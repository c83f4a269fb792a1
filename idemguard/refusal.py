"""Why a value cannot be kept, and where it stands."""

from __future__ import annotations

import re

#: What always helps.
OMIT = 'use result="omit"'

_SHOWN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
_BUILT_IN = (str, int, float, bytes, list, dict, tuple, set, frozenset)


class Refused(Exception):
    """A value that cannot be kept; collects the place where it stands on its way up.

    Args:
        cls: the value's type.
        why: the rest of a sentence that begins with the type's name and place, with the cure.
    """

    def __init__(self, cls: type, why: str) -> None:
        super().__init__(why)
        self.cls = cls
        self.why = why
        self._steps: list[str] = []

    @classmethod
    def not_allowed(cls, user_type: type) -> Refused:
        """A type of the user's that nobody named."""
        return cls(
            user_type,
            "is not a type that the return annotation names; annotate the function's return type, "
            f"pass types=[{user_type.__name__}] or {OMIT}",
        )

    @classmethod
    def unknown(cls, unknown: type) -> Refused:
        """A type that is none of those that can be kept."""
        for plain in _BUILT_IN:
            if issubclass(unknown, plain):
                name = plain.__name__
                return cls(unknown, f"is a subclass of {name}; return a {name} or {OMIT}")
        return cls(
            unknown,
            f"is not a type that can be kept; return plain data, a dataclass or a model, or {OMIT}",
        )

    @property
    def where(self) -> str:
        """The place in the result, such as ``$.items[2].price``."""
        return "$" + "".join(reversed(self._steps))

    def under_index(self, index: int) -> None:
        """The value stands in a sequence."""
        self._steps.append(f"[{index}]")

    def under_key(self, key: object) -> None:
        """The value stands in a mapping; a key that does not look like a name may be payload."""
        named = type(key) is str and _SHOWN_KEY.fullmatch(key)
        self._steps.append(f".{key}" if named else "[…]")
