"""Event in, key out. Pure: no I/O, no clock, and the event is only read."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from jmespath.exceptions import JMESPathTypeError

from .canonical import canonical
from .errors import InvalidKeyExpression
from .expression import Node, NullMember, compile_expression, evaluate, guarded
from .functions import FunctionError
from .record import Key

__all__ = ["MISSING", "Selector", "canonical", "is_redelivery", "make_key", "no_key"]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> Literal[False]:
        return False


#: What a selector gives where the event holds no key.
MISSING: Final = _Missing()
#: No fingerprint is asked for; not the same as one that is null.
NO_FINGERPRINT: Final = object()


class Selector:
    """A key or fingerprint expression, checked at once.

    Events may be dicts, lists, scalars, Powertools data classes, Pydantic models or dataclasses:
    the expression is the same for all. Nothing is copied from a plain event.

    Attributes:
        expression: what it was made of.
        tree: its syntax tree; None for a callable.

    Args:
        expression: a JMESPath expression, or a callable that is given the event as it came.
        role: what the expression is for, to name it in errors.

    Raises:
        InvalidKeyExpression: the expression cannot work; the text says where and names the cure.
    """

    def __init__(self, expression: str | Callable[[Any], Any], role: str = "key") -> None:
        self.expression = expression
        self.tree: Node | None = None
        self._guarded: Node = {}
        if isinstance(expression, str):
            self.tree = compile_expression(expression, role)
            self._guarded = guarded(self.tree)
        elif not callable(expression):
            raise InvalidKeyExpression(
                f"the {role} is a {type(expression).__name__}; pass a JMESPath expression as a "
                "string, or a callable that takes the event"
            )
        elif not _takes_one(expression):
            raise InvalidKeyExpression(
                f"the {role} is a callable that does not take one argument, the event; to decorate "
                'a function, write @idempotent(key="...") with the parentheses'
            )
        elif inspect.iscoroutinefunction(expression):
            raise InvalidKeyExpression(f"the {role} is an async function; pass a plain one")

    def select(self, event: Any) -> Any:
        """What the expression selects, null members and all; `MISSING` where evaluating it fails.

        A callable's own exception leaves unchanged.
        """
        return self._select(event, self.tree)[0]

    def key(self, event: Any) -> Any:
        """What the expression selects, or `MISSING`.

        Missing are: absent and null, ``""``, ``[]``, ``{}``, what cannot be evaluated (a body that
        is not JSON), and a multi-select (of a callable: a list or tuple) with a null member. ``0``
        and ``false`` are keys.
        """
        value, why = self.find(event)
        return MISSING if why else value

    def why(self, event: Any) -> str:
        """Why this event's key is missing, without its payload; empty where it is not."""
        return self.find(event)[1]

    def find(self, event: Any) -> tuple[Any, str]:
        """What `key` and `why` give, at the price of one evaluation."""
        value, why = self._select(event, self._guarded)
        if not why:
            # Of an expression, the guarded tree has looked at the members.
            why = no_key(value) if self.tree is None else _nothing(value)
        return (MISSING, why) if why else (value, "")

    def _select(self, event: Any, tree: Node | None) -> tuple[Any, str]:
        if not isinstance(self.expression, str):
            return self.expression(event), ""
        assert tree is not None
        try:
            return evaluate(tree, event), ""
        # No chaining to any of these: a JMESPath error's text and attributes hold payload.
        except (NullMember, FunctionError) as error:
            return MISSING, str(error)
        except JMESPathTypeError as error:
            return MISSING, f"{error.function_name}() does not take {error.actual_type}"
        except Exception as error:
            return MISSING, f"evaluating the expression failed with {type(error).__name__}"


def no_key(value: Any) -> str:
    """Why a value that the user's own code composed is no key; empty where it is one."""
    if isinstance(value, (list, tuple)) and any(member is None for member in value):
        return "a member of the key is None"
    return _nothing(value)


def _nothing(value: Any) -> str:
    """Why a value is missing whatever composed it; empty where it is not."""
    if value is None or value is MISSING:
        return "null or absent"
    if isinstance(value, (str, bytes, list, tuple, dict)) and not value:
        return f"an empty {type(value).__name__}"
    return ""


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # A built-in that does not tell.
        return True
    return True


def make_key(operation: str, value: Any, fingerprint_value: Any = NO_FINGERPRINT) -> Key:
    """The key of one unit of work.

    Its digest are the first 40 hexadecimal digits of a SHA-256 over the operation and the canonical
    form of `value`; its fingerprint the first 32 of one over the canonical form of
    `fingerprint_value`, where `MISSING` counts as null. `idemguard.canonical` holds the rule.

    Raises:
        InvalidKeyExpression: a value holds something that has no canonical form.
    """
    try:
        name = operation.encode("utf-8", "surrogatepass")
        # The length in front keeps an operation's end apart from its key's beginning.
        digest = hashlib.sha256(b"%d:%s%s" % (len(name), name, canonical(value))).hexdigest()[:40]
        if fingerprint_value is NO_FINGERPRINT:
            return Key(operation, digest)
        payload = None if fingerprint_value is MISSING else fingerprint_value
        return Key(operation, digest, hashlib.sha256(canonical(payload)).hexdigest()[:32])
    except InvalidKeyExpression as error:
        error.operation = operation
        raise


def is_redelivery(event: Any) -> bool:
    """Whether the source itself says that this event, or its first record, came before.

    A hint for reading the ledger first, and nothing more: many duplicates do not say so. Knows SQS
    (a receive count above one) and Amazon MQ (`redelivered`), and is False for anything else.
    """
    record = _data(event)
    for name in ("Records", "messages"):
        if isinstance(records := record.get(name), list) and records:
            record = _data(records[0])
    queues = record.get("rmqMessagesByQueue")
    if isinstance(queues, dict) and queues:
        messages = next(iter(queues.values()))
        if isinstance(messages, list) and messages:
            record = _data(messages[0])
    if record.get("redelivered") is True:
        return True
    count = _data(record.get("attributes")).get("ApproximateReceiveCount")
    # Lambda sends the count as text.
    return isinstance(count, str) and count.isdecimal() and len(count) < 20 and int(count) > 1


def _data(value: Any) -> Mapping[str, Any]:
    if type(value) is not dict and hasattr(type(value), "raw_event"):
        value = value.raw_event
    return value if isinstance(value, dict) else {}
