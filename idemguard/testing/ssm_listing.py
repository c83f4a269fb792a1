"""Filters and pages of the fake Parameter Store's listings."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .ssm_rules import Refusal, check_path

_OPTIONS = {"Path": ("OneLevel", "Recursive"), "Name": ("Equals", "BeginsWith")}


def below(name: str, path: str, *, recursive: bool) -> bool:
    """Whether `name` stands below `path`, in the next level only unless `recursive`."""
    start = path.rstrip("/") + "/"
    return name.startswith(start) and (recursive or "/" not in name[len(start) :])


def check_filters(filters: Sequence[Mapping[str, Any]]) -> None:
    """Refuse filters that are malformed, or that this fake does not know.

    Raises:
        Refusal: InvalidFilterKey for anything but Path and Name (AWS knows more),
            InvalidFilterOption, InvalidFilterValue, or ValidationException.
    """
    for given in filters:
        key = given["Key"]
        if key not in _OPTIONS:
            raise Refusal("InvalidFilterKey", f"this fake filters by Path and Name, not by {key}")
        if given.get("Option", _OPTIONS[key][0]) not in _OPTIONS[key]:
            raise Refusal("InvalidFilterOption", f"options of {key}: {', '.join(_OPTIONS[key])}")
        if not given.get("Values"):
            raise Refusal("InvalidFilterValue", f"a filter by {key} needs values")
        if key == "Path":
            for path in given["Values"]:
                check_path(path)


def passes(name: str, filters: Sequence[Mapping[str, Any]]) -> bool:
    """Whether `name` passes every filter; a filter passes by any of its values."""
    return all(_passes(name, given) for given in filters)


def _passes(name: str, given: Mapping[str, Any]) -> bool:
    option = given.get("Option", _OPTIONS[given["Key"]][0])
    for value in given["Values"]:
        if given["Key"] == "Path":
            if below(name, value, recursive=option == "Recursive"):
                return True
        elif name == value or (option == "BeginsWith" and name.startswith(value)):
            return True
    return False


def page(
    names: Sequence[str], *, size: int, token: str | None, with_empty: bool
) -> tuple[Sequence[str], str | None]:
    """One page of `names`, which are in order, and the token of the next page, if any.

    With `with_empty`, an empty page that has a token stands before every other page.

    Raises:
        Refusal: InvalidNextToken.
    """
    after, was_empty = _read_token(token)
    rest = [name for name in names if name > after]
    if with_empty and rest and not was_empty:
        return (), _write_token(after, was_empty=True)
    chunk = rest[:size]
    return chunk, _write_token(chunk[-1], was_empty=False) if len(rest) > size else None


def _write_token(after: str, *, was_empty: bool) -> str:
    return base64.urlsafe_b64encode(json.dumps([after, was_empty]).encode()).decode()


def _read_token(token: str | None) -> tuple[str, bool]:
    if token is None:
        return "", False
    try:
        after, was_empty = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError, TypeError):
        raise Refusal("InvalidNextToken", "not a token of this listing") from None
    return str(after), bool(was_empty)
