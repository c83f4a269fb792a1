"""The test kit: run one's own handler under what at-least-once delivery does to it.

| name | for |
|---|---|
| `deliver` | the same event several times, one after the other |
| `deliver_concurrently` | the same event at one moment, on purpose and without luck |
| `deliver_with_crashes` | an attempt killed at every place in turn, and what a redelivery makes of it |
| `Effects` | counting what the handler does to the world, also behind its back |
| `capture_outcomes` | what became of the deliveries in a ``with`` block, as plain dicts |
| `MemoryLedger`, `FrozenClock`, `FakeLambdaContext` | a ledger, the time and the context of a test |
| `FaultyLedger`, `LedgerFault` | a ledger that is throttled, slow, denied, or loses its answers |
| `StrictSSM`, `StrictSSMServer`, `Fault` | a fake of Parameter Store that refuses what AWS refuses |
| `LedgerContract` | the checks for a ledger of one's own |

With pytest, the fixtures of `idemguard.pytest_plugin` are there without an import. Each name is
imported when it is first used: what needs botocore costs nothing until then.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ledgers.memory import MemoryLedger
    from .capture import Captured, capture_outcomes
    from .concurrency import deliver_concurrently
    from .contract import LedgerContract
    from .crash import Crash
    from .crash_report import CrashReport, CrashRun
    from .crashes import deliver_with_crashes
    from .deliveries import Delivered, Deliveries, deliver
    from .effects import Effect, Effects
    from .faults import FaultyLedger, LedgerFault
    from .frozen_clock import FrozenClock
    from .lambda_context import FakeLambdaContext
    from .ssm_faults import Fault
    from .ssm_server import StrictSSMServer
    from .strict_ssm import StrictSSM

_HOMES = {
    "Captured": "capture",
    "Crash": "crash",
    "CrashReport": "crash_report",
    "CrashRun": "crash_report",
    "Deliveries": "deliveries",
    "Delivered": "deliveries",
    "Effect": "effects",
    "Effects": "effects",
    "FakeLambdaContext": "lambda_context",
    "Fault": "ssm_faults",
    "FaultyLedger": "faults",
    "FrozenClock": "frozen_clock",
    "LedgerContract": "contract",
    "LedgerFault": "faults",
    "MemoryLedger": "..ledgers.memory",
    "StrictSSM": "strict_ssm",
    "StrictSSMServer": "ssm_server",
    "capture_outcomes": "capture",
    "deliver": "deliveries",
    "deliver_concurrently": "concurrency",
    "deliver_with_crashes": "crashes",
}

__all__ = [
    "Captured",
    "Crash",
    "CrashReport",
    "CrashRun",
    "Delivered",
    "Deliveries",
    "Effect",
    "Effects",
    "FakeLambdaContext",
    "Fault",
    "FaultyLedger",
    "FrozenClock",
    "LedgerContract",
    "LedgerFault",
    "MemoryLedger",
    "StrictSSM",
    "StrictSSMServer",
    "capture_outcomes",
    "deliver",
    "deliver_concurrently",
    "deliver_with_crashes",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home if home.startswith(".") else f".{home}", __name__)
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
