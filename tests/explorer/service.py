"""What the store answers to a call: members, dates and errors as boto3 gives them."""

from __future__ import annotations

from datetime import datetime, timezone
from email.utils import formatdate
from functools import lru_cache
from typing import Any

from botocore.exceptions import ClientError

from .actors import FULL_NAME
from .machines import Call
from .properties import Monitor
from .world import Answer, Version, World


class Seen:
    """A version in short; equal and hashed by what a reader can tell apart."""

    __slots__ = ("_version",)

    def __init__(self, version: Version) -> None:
        self._version = version

    def __hash__(self) -> int:
        return self._version.ground

    def __str__(self) -> str:
        version = self._version
        mark = "" if version.counts else ", does not count"
        return f"version {version.number} ({version.state} of {version.token[:4]}{mark})"


def serve(
    world: World,
    monitor: Monitor,
    call: Call,
    writer: int,
    stale: tuple[Version, ...] | None = None,
) -> tuple[Any, object]:
    """The store's answer to a call, and the same in short.

    Raises:
        Answer: the store refuses.
    """
    request = call.request
    kept = world.kept if stale is None else stale
    if call.operation == "PutParameter":
        before = world.head
        newest = world.kept[-1] if world.kept else None
        version = world.put(request["Value"], request["Description"], request["Overwrite"], writer)
        monitor.wrote(version, before, newest)
        return _reply(world.now, Version=version.number, Tier="Standard"), Seen(version)
    if call.operation == "GetParameter":
        name, _, selector = request["Name"].partition(":")
        version = _select(kept, selector)
        return _reply(world.now, Parameter=_shown(name, version)), Seen(version)
    if call.operation == "GetParameters":
        found = [_shown(name, kept[-1]) for name in request["Names"] if kept]
        missing = [] if found else request["Names"]
        seen = Seen(kept[-1]) if kept else "nothing"
        return _reply(world.now, Parameters=found, InvalidParameters=missing), seen
    if call.operation == "DescribeParameters":
        listed = [_shown(FULL_NAME, kept[-1])] if kept else []
        return _reply(world.now, Parameters=listed), Seen(kept[-1]) if kept else "nothing"
    assert call.operation == "DeleteParameters", call.operation
    monitor.deleted(world.head)
    gone = request["Names"] if world.delete() else []
    missing = [] if gone else request["Names"]
    return _reply(world.now, DeletedParameters=gone, InvalidParameters=missing), len(gone)


def told(call: Call) -> str:
    """A call in short."""
    selector = str(call.request.get("Name", "")).partition(":")[2]
    if call.operation == "PutParameter":
        return "overwrite" if call.request["Overwrite"] else "create"
    return call.operation + (f" version {selector}" if selector else "")


def _select(kept: tuple[Version, ...], selector: str) -> Version:
    """The version that ``GetParameter`` gives for ``name`` or ``name:number``.

    Raises:
        Answer: there is no such parameter or version.
    """
    if not kept:
        raise Answer("ParameterNotFound")
    if not selector:
        return kept[-1]
    for version in kept:
        if version.number == int(selector):
            return version
    raise Answer("ParameterVersionNotFound")


@lru_cache(maxsize=4096)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def _reply(now: float, **members: Any) -> dict[str, Any]:
    """An answer as boto3 gives it, dated in whole seconds as AWS does."""
    headers = {"date": _date(int(now))}
    return {**members, "ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": headers}}


def refusal(now: float, operation: str, code: str) -> ClientError:
    """An error as boto3 raises it."""
    headers = {"date": _date(int(now))}
    answer = {
        "Error": {"Code": code, "Message": code},
        "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": headers},
    }
    return ClientError(answer, operation)


def _shown(name: str, version: Version) -> dict[str, Any]:
    """A version as GetParameter and DescribeParameters show it."""
    return {
        "Name": name,
        "Value": version.text,
        "Version": version.number,
        "Description": version.description,
        "LastModifiedDate": datetime.fromtimestamp(version.modified, timezone.utc),
    }
