"""Key expressions: compiled and checked at decoration, evaluated so that no null slips in.

JMESPath gives ``[a, b]`` a null member where ``b`` is absent. As a key that is no identity: all
events without ``b`` would share it. Whether a list in the result was composed by the expression or
is data of the event cannot be told from the result, so it is decided on the syntax tree.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

import jmespath
from jmespath.exceptions import IncompleteExpressionError, LexerError, ParseError
from jmespath.visitor import TreeInterpreter

from .canonical import plain
from .errors import InvalidKeyExpression
from .functions import OPTIONS

Node = dict[str, Any]

# Functions whose result still shows a null member of their argument.
_CARRIERS = frozenset(
    (
        "join",
        "map",
        "max_by",
        "merge",
        "min_by",
        "not_null",
        "reverse",
        "sort",
        "sort_by",
        "to_array",
        "to_string",
        "values",
    )
)
_REACHES_INTO_EVENT = frozenset(("field", "current", "identity", "index"))


class NullMember(Exception):
    """A part that the expression composes its result of is null; the text names the part."""


def compile_expression(text: str, role: str) -> Node:
    """The syntax tree of a JMESPath expression that can be evaluated and depends on the event.

    Raises:
        InvalidKeyExpression: bad syntax, an unknown function, a wrong number of arguments, or a
            constant; the text shows the place and the cure.
    """
    if not text.strip():
        raise InvalidKeyExpression(f"the {role} expression is empty; name a field of the event")
    try:
        tree: Node = jmespath.compile(text).parsed  # type: ignore[assignment]
    except IncompleteExpressionError:
        raise _invalid(role, text, "it ends too early", len(text)) from None
    except LexerError as error:
        raise _invalid(role, text, error.message, error.lexer_position) from None
    except ParseError as error:
        problem = f"unexpected {error.token_value!r}"
        raise _invalid(role, text, problem, error.lex_position) from None
    except (ValueError, RecursionError) as error:
        raise _invalid(role, text, type(error).__name__, None) from None
    nodes = list(_walk(tree))
    for node in nodes:
        if node["type"] == "function_expression":
            _check_call(node, role, text)
    if not any(node["type"] in _REACHES_INTO_EVENT for node in nodes):
        raise InvalidKeyExpression(
            f"the {role} expression {text!r} is a constant: every event would be a duplicate of "
            "the first; single quotes and backticks make text, bare or double-quoted names fields"
        )
    return tree


def evaluate(tree: Node, event: Any) -> Any:
    """What the expression selects from the event; a tree that `guarded` gave checks its members.

    Raises:
        NullMember: a composed part is null.
        Exception: what JMESPath raises; the text may hold payload.
    """
    return _INTERPRETER.visit(tree, plain(event))  # type: ignore[arg-type]


def guarded(tree: Node) -> Node:
    """`tree` with each multi-select that makes up the result under guard against null members."""
    return _guard(tree, projected=False)


class _Interpreter(TreeInterpreter):
    """JMESPath over dicts, models, data classes and dataclasses alike; without copying any."""

    def visit_field(self, node: Any, value: Any) -> Any:
        if type(value) is not dict:
            value = plain(value)
            if not isinstance(value, dict):
                return None
        return plain(value.get(node["value"]))

    def visit_guarded(self, node: Any, value: Any) -> Any:
        (child,) = node["children"]
        selected = self.visit(child, plain(value))
        if selected is None:
            if node["value"]:
                raise NullMember("an element of the projection is null, so its members are")
            return None
        members = selected.items() if isinstance(selected, dict) else enumerate(selected)
        for name, member in members:
            if member is None:
                where = f"member {name!r}" if isinstance(name, str) else f"member {name + 1}"
                raise NullMember(f"{where} of the multi-select is null or absent")
        return selected


# Holds nothing of a call, so threads may share it.
_INTERPRETER = _Interpreter(OPTIONS)


def _guard(node: Node, *, projected: bool) -> Node:
    kind = node["type"]
    children: list[Any] = node["children"]
    if kind in ("multi_select_list", "multi_select_dict"):
        inner = {**node, "children": [_guard(child, projected=False) for child in children]}
        return {"type": "guarded", "value": projected, "children": [inner]}
    if kind in ("pipe", "subexpression"):
        # The last stage makes the result; one that only hands on leaves it to the stage before.
        at = len(children) - 1
        while at > 0 and _hands_on(children[at]):
            at -= 1
        return _with(node, at, projected)
    if kind in ("projection", "value_projection"):
        left, right = children
        if _hands_on(right):
            return _with(node, 0, False)
        return _with(node, 1, True)
    if kind == "filter_projection":
        return _with(node, 1, True)
    if kind == "or_expression":
        # A null on the left is what the right is for; a null member is not.
        left, right = children
        guards = [_guard(left, projected=False), _guard(right, projected=projected)]
        return {**node, "children": guards}
    if kind == "index_expression" and children[-1]["type"] == "slice":
        return _with(node, 0, projected)
    if kind == "expref":
        return _with(node, 0, True)
    if kind in ("and_expression", "key_val_pair", "flatten") or (
        kind == "function_expression" and node["value"] in _CARRIERS
    ):
        return {**node, "children": [_guard(child, projected=False) for child in children]}
    return node


def _with(node: Node, at: int, projected: bool) -> Node:
    children = list(node["children"])
    children[at] = _guard(children[at], projected=projected)
    return {**node, "children": children}


def _hands_on(node: Node) -> bool:
    """Whether a stage gives what it was given, if perhaps flattened or without its nulls."""
    if node["type"] in ("current", "identity"):
        return True
    return node["type"] in ("projection", "flatten") and all(map(_hands_on, node["children"]))


def _walk(node: Node) -> Any:
    yield node
    for child in node["children"]:
        if isinstance(child, dict):  # A slice's children are its bounds.
            yield from _walk(child)


def _check_call(node: Node, role: str, text: str) -> None:
    name, arguments = node["value"], node["children"]
    known = OPTIONS.custom_functions.FUNCTION_TABLE if OPTIONS.custom_functions else {}
    place = text.find(name)
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        cure = f"did you mean {close[0]}()?" if close else "the functions are: " + ", ".join(known)
        raise _invalid(role, text, f"there is no function {name}()", place, cure)
    signature = known[name]["signature"]
    variadic = bool(signature) and signature[-1].get("variadic", False)
    if len(arguments) < len(signature) or (len(arguments) > len(signature) and not variadic):
        wanted = f"{'at least ' if variadic else ''}{len(signature)}"
        problem = f"{name}() takes {wanted} argument(s), not {len(arguments)}"
        raise _invalid(role, text, problem, place, "add or remove arguments")
    if name == "header" and arguments[1]["type"] == "field":
        cure = f"put it in single quotes: '{arguments[1]['value']}'"
        raise _invalid(role, text, "the header's name is read as a field", place, cure)


def _invalid(
    role: str, text: str, problem: str, position: int | None, cure: str = ""
) -> InvalidKeyExpression:
    if not cure:
        dashed = re.search(r"(?<![\w\"'`-])[A-Za-z_]\w*(?:-\w+)+(?![\w\"'`-])", text)
        if dashed:
            cure = f'names with "-" need double quotes: "{dashed.group()}"'
        else:
            cure = "the syntax is described at https://jmespath.org/specification.html"
    at = "" if position is None else f" at position {position}"
    return InvalidKeyExpression(f"the {role} expression {text!r} is invalid{at}: {problem}; {cure}")
