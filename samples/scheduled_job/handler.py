"""Closes the books once for each tick of its schedule.

A rule may tick twice for one time, and Lambda tries a failed tick twice more. The key is the rule
and the time that it ticked for, which are the same in all of these; tomorrow's tick is new work.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from idemguard import idempotent, sources

logger = Logger(service="nightly-close")

#: Stands in for the books.
closed: list[str] = []


@logger.inject_lambda_context
@idempotent(key=sources.EVENTBRIDGE_SCHEDULE, operation="nightly-close", logger=logger)
def handler(event: dict[str, Any], context: LambdaContext) -> str:
    # The tick's own time, not the clock's: a retry after midnight still closes the right day.
    day: str = event["time"][:10]
    closed.append(day)
    return day
