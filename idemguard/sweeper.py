"""Removes records that nobody may act on any more: at hand, on a schedule, or by ``idemguard sweep``.

A store may have no conditional delete, so a sweep works in two passes: it bars a record, which keeps
claimers out for `SWEEP_LEASE` seconds, and removes it once the ledger's `removal_delay` is over and
the bar still stands. The passes are pipelined: barring goes on while earlier bars wait, so a sweep
takes about as long as its rate says, and holds a bounded number of bars in memory.

As a Lambda function, on a schedule: handler ``idemguard.sweeper.handler``, a timeout of 900 seconds,
the ledger in `IDEMGUARD_LEDGER`, and the input ``{"dry_run": false}``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from .clock import SYSTEM_CLOCK, Clock, Deadline
from .errors import InvalidOption
from .ledger import Ledger
from .options import Seconds, default_ledger, seconds
from .sweeping import LAST_CALLS, Sweeping, SweepReport

__all__ = ["DEFAULT_RATE", "SweepReport", "Sweeper", "handler"]

#: Writes a second. Parameter Store takes about 3 in an account and Region by default, and deliveries
#: need them too.
DEFAULT_RATE = 1.5


class Sweeper:
    """Removes expired records and abandoned claims from a ledger.

    Args:
        ledger: any ledger.
        metrics: a Powertools Metrics object to count each sweep on.
        clock: for tests.
    """

    def __init__(self, ledger: Ledger, *, metrics: Any = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._clock = clock

    def sweep(
        self,
        *,
        under: str = "",
        dry_run: bool = True,
        rate: float = DEFAULT_RATE,
        time_limit: Seconds | None = None,
        context: Any = None,
        resume: str | None = None,
        progress: Callable[[SweepReport], None] | None = None,
    ) -> SweepReport:
        """Sweep once through the names below `under`.

        Deliveries and other sweeps may run meanwhile: a claim is never lost to a sweep.

        Args:
            under: a namespace, or a path of several levels; everything by default.
            dry_run: only count; the default.
            rate: writes a second, at most.
            time_limit: seconds by which it ends; bars stop early enough to be removed still.
            context: a Lambda context, whose time left is a limit as well.
            resume: an earlier report's `resume`. One that the store knows no more starts anew.
            progress: is given the report so far, now and then.

        Raises:
            InvalidOption: the rate is none, or the time limit too short to remove anything.
            LedgerMisconfigured: the store refuses; the text names the cure.
            LedgerUnavailable: the store cannot be listed at all. What fails later ends the sweep
                with a report.
        """
        if not rate > 0:
            raise InvalidOption(f"rate: {rate!r} writes a second is not above 0")
        limit = self._limit(time_limit, context)
        reserve = LAST_CALLS + (0.0 if dry_run else self._ledger.removal_delay)
        if limit is not None and limit.remaining() <= reserve:
            raise InvalidOption(
                f"time_limit: a sweep needs more than {reserve:g} seconds, of which a bar stands "
                f"{self._ledger.removal_delay:g}: raise time_limit, or the Lambda function's timeout"
            )
        report = Sweeping(
            self._ledger,
            self._clock,
            under=under.strip("/"),
            dry_run=dry_run,
            rate=rate,
            limit=limit,
            stop=limit.earlier(reserve) if limit else None,
            progress=progress,
        ).run(resume)
        if self._metrics is not None:
            from .integrations.metrics import count_sweep

            count_sweep(self._metrics, report)
        return report

    def _limit(self, time_limit: Seconds | None, context: Any) -> Deadline | None:
        limits = [] if time_limit is None else [seconds("time_limit", time_limit)]
        if context is not None:
            limits.append(context.get_remaining_time_in_millis() / 1000)
        return Deadline.after(self._clock, min(limits)) if limits else None


def handler(event: Any, context: Any) -> dict[str, Any]:
    """A Lambda function that sweeps the ledger of `IDEMGUARD_LEDGER`.

    The event may hold `dry_run` (true by default), `under`, `rate` and `resume`, as for
    `Sweeper.sweep`; everything else in it is ignored, so a schedule's own event does as well. The
    report is returned, for a state machine to pass `resume` on, and printed to the log as one line
    of JSON. With `POWERTOOLS_METRICS_NAMESPACE` set, it is counted on Powertools Metrics.

    Raises:
        InvalidOption: the event holds a value of another type.
        LedgerMisconfigured: the store refuses; the text names the cure.
    """
    asked = event if isinstance(event, Mapping) else {}
    arguments: dict[str, Any] = {}
    for name, kind in (
        ("dry_run", bool),
        ("under", str),
        ("rate", (int, float)),
        ("resume", (str, type(None))),
    ):
        if name in asked:
            # The text "false" would be true.
            if not isinstance(asked[name], kind):
                raise InvalidOption(f"{name}: {type(asked[name]).__name__} is not its type")
            arguments[name] = asked[name]
    metrics = None
    if os.environ.get("POWERTOOLS_METRICS_NAMESPACE"):
        from aws_lambda_powertools import Metrics

        metrics = Metrics()
    report = Sweeper(default_ledger(), metrics=metrics).sweep(context=context, **arguments)
    answer = report.as_dict()
    print(json.dumps({"idemguard_sweep": answer}))
    if metrics is not None:
        metrics.flush_metrics()
    return answer
