"""The values that travel: Key, Record and their text form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, cast

from .errors import UnreadableRecordError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of one logical unit of work, derived from the event alone.

    Attributes:
        operation: the name of the decorated work.
        digest: hash of the operation and the key's canonical form; 40 hexadecimal digits.
        fingerprint: hash of the payload part that must not change under this key, if one is asked for.
    """

    operation: str
    digest: str
    fingerprint: str | None = None


class State(Enum):
    """What a record says of its key."""

    CLAIMED = "c"
    COMPLETED = "d"
    RELEASED = "r"
    FAILED = "f"
    SWEPT = "s"
    #: Never written. Every entry under the name is noise: nobody holds it.
    VACANT = "v"
    #: Never written. The history was purged: somebody may hold it, nobody can tell who.
    UNKNOWN = "u"


@dataclass(frozen=True, slots=True)
class Record:
    """What the ledger holds for a key. Durations are seconds; there are no absolute times.

    `result`, `error` and the step values are what `codec` made: JSON values, not the user's own.
    `fence` rises with every claim of a key; it orders attempts for conditional writes downstream.
    """

    state: State
    token: str
    lease: float = 0.0
    retention: float = 0.0
    attempt: int = 1
    fence: int = 0
    fingerprint: str | None = None
    result: Any = None
    error: Any = None
    steps: Mapping[str, Any] = field(default_factory=dict)
    #: Why an operator ended it by hand; empty otherwise.
    reason: str = ""

    @property
    def horizon(self) -> float:
        """Seconds after its last write during which anybody may still act on this record."""
        return max(self.lease, self.retention)

    def ended(self, state: State, **changes: Any) -> Record:
        """This record, carried over into another state."""
        return replace(self, state=state, **changes)


VACANT = Record(State.VACANT, token="")


# Text form. Small keys, one letter each, because a standard parameter holds 4,096 bytes.
_SECONDS = (int, float)
_NO_JSON = object()
_WRITTEN = {state.value: state for state in State if state not in (State.VACANT, State.UNKNOWN)}
_LONGEST = 1e10
_FIELDS: tuple[tuple[str, str, type | tuple[type, ...], object], ...] = (
    ("token", "t", str, None),
    ("lease", "l", _SECONDS, 0.0),
    ("retention", "k", _SECONDS, 0.0),
    ("attempt", "a", int, 1),
    ("fence", "n", int, 0),
    ("fingerprint", "h", str, None),
    ("result", "v", object, None),
    ("error", "e", object, None),
    ("steps", "d", dict, {}),
    ("reason", "y", str, ""),
)

# In a JSON text a brace inside a string may be written as an escape, and one outside of a string
# may be followed by a space: neither changes the value. SSM refuses values with {{...}}.
_BRACES = re.compile(r'"(?:[^"\\]|\\.)*"|\}(?=\})|\{(?=\{)')


# Made once: `json.dumps` would make an encoder for each record.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def _keep_braces_apart(match: re.Match[str]) -> str:
    text = match.group()
    if text[0] != '"':
        return text + " "
    return text.replace("{{", "{\\u007b").replace("}}", "}\\u007d")


def to_text(record: Record, **extra: object) -> str:
    """`record` as ASCII JSON that never holds ``{{`` or ``}}``; `extra` are a ledger's own fields."""
    wire: dict[str, object] = {"f": FORMAT, **extra}
    for name, short, _, default in _FIELDS:
        value = getattr(record, name)
        if value != default or type(value) is not type(default):
            wire[short] = value
    # Last, so that a result that ends in a brace does not meet the record's own.
    wire["x"] = record.state.value
    text = _encode(wire)
    if "{{" in text or "}}" in text:
        text = _BRACES.sub(_keep_braces_apart, text)
    return text


def from_text(text: str) -> tuple[Record, dict[str, Any]]:
    """The record in `text` and everything else that stood in it.

    Raises:
        UnreadableRecordError: it is no record, a broken one, or one of a newer format.
    """
    # Errors are raised outside of `except`: those of the parser hold the text, and with it a result.
    try:
        wire = json.loads(text)
    except (ValueError, RecursionError):
        wire = _NO_JSON
    if wire is _NO_JSON:
        raise UnreadableRecordError("not a record: the value is not JSON")
    if not isinstance(wire, dict) or "f" not in wire or "x" not in wire:
        raise UnreadableRecordError("not a record: the value has no record format number")
    if wire["f"] != FORMAT or isinstance(wire["f"], bool):
        # Only a number is shown: anything else is a stranger's, and may be a secret.
        other = f" {wire['f']}" if type(wire["f"]) is int else ""
        raise UnreadableRecordError(
            f"record format{other:.20} is not the one this version reads ({FORMAT}); upgrade "
            "idemguard everywhere that shares this ledger"
        )
    del wire["f"]
    state = wire.pop("x")
    values: dict[str, Any] = {}
    for name, short, kind, _ in _FIELDS:
        if short in wire:
            value = wire.pop(short)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not object):
                raise UnreadableRecordError(f"a broken record: field {short!r} has another type")
            if kind is _SECONDS and not _is_duration(cast(float, value)):
                raise UnreadableRecordError(f"a broken record: field {short!r} is out of range")
            values[name] = value
    if not isinstance(state, str) or state not in _WRITTEN or "token" not in values:
        raise UnreadableRecordError("a broken record: its state or token is none that is written")
    return Record(_WRITTEN[state], **values), wire


def _is_duration(value: float) -> bool:
    # NaN compares as false.
    return 0 <= value <= _LONGEST
