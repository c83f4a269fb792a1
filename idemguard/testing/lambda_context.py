"""A Lambda context for handlers that run in a test."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from ..clock import SYSTEM_CLOCK, Clock


@dataclass
class FakeLambdaContext:
    """What Lambda passes as `context`, with a request id of its own; the time left runs down.

    Attributes:
        seconds: the function's timeout, counted from when this object is made.
        clock: what tells the time; a FrozenClock lets a test decide.
    """

    seconds: float = 30.0
    clock: Clock = SYSTEM_CLOCK
    function_name: str = "test-function"
    function_version: str = "$LATEST"
    memory_limit_in_mb: int = 128
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:test-function"
    log_group_name: str = "/aws/lambda/test-function"
    log_stream_name: str = "test"
    identity: object = None
    client_context: object = None

    def __post_init__(self) -> None:
        self._ends = self.clock.monotonic() + self.seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is stopped; never negative."""
        return round(max(0.0, self._ends - self.clock.monotonic()) * 1000)
