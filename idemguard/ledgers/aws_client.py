"""The SDK's clients as ledgers use them: made late, one a process, and short of patience."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..clock import Deadline

# Seconds to connect and to wait for an answer, longest first: a call is given the longest that
# still ends before its deadline, so that a hanging connection never outlives the time left.
# The shortest is taken even where less is left, so it must fit into what deliveries keep in reserve.
_PATIENCE = ((1.0, 2.0), (0.4, 0.6), (0.05, 0.15))


class ClientMaker:
    """Makes boto3 clients lazily, one per process and patience; safe among threads and forks.

    Args:
        service: as the SDK names it, such as ``"dynamodb"``.
        region, endpoint_url: by default the environment tells them.
    """

    def __init__(self, service: str, *, region: str | None, endpoint_url: str | None) -> None:
        self._service = service
        self._region = region
        self._endpoint_url = endpoint_url
        self._made = _Made(os.getpid())

    def __call__(self, deadline: Deadline) -> Any:
        """A client whose calls end before the deadline, as far as that can be had."""
        made = self._made
        if made.pid != os.getpid():
            # Connections and locks do not survive a fork.
            made = self._made = _Made(os.getpid())
        while True:
            left = deadline.remaining()
            patience = next((p for p in _PATIENCE if sum(p) <= left), _PATIENCE[-1])
            client = made.clients.get(patience)
            if client is not None:
                return client
            with made.lock:
                if patience not in made.clients:
                    made.clients[patience] = self._make(*patience)
            # Look again: the first one takes a cold start a second, and then less is left.

    def full(self) -> Any:
        """A client for all of the service, for what is asked by hand now and then."""
        from botocore.config import Config

        config = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 2})
        return ClientMaker._create(self, self._settings(config))

    def _make(self, connect: float, read: float) -> Any:
        import botocore
        from botocore.config import Config

        config = Config(
            connect_timeout=connect,
            read_timeout=read,
            # The store's calls have their own retries, within the time left.
            retries={"total_max_attempts": 1, "mode": "standard"},
            parameter_validation=False,
            max_pool_connections=32,
            tcp_keepalive=True,
            # Fixed: the SDK puts its own together anew for each call, at a tenth of the call's cost.
            user_agent=f"Botocore/{botocore.__version__} lib/idemguard",
        )
        return self._create(self._settings(config))

    def _settings(self, config: Any) -> dict[str, Any]:
        return {
            "region_name": self._region,
            "endpoint_url": self._endpoint_url,
            "config": config,
        }

    def _create(self, settings: Mapping[str, Any]) -> Any:
        import boto3

        return boto3.Session().client(self._service, **settings)


class _Made:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lock = threading.Lock()
        self.clients: dict[tuple[float, float], Any] = {}


class Given:
    """A client of the user's own, with the user's own timeouts and retries."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, deadline: Deadline) -> Any:
        """That client, whatever time is left."""
        return self._client

    def full(self) -> Any:
        """The same client."""
        return self._client


class AlreadySent(Exception):
    """A request that must go out once was about to be sent again."""


_sending = threading.local()


@contextmanager
def sent_once(client: Any, service: str, operation: str) -> Iterator[None]:
    """Keep the SDK from sending `operation` again within this block, whatever the client's retries.

    Raises:
        AlreadySent: out of the call, in place of the second sending.
    """
    # A stand-in for a client may have no events, and no retries of its own either.
    events = getattr(getattr(client, "meta", None), "events", None)
    if events is not None:
        events.register_first(
            f"before-send.{service}.{operation}", _refuse_second, unique_id="idemguard-sent-once"
        )
    _sending.count = 0
    try:
        yield
    finally:
        _sending.count = None


def _refuse_second(**_: object) -> None:
    count = getattr(_sending, "count", None)
    if count is None:
        return
    _sending.count = count + 1
    if count:
        raise AlreadySent
