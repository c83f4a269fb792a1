"""Records that a careless store gives back changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..record import Record, State

#: Characters of one to four bytes, and one that JSON doubles.
NOT_ASCII = ("a", "é", "語", "🎈", '"')

_VALUES: tuple[Any, ...] = (
    None, 0, False, "", [], {}, 1, True, 1.0, -0.5, 10**30, "null", "0",
    [0, False, None, "", [], {}], {"": {"": ""}}, {"a": {"b": {"c": {}}}},
    "{{name}} and {{ssm:/prod/password}}", "}}{{", "{" * 9 + "}" * 9, {"{{": {"}}": "{{}}"}},
    "".join(NOT_ASCII), "\x00\x1f\x7f\u2028\ufeff", "\\u007b{\\", "a\nb\r\n\tc  d ",
)  # fmt: skip


def samples() -> Iterator[Record]:
    """Records in every state that is written, with every field in use."""
    token = "0123456789abcdef" * 2
    for value in _VALUES:
        yield Record(State.COMPLETED, token, 60.0, 3600.0, result=value)
    for state in (State.CLAIMED, State.RELEASED):
        yield Record(state, token, lease=0.001, retention=604800.0, attempt=7, fence=1764554096123)
        yield Record(state, token, 900.0, 60.0, steps={"charge": 0, "{{mail}}": {"a": {"b": {}}}})
    yield Record(State.FAILED, token, 60.0, 3600.0, error={"type": "a:B", "args": ["{{}}", False]})
    yield Record(State.FAILED, token, 60.0, 3600.0, fingerprint="f" * 32, error=0)
    yield Record(
        State.COMPLETED, token, 60.0, 3600.0, fingerprint="", reason="ended by hand: {{é}}"
    )
    yield Record(State.SWEPT, token, lease=180.0)
