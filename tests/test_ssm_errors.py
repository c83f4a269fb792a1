"""What goes wrong on the way to Parameter Store: retried within the time left, or named with its cure."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from idemguard import (
    InvalidKeyExpression,
    InvalidOption,
    LedgerError,
    LedgerFull,
    LedgerMisconfigured,
    LedgerUnavailable,
    Outcome,
    UnreadableRecordError,
)
from idemguard.clock import Deadline
from idemguard.ledgers.ssm import SSMLedger
from idemguard.record import State
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.ssm_faults import ANY, Fault
from idemguard.testing.strict_ssm import StrictSSM
from tests.ssm_world import WorkFailed, World, claimed, fail

SECRET = "AWS's own text, which may quote a value"


@pytest.fixture
def world() -> World:
    return World()


def refused(world: World, kind: type[LedgerError], calls: int = 1) -> str:
    """Deliver; the work is not run, and the claim is sent `calls` times. The error's text."""
    with pytest.raises(kind) as caught:
        world.deliver()
    assert type(caught.value) is kind
    assert world.effects == []
    assert world.count("PutParameter") == calls
    assert caught.value.operation == "work"
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


# For good: not retried, and the error names the cure.


@pytest.mark.parametrize(
    ("code", "kind", "named"),
    [
        ("AccessDeniedException", LedgerMisconfigured, "ssm:PutParameter .*parameter/idempotency/"),
        ("UnauthorizedOperation", LedgerMisconfigured, "ssm:PutParameter .*parameter/idempotency/"),
        ("InvalidKeyId", LedgerMisconfigured, "KMS key .*kms:Decrypt and kms:Encrypt"),
        ("ParameterLimitExceeded", LedgerFull, "10,000.*sweeper.*Advanced"),
        ("ParameterMaxVersionLimitExceeded", LedgerMisconfigured, "label.* under /idempotency"),
        ("UnrecognizedClientException", LedgerMisconfigured, "credentials"),
        ("ExpiredTokenException", LedgerMisconfigured, "credentials"),
        ("ValidationException", LedgerMisconfigured, "ValidationException: check prefix, tier"),
        ("HierarchyTypeMismatchException", LedgerMisconfigured, "check prefix, tier"),
        ("HierarchyLevelLimitExceededException", LedgerMisconfigured, "check prefix, tier"),
        ("UnsupportedParameterType", LedgerMisconfigured, "check prefix, tier"),
        ("SomethingNewException", LedgerMisconfigured, "SomethingNewException"),
    ],
)
def test_a_refusal_for_good_is_not_retried_and_names_its_cure(
    world: World, code: str, kind: type[LedgerError], named: str
) -> None:
    world.store.inject("PutParameter", Fault.refused(code, SECRET), times=100)
    text = refused(world, kind)
    assert re.search(named, text)
    assert not kind.retryable


def test_a_denied_read_names_the_read(world: World) -> None:
    world.create(claimed("somebody"))
    world.store.inject("GetParameter", Fault.denied())
    with pytest.raises(LedgerMisconfigured, match=r"ssm:GetParameter on .*parameter/idempotency/"):
        world.deliver()
    world.store.inject("GetParameters", Fault.denied())
    with pytest.raises(LedgerMisconfigured, match="ssm:GetParameters on "):
        world.ledger.read_many([world.name])
    world.store.inject("DescribeParameters", Fault.denied())
    with pytest.raises(LedgerMisconfigured, match=r"ssm:DescribeParameters on \* "):
        list(world.ledger.scan())


def test_a_denied_delete_names_the_batch_delete(world: World) -> None:
    bar = world.create(claimed("sweeper", lease=180.0).ended(State.SWEPT))
    world.store.inject("DeleteParameters", Fault.denied())
    with pytest.raises(LedgerMisconfigured, match="ssm:DeleteParameters on "):
        world.ledger.remove([bar])


@pytest.mark.parametrize("prefix", ["/idemguard/orders", "idemguard", "/idemguard/"])
def test_the_resource_to_allow_has_no_double_slash(prefix: str) -> None:
    world = World(prefix=prefix)
    world.store.inject("PutParameter", Fault.denied())
    resource = refused(world, LedgerMisconfigured).partition("parameter/")[2]
    assert resource.startswith(prefix.strip("/") + "/*")


def test_a_key_that_does_not_exist_is_named() -> None:
    world = World(key_id="alias/mine")
    assert "KMS key alias/mine" in refused(world, LedgerMisconfigured)


@pytest.mark.parametrize(
    ("tier", "encrypt"), [("Standard", "kms:Encrypt"), ("Advanced", "kms:GenerateDataKey")]
)
def test_a_denied_encrypted_ledger_names_the_kms_actions_too(tier: str, encrypt: str) -> None:
    world = World(key_id="alias/mine", tier=tier)
    world.store.inject("PutParameter", Fault.kms_denied())
    text = refused(world, LedgerMisconfigured)
    assert f"kms:Decrypt and {encrypt} on alias/mine" in text


def test_a_full_account_runs_nothing_unguarded() -> None:
    world = World(StrictSSM(FrozenClock(), standard_limit=0))
    assert "run the sweeper" in refused(world, LedgerFull)


def test_a_stand_in_for_the_client_may_raise_errors_without_metadata(world: World) -> None:
    class Refusing:
        def put_parameter(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "PutParameter")

    world.ledger = SSMLedger(Refusing(), clock=world.clock)
    with pytest.raises(LedgerMisconfigured, match="ssm:PutParameter"):
        world.deliver()


@pytest.mark.parametrize("headers", [{}, {"date": ""}, {"date": "yesterday"}])
def test_a_store_without_the_time_is_named(headers: dict[str, str]) -> None:
    class Timeless:
        def put_parameter(self, **_: Any) -> dict[str, Any]:
            return {"Version": 1, "ResponseMetadata": {"HTTPHeaders": headers}}

    world = World()
    world.ledger = SSMLedger(Timeless(), clock=world.clock)
    with pytest.raises(LedgerMisconfigured, match="Date header"):
        world.deliver()


@pytest.mark.parametrize(
    "value",
    [
        "postgres://db",
        "{}",
        '{"f":99,"x":"c","t":"a","p":0}',
        '{"f":1,"x":"c","t":"a"}',
        '{"f":1,"x":"c","t":"a","p":0,"s":true}',
        '{"f":1,"x":"c","t":"a","p":0,"s":1%s}' % ("0" * 400),
    ],
)
@pytest.mark.parametrize("on_ledger_error", ["raise", "run"])
def test_a_strangers_parameter_is_neither_overwritten_nor_run_past(
    world: World, value: str, on_ledger_error: str
) -> None:
    world.store.put_parameter(Name=world.full, Value=value, Type="String")
    with pytest.raises(UnreadableRecordError):
        world.deliver(on_ledger_error=on_ledger_error)
    assert world.effects == []
    assert world.store.get_parameter(Name=world.full)["Parameter"]["Value"] == value


# For now: retried while there is time.

PASSING = [
    Fault.throttle(),
    Fault.refused("TooManyRequestsException", status=429),
    Fault.server_error(),
    Fault.server_error(applied=True),
    Fault.refused("ServiceUnavailable", status=503),
    Fault.refused("SomethingNewException", status=500),
    Fault.connect_timeout(),
    Fault.not_sent(),
    Fault.lost_response(),
    Fault.expired_signature(),
]


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("after", [0, 1], ids=["claim", "completion"])
def test_what_passes_is_tried_again(world: World, fault: Fault, after: int) -> None:
    world.store.inject("PutParameter", fault, after=after)
    assert world.deliver().outcome is Outcome.EXECUTED
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED
    assert world.effects == [1]


@pytest.mark.parametrize("fault", PASSING)
def test_a_read_or_a_release_is_tried_again(world: World, fault: Fault) -> None:
    world.store.inject("PutParameter", fault, after=1)
    with pytest.raises(WorkFailed):
        world.deliver(fail)
    world.store.inject("GetParameter", fault)
    assert world.deliver().outcome is Outcome.EXECUTED


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_six_throttles_with_four_seconds_left_end_in_time(world: World, share: float) -> None:
    world.clock.jitter = lambda upto: upto * share  # type: ignore[method-assign]
    world.store.inject("PutParameter", Fault.throttle(), times=6)
    before = world.clock.monotonic()
    # With the longest waits the six do not fit, and the work must not be run.
    in_time = share < 1.0
    with nullcontext() if in_time else pytest.raises(LedgerUnavailable, match="Throttling"):
        world.deliver(left=4.0)
    assert world.effects == ([1] if in_time else [])
    assert world.clock.monotonic() - before < 4.0


@pytest.mark.parametrize("fault", [f for f in PASSING if f.code != "InvalidSignatureException"])
@pytest.mark.parametrize("left", [0.3, 4.0, 60.0])
def test_what_does_not_pass_is_given_up_before_the_deadline(
    world: World, fault: Fault, left: float
) -> None:
    world.store.inject(ANY, fault, times=10_000)
    before = world.clock.monotonic()
    with pytest.raises(LedgerUnavailable) as caught:
        world.deliver(left=left)
    assert caught.value.retryable
    assert world.clock.monotonic() - before < left
    assert world.effects == []


def test_without_a_deadline_a_call_is_given_up_too(world: World) -> None:
    world.store.inject(ANY, Fault.throttle(), times=10_000)
    before = world.clock.monotonic()
    with pytest.raises(LedgerUnavailable):
        world.deliver()
    assert world.clock.monotonic() - before < 30


def test_with_no_time_left_nothing_is_sent(world: World) -> None:
    with pytest.raises(LedgerUnavailable, match="no time left"):
        world.deliver(left=0.1)
    with pytest.raises(LedgerUnavailable, match="no time left"):
        list(world.ledger.scan(deadline=Deadline.after(world.clock, 0)))
    assert world.store.calls == []


def test_a_throttled_completion_returns_the_result_within_the_time_left(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.store.inject("PutParameter", Fault.throttle(), times=10_000, after=1)
    before = world.clock.monotonic()
    execution = world.deliver(left=4.0)
    assert (execution.outcome, execution.result) == (Outcome.EXECUTED, 1)
    assert world.clock.monotonic() - before < 4.0
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("code", ["InvalidSignatureException", "RequestExpired"])
def test_a_signature_that_is_too_old_twice_is_the_machines_clock(world: World, code: str) -> None:
    world.store.inject("PutParameter", Fault.refused(code, SECRET), times=2)
    assert "clock" in refused(world, LedgerMisconfigured, calls=2)


def test_fail_open_is_a_choice(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.store.inject(ANY, Fault.throttle(), times=10_000)
    assert world.deliver(left=4.0, on_ledger_error="run").outcome is Outcome.EXECUTED
    assert world.effects == [1]
    assert "unguarded" in caplog.text


# What is sent.


def test_the_tier_is_sent_and_never_upgraded() -> None:
    world = World(StrictSSM(FrozenClock(), default_tier="Advanced"))
    world.deliver(lambda: "x" * 10)
    world.deliver(lambda: "x" * 10)
    assert {put["Tier"] for put in world.puts} == {"Standard"}
    described = world.store.describe_parameters()["Parameters"]
    assert [item["Tier"] for item in described] == ["Standard"]


def test_an_advanced_ledger_holds_larger_records() -> None:
    big = "".join(chr(33 + (n * n * 7919) % 90) for n in range(6000))
    world = World(tier="Advanced")
    assert world.ledger.fits(claimed("t", result=big))
    assert not World().ledger.fits(claimed("t", result=big))
    world.deliver(lambda: big)
    assert world.deliver().result == big
    assert {put["Tier"] for put in world.puts} == {"Advanced"}


def test_an_encrypted_ledger_sends_its_key_and_reads_back() -> None:
    clock = FrozenClock()
    world = World(StrictSSM(clock, kms_keys=["alias/mine"]), key_id="alias/mine")
    world.deliver()
    assert world.deliver().outcome is Outcome.SKIPPED_COMPLETED
    assert {(put["Type"], put["KeyId"]) for put in world.puts} == {("SecureString", "alias/mine")}


def test_a_result_with_double_braces_is_kept_and_never_sent_as_it_is(world: World) -> None:
    template = {"Hi {{name}}": ["{{ssm:/prod/password}}", {"a": {"b": {}}}]}
    world.deliver(lambda: template)
    assert world.deliver().result == template
    assert not any("{{" in put["Value"] or "}}" in put["Value"] for put in world.puts)


@pytest.mark.parametrize("retention", [3600, 1_234_567.5, 10 * 365 * 24 * 3600])
def test_a_listing_tells_state_and_horizon_without_values(world: World, retention: float) -> None:
    world.deliver(retention=retention)
    (item,) = [item for page in world.ledger.scan("ns") for item in page.items]
    assert item.name == world.name
    assert item.state is State.COMPLETED
    assert item.keep is not None
    assert retention <= item.keep < retention + 1
    assert world.count("GetParameter") == world.count("GetParameters") == 0


# Names.

NASTY = st.text(max_size=300) | st.sampled_from(
    ["../../etc", "aws", "/ssm/x", "\x00", "\ud800", "a" * 5000, "{{ssm:x}}", "ns//work", " "]
)


@given(operation=NASTY, key=NASTY, namespace=st.text(max_size=210) | st.just("n/" * 2 + "x" * 196))
def test_any_operation_key_and_namespace_make_a_name_that_aws_accepts(
    operation: str, key: str, namespace: str
) -> None:
    # The longest prefix that there may be.
    world = World(prefix="/p" * 7 + "/" + "x" * 380)
    try:
        guard = world.guard(operation=operation, namespace=namespace)
        executions = [guard.run_exactly_once([number, key], world.work) for number in (1, 2)]
    except (InvalidOption, InvalidKeyExpression):
        # Refused before anything is sent.
        assert world.store.calls == []
        return
    assert [execution.outcome for execution in executions] == [Outcome.EXECUTED] * 2
    names = {name.rpartition("/") for _, name in world.store.calls}
    # The key stands in the name as its digest, and nowhere else.
    assert {name for *_, name in names} == {execution.key_digest for execution in executions}
    assert len({path for path, *_ in names}) == 1


@given(
    prefix=st.text(max_size=30)
    | st.from_regex(r"/?[a-zA-Z0-9_./-]{0,60}", fullmatch=True)
    | st.sampled_from(["aws", "/AWS/x", "ssm", "/SSMthings", "", "/", "/a" * 20, "a" * 900, "/a\n"])
)
def test_a_prefix_is_refused_at_once_or_accepted_by_aws(prefix: str) -> None:
    try:
        world = World(prefix=prefix)
    except InvalidOption:
        return
    assert world.deliver().outcome is Outcome.EXECUTED


@pytest.mark.parametrize("prefix", ["/idempotency", "idemguard", "/a.b/c-d/e_f/", "/my-aws/ssm"])
def test_a_usual_prefix_is_accepted(prefix: str) -> None:
    world = World(prefix=prefix)
    world.deliver()
    (name,) = {name for _, name in world.store.calls}
    assert name == f"/{prefix.strip('/')}/{world.name}"
