"""What leaves the process, what comes back into it, and what a stranger can make of either."""

from __future__ import annotations

import base64
import contextvars
import dataclasses
import io
import json
import logging
import math
import random
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from idemguard import (
    Claim,
    Event,
    Guard,
    Hook,
    IdempotencyError,
    InFlightError,
    InvalidKeyExpression,
    LeaseLostError,
    LedgerFull,
    LedgerMisconfigured,
    LedgerUnavailable,
    MissingKeyError,
    Outcome,
    PayloadMismatchError,
    PermanentFailureError,
    ReentrantCallError,
    ResultNotStoredError,
    StepError,
    UnreadableRecordError,
    UnsupportedResultError,
    idempotent,
    step,
)
from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.outcome import Details, Phase
from idemguard.record import Record, State
from idemguard.sweeper import Sweeper
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.ssm_faults import Fault
from idemguard.testing.strict_ssm import StrictSSM
from tests.worlds import World, ssm_world

#: Stands in the event, the key, the result, the work's own error and AWS's.
CANARY = "4242-4242-4242-4242"
LEASE = 60.0
KEY = {"card": CANARY}


class Opaque:
    """What no record can keep; its text tells all."""

    def __repr__(self) -> str:
        return CANARY


class WorkFailed(Exception):
    """What work raises here, about what it was working on."""

    def __init__(self) -> None:
        super().__init__(f"no funds on {CANARY}")
        self.card = CANARY


class Stage:
    """A ledger with a guard, and what was raised and seen."""

    def __init__(self, **options: Any) -> None:
        self.world = ssm_world()
        self.log = io.StringIO()
        self.hook = _Careless()
        self.errors: list[BaseException] = []
        self.guard = self.guarded(**options)

    def guarded(self, **options: Any) -> Guard:
        defaults: dict[str, Any] = {
            "ledger": self.world.ledger,
            "clock": self.world.clock,
            "operation": "pay",
            "lease": LEASE,
            "local_cache": False,
            "hooks": [self.hook],
            "logger": Logger(service="s", level="DEBUG", stream=self.log),
        }
        return Guard(**{**defaults, **options})

    def run(
        self,
        work: Callable[[], Any] = lambda: {"card": CANARY},
        *,
        key: Any = KEY,
        payload: Any = None,
        guard: Guard | None = None,
    ) -> Any:
        """Deliver once; what is raised is kept and not raised."""
        try:
            return (guard or self.guard).run_exactly_once(key, work, payload=payload)
        except Exception as error:
            self.errors.append(error)
            return None

    def handle(self, event: Any, key: str = "key") -> None:
        """The same by a decorated handler."""

        @self.guard.idempotent(key=key)
        def handler(event: Any) -> Any:
            return {"card": CANARY}

        try:
            handler(event)
        except Exception as error:
            self.errors.append(error)


class _Careless(Hook):
    """Sees every happening, and fails in each phase that fails."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def observe(self, event: Event) -> None:
        self.seen.append(event)

    def around(self, phase: Phase, details: Details) -> AbstractContextManager[object] | None:
        self.seen.append(Event(None, details))  # type: ignore[arg-type]
        return _failing()


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"could not tell of {error!r}") from error


def _fail() -> Any:
    raise WorkFailed


def _given(value: Any) -> Any:
    return value


# One function for each way in which a delivery can end in an error. Each returns the error's type.


def _missing(stage: Stage) -> type[Exception]:
    stage.handle({"other": CANARY})
    stage.handle({"key": None, "other": CANARY})
    return MissingKeyError


def _unreadable_body(stage: Stage) -> type[Exception]:
    stage.handle({"key": f"{{{CANARY}"}, key="powertools_json(key).id")
    stage.handle({"key": CANARY}, key="powertools_base64_gzip(key)")
    stage.handle({"key": CANARY}, key="abs(key)")
    return MissingKeyError


def _keys_without_a_form(stage: Stage) -> type[Exception]:
    for value in (math.nan, {CANARY}, Opaque(), {1: CANARY}):
        stage.run(key=[CANARY, value])
    stage.handle({"key": CANARY, "n": math.inf}, key="[key, n]")
    return InvalidKeyExpression


def _fingerprint_without_a_form(stage: Stage) -> type[Exception]:
    stage.run(payload={"card": CANARY, "n": math.nan})
    return InvalidKeyExpression


def _in_flight(stage: Stage) -> type[Exception]:
    stage.guard.claim(KEY)
    stage.run()
    stage.run(guard=stage.guarded(on_in_flight="wait", wait_timeout=5))
    return InFlightError


def _mismatch(stage: Stage) -> type[Exception]:
    stage.run(payload=CANARY)
    stage.run(payload=f"not {CANARY}")
    return PayloadMismatchError


def _failed_for_good(stage: Stage) -> type[Exception]:
    permanent = stage.guarded(permanent=WorkFailed)
    with suppress(WorkFailed):
        permanent.run_exactly_once(KEY, _fail)
    # It was rebuilt there; here its type is not allowed.
    stage.run()
    return PermanentFailureError


def _too_large(stage: Stage) -> type[Exception]:
    large = random.Random(1).randbytes(9000).hex()
    for _ in range(2):
        stage.run(lambda: [CANARY, large])
    return ResultNotStoredError


def _type_changed(stage: Stage) -> type[Exception]:
    before = dataclasses.make_dataclass("Card", [("number", str)])
    after = dataclasses.make_dataclass("Card", [("name", str)])
    for cls in (before, after):
        stage.run(lambda: before(CANARY), guard=stage.guarded(types=[cls]))
    return ResultNotStoredError


def _unsupported(stage: Stage) -> type[Exception]:
    for value in (
        Opaque(),
        {"card": Opaque()},
        [CANARY, {CANARY: Opaque()}["4242-4242-4242-4242"]],
    ):
        stage.run(partial(_given, value), key=[CANARY, len(stage.errors)])
    stage.run(lambda: (card for card in [CANARY]), key=[CANARY, "lazy"])
    return UnsupportedResultError


def _reentrant(stage: Stage) -> type[Exception]:
    def work() -> Any:
        stage.run()
        return CANARY

    stage.run(work)
    return ReentrantCallError


def _lease_lost(stage: Stage) -> type[Exception]:
    strict = stage.guarded(on_complete_error="raise")

    def work(guard: Guard) -> Any:
        stage.world.clock.advance(LEASE + 5)
        # As another process: outside of this work.
        contextvars.Context().run(lambda: stage.run(guard=guard))
        return {"card": CANARY}

    loud = stage.guarded(operation="loud")
    for guard in (strict, loud):
        stage.run(partial(work, guard), guard=guard)
    return LeaseLostError


def _steps(stage: Stage) -> type[Exception]:
    def twice() -> None:
        step("charge", lambda: CANARY)
        step("charge", lambda: CANARY)

    def many() -> None:
        for number in range(1000):
            step(f"charge {number} {'x' * 200}", lambda: CANARY)

    stage.run(twice)
    stage.run(many, key=[CANARY, 2])
    return StepError


def _step_that_cannot_be_kept(stage: Stage) -> type[Exception]:
    stage.run(lambda: step("charge", Opaque))
    return UnsupportedResultError


def _throttled(stage: Stage) -> type[Exception]:
    stage.world.ssm.inject("PutParameter", Fault.refused("ThrottlingException", CANARY), times=99)
    stage.run()
    return LedgerUnavailable


def _unreachable(stage: Stage) -> type[Exception]:
    stage.world.ssm.inject("PutParameter", Fault.not_sent(), times=99)
    stage.run()
    return LedgerUnavailable


def _refused(stage: Stage) -> type[Exception]:
    for code in (
        "AccessDeniedException",
        "InvalidKeyId",
        "ValidationException",
        "UnrecognizedClientException",
        "ParameterMaxVersionLimitExceeded",
        "SomethingNewException",
    ):
        stage.world.ssm.inject("PutParameter", Fault.refused(code, f"{code}: {CANARY}"))
        stage.run()
    return LedgerMisconfigured


def _full(stage: Stage) -> type[Exception]:
    stage.world.ssm.inject("PutParameter", Fault.refused("ParameterLimitExceeded", CANARY))
    stage.run()
    return LedgerFull


def _strangers_record(stage: Stage) -> type[Exception]:
    for number, value in enumerate(
        [
            CANARY,
            json.dumps({"card": CANARY}),
            json.dumps({"f": CANARY, "x": CANARY}),
            json.dumps({"f": 1, "x": CANARY, "t": CANARY}),
            json.dumps({"f": 1, "x": "d", "t": CANARY, "k": CANARY}),
            json.dumps({"f": 1, "x": "d", "t": CANARY, "k": 60, "p": CANARY}),
            json.dumps(
                {"f": 1, "x": "d", "t": CANARY, "k": 60, "p": 0, "v": {"$datetime": CANARY}}
            ),
            json.dumps({"f": 1, "x": "d", "t": CANARY, "k": 60, "p": 0, "v": {"$zlib": CANARY}}),
        ]
    ):
        key = [CANARY, number]
        plant(stage.world, stage.guard, key, value)
        stage.run(key=key)
    return UnreadableRecordError


def _completion_refused(stage: Stage) -> type[Exception]:
    def work() -> Any:
        stage.world.ssm.inject("PutParameter", Fault.refused("AccessDeniedException", CANARY))
        return {"card": CANARY}

    stage.run(work)  # Loud, and returned.
    stage.run(work, key=[CANARY, 2], guard=stage.guarded(on_complete_error="raise"))
    return LedgerMisconfigured


ENDINGS = [
    _missing,
    _unreadable_body,
    _keys_without_a_form,
    _fingerprint_without_a_form,
    _in_flight,
    _mismatch,
    _failed_for_good,
    _too_large,
    _type_changed,
    _unsupported,
    _reentrant,
    _lease_lost,
    _steps,
    _step_that_cannot_be_kept,
    _throttled,
    _unreachable,
    _refused,
    _full,
    _strangers_record,
    _completion_refused,
]


def texts_of(error: BaseException | None) -> Iterator[str]:
    """All that a log, a tracker of errors or a pickle could show of an error, and of those behind it."""
    if error is None:
        return
    yield from (str(error), repr(error), repr(error.args), repr(vars(error)))
    yield "".join(traceback.format_exception(error))
    # Also one that is suppressed: not every tracker of errors knows of that.
    yield from texts_of(error.__cause__)
    yield from texts_of(error.__context__)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__.strip("_"))
def test_no_error_log_line_name_or_hook_holds_payload_key_or_result(
    ending: Callable[[Stage], type[Exception]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="idemguard")
    stage = Stage()
    expected = ending(stage)
    assert {type(error) for error in stage.errors} == {expected}
    for error in stage.errors:
        assert CANARY not in "\n".join(texts_of(error))
    holds_nothing(stage, caplog)


def holds_nothing(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Of the payload, wherever somebody else may look."""
    assert CANARY not in caplog.text
    assert CANARY not in repr([vars(record) for record in caplog.records])
    assert CANARY not in stage.log.getvalue()
    assert CANARY not in repr(stage.hook.seen)
    parameters = stage.world.ssm.describe_parameters()["Parameters"]
    assert CANARY not in repr(parameters)


def test_failing_work_leaves_with_its_own_error_and_nothing_of_it_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="idemguard")
    stage = Stage()
    stage.run(_fail)
    # A release that fails, too: the write after the create and the takeover.
    stage.world.ssm.inject("PutParameter", Fault.refused("AccessDeniedException", CANARY), after=2)
    stage.run(_fail)
    stage.world.clock.advance(LEASE + 5)
    stage.run(_fail, guard=stage.guarded(permanent=WorkFailed))
    assert {type(error) for error in stage.errors} == {WorkFailed}
    assert any("could not" in record.getMessage() for record in caplog.records)
    holds_nothing(stage, caplog)


def test_work_that_runs_unguarded_is_warned_of_without_its_payload(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="idemguard")
    stage = Stage(on_missing_key="run", on_ledger_error="run")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        stage.handle({"other": CANARY})
        stage.world.ssm.inject("PutParameter", Fault.refused("AccessDeniedException", CANARY))
        stage.run()
    assert stage.errors == []
    assert "unguarded" in caplog.text
    assert CANARY not in repr([str(warning.message) for warning in warned])
    holds_nothing(stage, caplog)


def test_an_omitted_result_and_a_key_are_in_no_value_either() -> None:
    stage = Stage(result="omit", types=[])
    stage.run(payload=CANARY)
    stage.run(_fail, key=[CANARY, 2])
    values = stage.world.ssm.get_parameters_by_path(Path="/idempotency", Recursive=True)
    assert len(values["Parameters"]) == 2
    assert CANARY not in repr(values)


# Encryption.


def test_with_a_key_every_write_is_encrypted_with_it_from_claim_to_sweep() -> None:
    clock = FrozenClock()
    ssm = StrictSSM(clock, kms_keys=["alias/mine"])
    writes: list[dict[str, Any]] = []

    def note(operation: str, request: Any) -> None:
        if operation == "PutParameter":
            writes.append(dict(request))

    ssm.before_call = note
    ledger = SSMLedger(ssm, key_id="alias/mine", clock=clock)
    guard = Guard(
        ledger=ledger,
        clock=clock,
        lease=LEASE,
        retention=3600,
        local_cache=False,
        permanent=OSError,
    )

    def work() -> dict[str, str]:
        step("charge", lambda: CANARY)
        return {"card": CANARY}

    # Claimed, a step, completed; replayed; failed and released; failed for good; taken over.
    assert guard.run_exactly_once("a", work).outcome is Outcome.EXECUTED
    assert guard.run_exactly_once("a", work).result == {"card": CANARY}
    with pytest.raises(WorkFailed):
        guard.run_exactly_once("b", _fail)
    with pytest.raises(OSError, match=CANARY):
        guard.run_exactly_once("c", _fail_for_good)
    assert isinstance(guard.claim("d"), Claim)
    clock.advance(LEASE + 5)
    assert guard.run_exactly_once("d", work).attempt == 2

    for read in (ssm.describe_parameters(), ssm.get_parameters_by_path(Path="/", Recursive=True)):
        assert CANARY not in repr(read)
    opened = ssm.get_parameters_by_path(Path="/", Recursive=True, WithDecryption=True)
    assert CANARY in repr(opened)

    clock.advance(7 * 24 * 3600)
    report = Sweeper(ledger, clock=clock).sweep(dry_run=False)
    assert report.swept == 4
    assert ssm.describe_parameters()["Parameters"] == []
    assert {(write["Type"], write["KeyId"]) for write in writes} == {("SecureString", "alias/mine")}


def _fail_for_good() -> Any:
    raise OSError(CANARY)


# Hostile keys.

HOSTILE_KEYS: list[Any] = [
    "\x00",
    "\x00\x1b[2J\r\n\t\x7f",
    "../../../../etc/passwd",
    "/aws/ssm//x/",
    "{{ssm:/prod/password}}",
    "${jndi:ldap://x}",
    "%2e%2e%2f",
    "a" * 1_000_000,
    "\ud800",
    "\udfff\ud800",
    "\u202egnp.exe",
    "é",
    "e\u0301",
    "😀" * 1000,
    ["a"] * 10_000,
    {"a" * 10_000: {"b": [None, True]}},
    10**10_000,
    -(10**10_000),
    10**10_000 + 1,
    1e308,
    5e-324,
    False,
    0,
    "0",
    "false",
    "null",
    b"\xff\x00",
    "b64",
    [["a"], "b"],
    ["a", ["b"]],
]


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def test_hostile_keys_are_keys_like_any_other_and_no_two_are_one() -> None:
    world = ssm_world()
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="pay", local_cache=False)
    effects: list[int] = []
    keys = [*HOSTILE_KEYS, nested(100), nested(101)]
    for number, key in enumerate(keys):
        for _ in range(2):
            guard.run_exactly_once(key, partial(effects.append, number))
    assert effects == list(range(len(keys)))
    names = world.names
    assert len(names) == len(keys)
    assert all(name.rpartition("/")[2].isalnum() and len(name) < 100 for name in names)


@pytest.mark.parametrize(
    "key",
    [
        *(math.nan, math.inf, [1, -math.inf], 10**100_001),
        *(nested(300), nested(50_000), cycle()),
        *({1: 2}, {"a"}, object()),
        *(None, "", [], {}),
    ],
    ids=lambda key: type(key).__name__,
)
def test_a_value_that_cannot_be_a_key_is_refused_before_anything_runs_or_is_sent(key: Any) -> None:
    world = ssm_world()
    guard = Guard(ledger=world.ledger, clock=world.clock)
    handler = guard.idempotent(key="key")(_never)
    for deliver in (
        lambda: guard.run_exactly_once(key, _never),
        lambda: handler({"key": key}),
    ):
        with pytest.raises((InvalidKeyExpression, MissingKeyError)):
            deliver()
    assert world.ssm.calls == []


def test_a_key_that_unpacks_to_gigabytes_is_missing_and_its_event_is_not_run() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"0" * 2**20) for _ in range(64)) + packer.flush()
    handler = idempotent(key="powertools_base64_gzip(body)", ledger=MemoryLedger())(_never)
    with pytest.raises(MissingKeyError):
        handler({"body": base64.b64encode(bomb).decode()})


# Hostile records.


def plant(world: World, guard: Guard, key: Any, value: str) -> str:
    """Somebody's parameter under the name of a key's record."""
    name = f"/idempotency/default/{guard.options.operation}/{guard.key(key).digest}"
    world.ssm.put_parameter(Name=name, Value=value, Type="String")
    return name


def completed(result: Any, **fields: Any) -> str:
    return json.dumps({"f": 1, "x": "d", "t": "t", "k": 3600, "p": 0, "v": result, **fields})


def packed(text: str) -> dict[str, str]:
    return {"$zlib": base64.b64encode(zlib.compress(text.encode(), 9)).decode()}


HOSTILE_VALUES = {
    "no JSON": "just,a,list",
    "a number": "1",
    "a list": "[1]",
    "an empty map": "{}",
    "a configuration": '{"format": 1, "state": "d", "token": "x"}',
    "a longer configuration": json.dumps({"f": "x", "x": "f", "t": 1, "v": "y"}),
    "a newer format": completed(1, f=2),
    "a much newer format": completed(1, f=10**30),
    "format true": completed(1, f=True),
    "truncated": completed("x" * 20)[:-15],
    "state of a list": completed(1, x=["d"]),
    "state that is never written": completed(1, x="v"),
    "nested": '{"f":1,"x":"d","t":"t","k":60,"p":0,"v":' + "[" * 3000 + "]" * 0,
    "deep but closed": completed(1)[:-1] + ',"z":' + "[" * 990 + "]" * 990 + "}",
    "a deep result": completed(nested(500)),
    "retention of NaN": completed(1).replace("3600", "NaN"),
    "attempt of a text": completed(1, a="1"),
    "steps of a list": completed(1, d=[]),
    "no ticket": json.dumps({"f": 1, "x": "d", "t": "t", "k": 3600}),
    "ticket of a float": completed(1, p=0.0),
    "packed nonsense": completed({"$zlib": "AAAA"}),
    "packed and cut off": completed({"$zlib": packed("x" * 5000)["$zlib"][:20]}),
    "packed without JSON": completed(packed("{" * 5000)),
    "packed and deep": completed(packed("[" * 100_000)),
    "a tag that is none": completed({"$system": "id"}),
    "unhashable": completed({"$set": [[1]]}),
    "a zone of the file system": completed({"$time": ["10:00", "../../../etc/passwd", 0]}),
}


@pytest.mark.parametrize("value", HOSTILE_VALUES.values(), ids=HOSTILE_VALUES)
@pytest.mark.parametrize("received", ["1", "2"], ids=["create first", "read first"])
def test_a_hostile_record_is_an_error_that_says_so_and_stays_as_it_is(
    value: str, received: str
) -> None:
    world = ssm_world()
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="pay", on_ledger_error="run")
    name = plant(world, guard, "k", value)
    handler = guard.idempotent(key="messageId")(_never)
    for _ in range(2):
        # Read first where the source says that it comes again.
        with pytest.raises(UnreadableRecordError) as refused:
            handler({"messageId": "k", "attributes": {"ApproximateReceiveCount": received}})
        assert not refused.value.retryable
        world.clock.advance(10 * 24 * 3600 if "format" in str(refused.value) else 1)
    assert world.ssm.get_parameter(Name=name)["Parameter"]["Value"] == value


@pytest.mark.parametrize("size", [64, 512])
def test_a_result_that_unpacks_to_megabytes_is_not_unpacked(size: int) -> None:
    packer = zlib.compressobj(9)
    text = b"".join(packer.compress(b" " * 2**20) for _ in range(size)) + packer.flush()
    ledger = MemoryLedger()
    guard = Guard(ledger=ledger, local_cache=False)
    bomb = {"$zlib": base64.b64encode(text).decode()}
    name = f"default/default/{guard.key('k').digest}"
    ledger.create(name, Record(State.COMPLETED, "t", retention=3600, result=bomb))
    with pytest.raises(UnreadableRecordError):
        guard.run_exactly_once("k", _never)


@dataclasses.dataclass
class Allowed:
    """A type that results may hold."""

    n: int


class Forbidden(Exception):
    """One that must never be built."""

    built = 0

    def __new__(cls, *args: object) -> Forbidden:
        cls.built += 1
        return super().__new__(cls, *args)


#: What reading a record has no business with.
_EVENTS = ("exec", "compile", "os.", "subprocess.", "socket.", "pickle.", "marshal.", "ctypes.")
_watched: list[str] | None = None


def _audit(event: str, args: object) -> None:
    if _watched is not None and event.startswith(_EVENTS):
        _watched.append(event)


sys.addaudithook(_audit)


@contextmanager
def nothing_is_executed() -> Iterator[None]:
    """An audit hook cannot be taken away again, so it is there all the time and told when to look."""
    global _watched
    _watched = []
    try:
        yield
    finally:
        seen, _watched = _watched, None
    assert seen == []


FORGED_RESULTS: list[Any] = [
    {"$object": ["os:system", {"command": "true"}]},
    {"$object": ["subprocess:Popen", {"args": "true"}]},
    {"$object": ["builtins:eval", {"source": "1"}]},
    {"$object": ["idemguard.ledgers.ssm:SSMLedger", {}]},
    {"$object": [f"{__name__}:Forbidden", {}]},
    {"$object": [f"{__name__}:Allowed", {"n": 1}, {"__class__": f"{__name__}:Forbidden"}]},
    {"$object": [f"{__name__}:Allowed", {"__class__": 1}]},
    {"$object": [f"{__name__}:Allowed.__init__", {"n": 1}]},
    {"$enum": ["os:system", "true"]},
    {"$enum": [f"{__name__}:Allowed", "n"]},
    {"$defaultdict": ["eval", []]},
    {"$defaultdict": ["__import__", []]},
    {"$datetime": ["2026-01-01T00:00:00", ["os"], 0]},
    {"$datetime": ["2026-01-01T00:00:00", ["tzlocal", "x"], 0]},
]


@pytest.mark.parametrize("result", FORGED_RESULTS, ids=lambda result: next(iter(result)))
def test_a_forged_result_builds_nothing_that_the_function_does_not_name(result: Any) -> None:
    world = ssm_world()
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="pay", types=[Allowed])
    plant(world, guard, "k", completed(result))
    # Resolving the annotations of the allowed types is Python's own business.
    for _ in range(2):
        assert guard.run_exactly_once("honest", lambda: Allowed(1)).result == Allowed(1)
    with nothing_is_executed(), pytest.raises((UnreadableRecordError, ResultNotStoredError)):
        guard.run_exactly_once("k", _never)
    assert Forbidden.built == 0


@pytest.mark.parametrize(
    "name",
    [
        *(f"{__name__}:Forbidden", "builtins:SystemExit", "builtins:KeyboardInterrupt"),
        *("os:system", "subprocess:CalledProcessError", "", 1, None),
    ],
)
def test_a_forged_failure_raises_nothing_but_what_the_function_names(name: Any) -> None:
    world = ssm_world()
    guard = Guard(ledger=world.ledger, clock=world.clock, operation="pay", permanent=ValueError)
    error = {"type": name, "args": ["x"], "state": {"__class__": "x", "card": "x"}}
    text = completed(None, x="f", e=error)
    plant(world, guard, "k", text)
    with nothing_is_executed(), pytest.raises(PermanentFailureError):
        guard.run_exactly_once("k", _never)
    assert Forbidden.built == 0


def test_every_error_of_the_package_is_in_the_table() -> None:
    """A new error needs a line above."""
    covered = {ending(Stage()) for ending in ENDINGS}
    raised_by_deliveries = {
        error for error in _subclasses(IdempotencyError) if error.__name__ != "InvalidOption"
    }
    assert covered == {error for error in raised_by_deliveries if not error.__subclasses__()}


def _subclasses(cls: type[Exception]) -> Iterator[type[Exception]]:
    for sub in cls.__subclasses__():
        if sub.__module__ == "idemguard.errors":
            yield sub
            yield from _subclasses(sub)


def _never(*_: object) -> Any:
    raise AssertionError("must not be run")
