"""What type checkers must see; checked by mypy strict and pyright, never executed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from typing_extensions import assert_type

from idemguard import Claim, Execution, Guard, current_claim, effect_key, idempotent, step


@idempotent(key="id")
def handler(event: dict[str, str], context: object) -> int:
    return 1


@idempotent(key="id", retention=60, on_in_flight="wait")
async def async_handler(event: dict[str, str], context: object, *, flag: bool = False) -> str:
    return ""


class Handlers:
    @idempotent(key="id")
    def method(self, event: dict[str, str]) -> float:
        return 1.0

    @classmethod
    @idempotent(key="id")
    def of_class(cls, event: dict[str, str]) -> bytes:
        return b""

    @staticmethod
    @idempotent(key="id")
    def static(event: dict[str, str]) -> list[int]:
        return []


guard = Guard(namespace="shop")


@guard.idempotent(key=lambda event: event["id"], argument="record")
def process(record: dict[str, str]) -> None:
    return None


def never_called() -> None:
    assert_type(handler({}, None), int)
    assert_type(Handlers().method({}), float)
    assert_type(Handlers.of_class({}), bytes)
    assert_type(Handlers.static({}), list[int])
    assert_type(step("a", len, "text"), int)
    assert_type(effect_key("a"), str)
    assert_type(current_claim(), Claim)
    assert_type(guard.run_exactly_once("k", lambda: 1), Execution[int])
    coroutine: Callable[[], Coroutine[Any, Any, str]] = lambda: async_handler({}, None)  # noqa: E731
    assert_type(guard.claim("k"), Claim | Execution[Any])
    del coroutine
    process({})

    handler("no dict", None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    handler({})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    idempotent(key="id", retenton=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    idempotent(  # type: ignore[call-overload, unused-ignore]
        key="id",
        on_in_flight="later",  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )
    Guard(ledger=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def never_awaited() -> None:
    assert_type(await async_handler({}, None, flag=True), str)
    assert_type(await guard.run_exactly_once_async("k", _text), Execution[str])


async def _text() -> str:
    return ""
