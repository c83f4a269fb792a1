"""Every verb of the command, against a stand-in for AWS and the strict fake, both over HTTP."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from idemguard import Claim, Guard, LeaseLostError, StepError, __version__, step
from idemguard.cli import main
from idemguard.clock import Clock
from idemguard.iam import Scope, as_json, as_sam, as_terraform, policy
from idemguard.ledger import Ledger
from idemguard.ledgers import open_ledger
from idemguard.ledgers.memory import MemoryLedger
from idemguard.ledgers.ssm import SSMLedger
from idemguard.options import ledger_in_place
from idemguard.record import Record, State
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.ssm_faults import Fault
from idemguard.testing.ssm_server import StrictSSMServer
from idemguard.testing.strict_ssm import StrictSSM
from idemguard.upkeep import release_by_hand
from tests.servers import REGION, tool
from tests.ssm_world import claimed

EVENTS = Path(__file__).parent / "events"
SECRET = "4111-1111"


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        told = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, told.out, told.err)

    return run


@pytest.fixture(scope="module")
def strict_url() -> Iterator[str]:
    with StrictSSMServer() as server:
        yield server.url


def url_of(endpoint: str, prefix: str = "idempotency") -> str:
    return f"ssm:///{prefix}?endpoint_url={endpoint}&region={REGION}"


@pytest.fixture(params=["strict", "ministack"])
def ledger_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty ledger on a server of each kind, which the environment names."""
    endpoint = request.getfixturevalue(f"{request.param}_url")
    url = url_of(endpoint, f"cli/{uuid.uuid4().hex}")
    monkeypatch.setenv("IDEMGUARD_LEDGER", url)
    return url


@pytest.fixture
def guard(ledger_url: str) -> Guard:
    return Guard(ledger=ledger_url, namespace="orders", operation="charge", local_cache=False)


def done(guard: Guard, key: Any) -> str:
    guard.run_exactly_once(key, lambda: {"card": SECRET})
    return f"orders/charge/{guard.key(key).digest}"


def stuck(guard: Guard, key: Any) -> tuple[str, Claim]:
    claim = guard.claim(key)
    assert isinstance(claim, Claim)
    return f"orders/charge/{claim.key_digest}", claim


# list, show, stats


def test_list_shows_state_age_and_expiry_of_each_record(run: Run, guard: Guard) -> None:
    first = done(guard, 1)
    second, _ = stuck(guard, 2)
    listed = run("list", "--json")
    assert listed.code == 0
    assert {line["name"]: line["state"] for line in listed.json} == {
        first: "completed",
        second: "claimed",
    }
    week = 7 * 24 * 3600
    assert all(week - 60 < line["expires_in"] <= week for line in listed.json)
    told = run("list", "--state", "claimed", "--under", "orders")
    assert second in told.out
    assert first not in told.out
    assert "1 name" in told.err
    assert run("list", "--under", "others", "--json").json == []
    assert len(run("list", "--limit", "1", "--json").json) == 1


def test_a_listing_goes_through_all_pages(run: Run, ledger_url: str) -> None:
    ledger = open_ledger(ledger_url)
    for number in range(63):
        ledger.create(f"orders/charge/{number:040}", claimed("t"))
    assert len(run("list", "--json").json) == 63
    limited = run("list", "--limit", "7")
    assert "7 names, and more" in limited.err


def test_other_peoples_parameters_are_listed_as_such(
    run: Run, guard: Guard, ledger_url: str
) -> None:
    done(guard, 1)
    ledger = ssm_ledger(ledger_url)
    ledger.full_client().put_parameter(
        Name=f"{ledger.prefix}/orders/config", Value="host", Type="String"
    )
    assert "not a record" in run("list").out
    stats = run("stats", "--json").json
    assert stats["states"] == {"completed": 1, "not a record": 1}


def ssm_ledger(url: str) -> SSMLedger:
    ledger = open_ledger(url)
    assert isinstance(ledger, SSMLedger)
    return ledger


def test_show_hides_results_unless_they_are_asked_for(run: Run, guard: Guard) -> None:
    name = done(guard, 1)
    shown = run("show", name)
    assert shown.code == 0
    assert "completed" in shown.out
    assert SECRET not in shown.out + shown.err
    plain = run("show", name, "--json")
    assert SECRET not in plain.out
    assert plain.json["has_result"] is True
    assert SECRET in run("show", name, "--with-result").out
    assert SECRET in json.dumps(run("show", name, "--with-result", "--json").json["result"])


def test_show_hides_step_results_and_error_arguments(run: Run, ledger_url: str) -> None:
    guard = Guard(
        ledger=ledger_url,
        namespace="orders",
        operation="charge",
        permanent=ValueError,
        local_cache=False,
    )

    def fail(error: type[Exception]) -> None:
        step("authorise", lambda: SECRET)
        raise error(SECRET)

    name = f"orders/charge/{guard.key('k').digest}"
    for error, told in ((RuntimeError, "authorise"), (ValueError, "builtins:ValueError")):
        with pytest.raises(error, match=SECRET):
            guard.run_exactly_once("k", partial(fail, error))
        shown = run("show", name)
        assert told in shown.out
        assert SECRET not in shown.out + run("show", name, "--json").out
        assert SECRET in run("show", name, "--with-result").out


def test_show_takes_the_whole_parameter_name(run: Run, guard: Guard, ledger_url: str) -> None:
    name = done(guard, 1)
    full = f"{ssm_ledger(ledger_url).prefix}/{name}"
    assert run("show", full, "--json").json["name"] == name


def test_show_says_when_there_is_no_record(run: Run, ledger_url: str) -> None:
    shown = run("show", "orders/charge/none")
    assert shown.code == 1
    assert "no record orders/charge/none" in shown.err
    assert shown.err.count("\n") == 1


def test_a_digest_alone_is_searched(run: Run, guard: Guard, ledger_url: str) -> None:
    name = done(guard, 1)
    digest = name.rsplit("/", 1)[1]
    assert run("show", digest, "--json").json["name"] == name
    assert "no claim to release" in run("release", digest, "--reason", "r", "--yes").err


@pytest.mark.parametrize("verb", [["show"], ["release", "--reason", "r"]])
def test_a_digest_that_is_not_there_is_told_with_the_form_and_the_ledger(
    run: Run, ledger_url: str, verb: list[str]
) -> None:
    shown = run(*verb, "0" * 40)
    assert shown.code == 1
    for text in ("NAMESPACE/OPERATION/DIGEST", f"in {ledger_url}", "idemguard list"):
        assert text in shown.err


def test_stats_count_by_state_operation_and_age(run: Run, guard: Guard) -> None:
    done(guard, 1)
    done(guard, 2)
    stuck(guard, 3)
    stats = run("stats", "--json")
    assert stats.code == 0
    assert stats.json["states"] == {"completed": 2, "claimed": 1}
    assert stats.json["operations"] == {"charge": 3}
    assert stats.json["ages"] == {"under a minute": 3}
    assert (stats.json["head_room"], stats.json["capacity"]) == (9997, 10000)
    assert stats.json["per_second"] == pytest.approx(3 / 3600)
    assert stats.json["share_of_quota"] == pytest.approx(2 * 3 / 3600 / 3)
    assert "at most 9997 of 10000" in run("stats").out
    assert run("stats", "--under", "orders", "--json").json["head_room"] is None


# release


def test_release_unsticks_a_claim_and_keeps_the_reason(run: Run, guard: Guard) -> None:
    name, _ = stuck(guard, "k")
    released = run("release", name, "--reason", "the host  was\nlost", "--yes")
    assert released.code == 0
    assert "may be at work" in released.err
    shown = run("show", name, "--json").json
    assert (shown["state"], shown["reason"]) == ("released", "the host was lost")
    assert guard.run_exactly_once("k", lambda: "again").attempt == 2


def test_a_released_holder_can_write_no_more(run: Run, ledger_url: str) -> None:
    guard = Guard(
        ledger=ledger_url,
        namespace="orders",
        operation="charge",
        on_complete_error="raise",
        local_cache=False,
    )
    name, claim = stuck(guard, "k")
    assert run("release", name, "--reason", "thought dead", "--yes", "--json").json["released"]
    released = open_ledger(ledger_url).read(name)
    assert released is not None
    assert claim.holding is not None
    assert released.record.token != claim.holding.record.token
    with pytest.raises(LeaseLostError):
        guard.complete(claim, "late")
    assert run("show", name, "--json").json["state"] == "released"


def test_a_claim_full_of_steps_is_released_without_the_reason() -> None:
    ledger = MemoryLedger(max_bytes=600)
    guard = Guard(ledger=ledger)
    claim = guard.claim("k")
    assert isinstance(claim, Claim)
    assert claim.holding is not None
    with suppress(StepError):
        for number in range(100):
            claim.holding.begin_step(f"step {number}")
            claim.holding.end_step(f"step {number}", number)
    met = ledger.read(claim.holding.name)
    assert met is not None

    assert release_by_hand(ledger, met, "why " * 50)
    again = guard.claim("k")
    assert isinstance(again, Claim)
    assert again.attempt == 2


def test_release_asks_first(run: Run, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _ = stuck(guard, "k")
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert run("release", name, "--reason", "r").code == 1
    assert run("show", name, "--json").json["state"] == "claimed"
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert run("release", name, "--reason", "r").code == 0
    assert run("show", name, "--json").json["state"] == "released"


def test_release_wants_a_claim_and_a_reason(run: Run, guard: Guard) -> None:
    name = done(guard, 1)
    refused = run("release", name, "--reason", "r", "--yes")
    assert refused.code == 1
    assert "completed" in refused.err
    claim, _ = stuck(guard, 2)
    assert run("release", claim, "--yes").code == 2
    assert run("release", claim, "--reason", " ", "--yes").code == 2
    assert run("show", claim, "--json").json["state"] == "claimed"
    assert run("release", "orders/charge/none", "--reason", "r", "--yes").code == 1


def test_a_claim_that_changes_while_the_question_is_open_is_left_alone(
    run: Run, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, claim = stuck(guard, "k")

    class Answer(io.StringIO):
        def readline(self, *_: Any) -> str:  # type: ignore[override]
            guard.complete(claim, "in time")
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Answer())
    refused = run("release", name, "--reason", "r")
    assert refused.code == 1
    assert "changed" in refused.err
    assert run("show", name, "--json").json["state"] == "completed"


# sweep


def test_sweep_is_a_dry_run_unless_told_otherwise(
    run: Run, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(ledger_url)
    for number in range(12):
        record = Record(State.COMPLETED, "t", lease=0.01, retention=0.01)
        ledger.create(f"orders/charge/{number:040}", record)
    ledger.create("orders/charge/fresh", claimed("t"))
    # Ages are told in whole seconds; a bar of this test need not stand for a minute.
    while run("sweep", "--json").json["backlog"] < 12:
        pass
    monkeypatch.setattr(SSMLedger, "removal_delay", 0.1)
    dry = run("sweep")
    assert dry.code == 0
    assert "12 may be removed" in dry.out
    assert len(run("list", "--json").json) == 13
    swept = run("sweep", "--yes", "--rate", "200", "--json")
    assert swept.code == 0
    assert (swept.json["swept"], swept.json["kept"], swept.json["backlog"]) == (12, 1, 0)
    assert [line["name"] for line in run("list", "--json").json] == ["orders/charge/fresh"]


def test_a_sweep_that_leaves_something_behind_is_a_finding(run: Run) -> None:
    clock = FrozenClock()
    ssm = StrictSSM(clock)
    ledger = SSMLedger(ssm, clock=clock)
    ledger.create("orders/charge/k", claimed("t"))
    clock.advance(10_000)
    ssm.inject("PutParameter", Fault.refused("ValidationException"))
    with ledger_in_place(ledger):
        swept = run("sweep", "--yes")
    assert swept.code == 1
    assert "refused  " in swept.out


def test_a_sweep_of_too_little_time_is_wrong_usage(run: Run, ledger_url: str) -> None:
    assert run("sweep", "--yes", "--time-limit", "20").code == 2
    assert run("sweep", "--rate", "0").code == 2


# iam


ARN = "arn:aws:ssm:eu-west-1:111122223333:parameter/"


@pytest.mark.parametrize(
    ("prefix", "namespace", "path"),
    [
        ("/idemguard/orders", "", "idemguard/orders/*"),
        ("idemguard", "orders", "idemguard/orders/*"),
        ("/idemguard/", "/team/orders/", "idemguard/team/orders/*"),
    ],
)
@pytest.mark.parametrize("role", ["handler", "sweeper"])
def test_a_policy_grants_actions_one_by_one_on_the_path(
    role: Any, prefix: str, namespace: str, path: str
) -> None:
    scope = Scope(prefix, namespace, region="eu-west-1", account="111122223333")
    document = policy(role, scope)
    actions = [action for item in document["Statement"] for action in item["Action"]]
    assert not [action for action in actions if "*" in action]
    assert (
        sorted(actions)
        == {
            "handler": ["ssm:GetParameter", "ssm:PutParameter"],
            "sweeper": [
                "ssm:DeleteParameters",
                "ssm:DescribeParameters",
                "ssm:GetParameter",
                "ssm:GetParameters",
                "ssm:PutParameter",
            ],
        }[role]
    )
    for item in document["Statement"]:
        everything = item["Action"] == ["ssm:DescribeParameters"]
        assert item["Resource"] == ("*" if everything else ARN + path)
    assert "//" not in json.dumps(document)
    assert "kms" not in json.dumps(document)


def test_the_calls_of_a_delivery_and_of_a_sweep_are_those_that_the_policies_allow() -> None:
    clock = FrozenClock()
    ssm = StrictSSM(clock)
    ledger = SSMLedger(ssm, clock=clock)
    guard = Guard(ledger=ledger, clock=clock, operation="w", lease=60, retention=60)
    overwrites: list[bool] = []

    def allowed(role: Any) -> set[str]:
        return {
            action.removeprefix("ssm:")
            for item in policy(role, Scope())["Statement"]
            for action in item["Action"]
        }

    guard.run_exactly_once("k", lambda: None)
    claim = guard.claim("dead")
    clock.advance(61)
    guard.run_exactly_once("dead", lambda: None)
    assert isinstance(claim, Claim)
    guard.complete(claim)
    assert {call[0] for call in ssm.calls} == allowed("handler")
    clock.advance(10_000)
    ssm.calls.clear()
    ssm.before_call = lambda operation, request: (
        overwrites.append(request["Overwrite"]) if operation == "PutParameter" else None
    )
    from idemguard.sweeper import Sweeper

    assert Sweeper(ledger, clock=clock).sweep(dry_run=False).swept == 2
    # GetParameter for names that need a closer look.
    assert {call[0] for call in ssm.calls} | {"GetParameter"} == allowed("sweeper")
    assert all(overwrites)


def test_a_sweeper_may_overwrite_and_not_create() -> None:
    [bars] = [i for i in policy("sweeper", Scope())["Statement"] if "Condition" in i]
    assert bars["Action"] == ["ssm:PutParameter"]
    assert bars["Condition"] == {"StringEquals": {"ssm:Overwrite": "true"}}


@pytest.mark.parametrize(
    ("key", "resource"),
    [
        ("1234abcd-12ab", "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab"),
        ("arn:aws:kms:eu-west-1:9:key/k", "arn:aws:kms:eu-west-1:9:key/k"),
        ("alias/mine", "arn:aws:kms:eu-west-1:111122223333:key/*"),
    ],
)
@pytest.mark.parametrize("role", ["handler", "sweeper"])
@pytest.mark.parametrize(
    ("tier", "encrypt"), [("Standard", "kms:Encrypt"), ("Advanced", "kms:GenerateDataKey")]
)
def test_a_customers_key_is_granted_through_parameter_store_only(
    role: Any, key: str, resource: str, tier: str, encrypt: str
) -> None:
    scope = Scope(key_id=key, tier=tier, region="eu-west-1", account="111122223333")
    *_, grant = policy(role, scope)["Statement"]
    assert grant["Action"] == ["kms:Decrypt", encrypt]
    assert grant["Resource"] == resource
    assert grant["Condition"]["StringLike"] == {"kms:ViaService": "ssm.eu-west-1.*"}
    named = grant["Condition"].get("ForAnyValue:StringEquals")
    assert named == ({"kms:ResourceAliases": "alias/mine"} if "alias" in key else None)


def test_the_key_that_aws_manages_needs_no_grant() -> None:
    assert "kms" not in as_json("handler", Scope(key_id="alias/aws/ssm"))


def test_a_sam_policy_says_the_same() -> None:
    import yaml

    class Sub(yaml.SafeLoader):  # type: ignore[misc]
        pass

    def text(loader: Any, node: Any) -> Any:
        return loader.construct_scalar(node)

    Sub.add_constructor("!Sub", text)
    scope = Scope(namespace="orders", key_id="alias/mine")
    [document] = yaml.load(as_sam("sweeper", scope), Loader=Sub)["Policies"]
    filled = json.dumps(document)
    for pseudo, value in (
        ("${AWS::Partition}", "aws"),
        ("${AWS::Region}", "*"),
        ("${AWS::AccountId}", "*"),
    ):
        filled = filled.replace(pseudo, value)
    assert json.loads(filled) == policy("sweeper", scope)


def test_a_terraform_policy_names_each_action_and_condition() -> None:
    text = as_terraform("sweeper", Scope(namespace="orders", key_id="k"))
    for item in policy("sweeper", Scope())["Statement"]:
        assert json.dumps(item["Action"]) in text
    assert 'variable = "ssm:Overwrite"' in text
    assert ":parameter/idempotency/orders/*" in text
    assert text.count("{") == text.count("}")
    for source in ("aws_region", "aws_caller_identity", "aws_partition"):
        assert f'data "{source}" "current" {{}}' in text


@pytest.mark.parametrize("form", ["json", "sam", "terraform"])
def test_iam_prints_a_policy_for_the_ledger_of_the_url(run: Run, form: str) -> None:
    url = "ssm:///team/idem?tier=Advanced&key_id=alias/mine"
    printed = run("iam", "--ledger", url, "--namespace", "orders", "--format", form)
    assert printed.code == 0
    assert ":parameter/team/idem/orders/*" in printed.out
    assert "kms:GenerateDataKey" in printed.out
    as_value = run("iam", "--ledger", url, "--namespace", "orders", "--format", form, "--json")
    assert as_value.json["policy"] == printed.out.rstrip("\n")


def test_iam_has_nothing_for_a_ledger_in_memory(run: Run) -> None:
    assert run("iam", "--ledger", "memory://").code == 2
    assert run("iam", "--role", "admin").code == 2


# doctor


def statuses(ran: Ran) -> dict[str, str]:
    return {check["check"]: check["status"] for check in ran.json}


def test_doctor_finds_nothing_wrong_where_nothing_is(run: Run, ledger_url: str) -> None:
    checked = run("doctor", "--write", "--json")
    found = statuses(checked)
    assert checked.code == 0
    for name in ("region", "clock", "credentials", "read", "list", "delete", "create", "overwrite"):
        assert found[name] == "ok"
    assert run("list", "--json").json == []


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictSSM]:
    with StrictSSMServer() as serving:
        monkeypatch.setenv("IDEMGUARD_LEDGER", url_of(serving.url))
        yield serving.ssm


def test_doctor_writes_nothing_unless_told_to(run: Run, server: StrictSSM) -> None:
    checked = run("doctor", "--json")
    assert checked.code == 0
    assert statuses(checked)["write"] == "skipped"
    assert not [call for call in server.calls if call[0] == "PutParameter"]
    # Only names that nobody else has.
    deleted = [name for call in server.calls if call[0] == "DeleteParameters" for name in call[1:]]
    assert all("idemguard-doctor/absent-" in name for name in deleted)


@pytest.mark.parametrize(
    ("action", "check", "status"),
    [
        ("GetParameter", "read", "fail"),
        ("GetParameters", "read in batches", "warn"),
        ("DescribeParameters", "list", "warn"),
        ("DeleteParameters", "delete", "warn"),
        ("PutParameter", "create", "fail"),
        ("GetServiceSetting", "throughput", "warn"),
    ],
)
def test_doctor_names_the_action_that_is_denied(
    run: Run, server: StrictSSM, action: str, check: str, status: str
) -> None:
    server.inject(action, Fault.denied(), times=100)
    checked = run("doctor", "--write", "--json")
    [found] = [line for line in checked.json if line["check"] == check]
    assert found["status"] == status
    assert f"allow ssm:{action} on " in found["cure"]
    assert checked.code == (1 if status == "fail" else 0)
    others = {name: how for name, how in statuses(checked).items() if how == "ok"}
    assert "credentials" in others
    assert "→ " in run("doctor", "--write").out


def test_doctor_tells_a_probe_that_it_could_not_delete(run: Run, server: StrictSSM) -> None:
    server.inject("DeleteParameters", Fault.denied(), times=100)
    assert statuses(run("doctor", "--write", "--json"))["clean up"] == "warn"


def test_doctor_stops_where_it_is_throttled(run: Run, server: StrictSSM) -> None:
    server.inject("GetParameter", Fault.throttle(), times=100)
    checked = run("doctor", "--json")
    assert checked.code == 1
    assert statuses(checked)["connection"] == "fail"
    assert "ThrottlingException" in checked.out
    assert "read" not in statuses(checked)


def test_doctor_tells_expired_credentials(run: Run, server: StrictSSM) -> None:
    server.inject("GetParameter", Fault.refused("ExpiredTokenException"), times=100)
    checked = run("doctor", "--json")
    assert checked.code == 1
    assert statuses(checked)["credentials"] == "fail"


def test_doctor_tells_missing_credentials(
    run: Run, server: StrictSSM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    checked = run("doctor", "--json")
    assert checked.code == 1
    assert statuses(checked)["credentials"] == "fail"


def test_doctor_tells_that_nobody_answers(run: Run) -> None:
    checked = run("doctor", "--json", "--ledger", url_of("http://127.0.0.1:9"))
    assert checked.code == 1
    assert statuses(checked)["connection"] == "fail"


def test_doctor_tells_a_missing_region(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    checked = run("doctor", "--json", "--ledger", "ssm:///none")
    assert checked.code == 1
    assert statuses(checked) == {"region": "fail"}
    assert checked.json[0]["cure"] == "set AWS_DEFAULT_REGION (or region= in the URL)"


def test_doctor_tells_an_unknown_profile(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "not-configured-here")
    checked = run("doctor", "--json", "--ledger", f"ssm:///none?region={REGION}")
    assert checked.code == 1
    assert "AWS_PROFILE" in checked.json[0]["cure"]


def test_doctor_tells_a_bad_endpoint(run: Run) -> None:
    checked = run("doctor", "--json", "--ledger", url_of("no-url"))
    assert checked.code == 1
    assert statuses(checked) == {"endpoint": "fail"}
    assert "endpoint_url=" in checked.json[0]["cure"]


@pytest.mark.parametrize(("wrong", "status"), [(1, "ok"), (-120, "warn"), (1000, "fail")])
def test_doctor_compares_the_clocks(run: Run, wrong: float, status: str) -> None:
    class Wrong(Clock):
        def wall(self) -> float:
            return super().wall() + wrong

    with StrictSSMServer(StrictSSM(Wrong())) as serving:
        checked = run("doctor", "--json", "--ledger", url_of(serving.url))
    assert statuses(checked)["clock"] == status


@pytest.mark.parametrize(("high", "told"), [(True, "about 10"), (False, "about 3")])
def test_doctor_tells_the_throughput(run: Run, high: bool, told: str) -> None:
    with StrictSSMServer(StrictSSM(high_throughput=high)) as serving:
        checked = run("doctor", "--json", "--ledger", url_of(serving.url))
    [found] = [line for line in checked.json if line["check"] == "throughput"]
    assert told in found["found"]


# deliver


HANDLERS = """
import itertools

from idemguard import Guard, idempotent, step

def mail(to): raise ConnectionError("no mail from a test")
def charge(to): print("charged"); return "ok"

def plain(event, context):
    return charge(event["id"])

@idempotent(key="id")
def guarded(event, context):
    return charge(event["id"])

@idempotent(key="id")
def two_effects(event, context):
    charge(event["id"])
    mail(event["id"])

@idempotent(key="id")
def in_steps(event, context):
    step("charge", charge, event["id"])
    step("mail", mail, event["id"])

@idempotent(key="id")
def two_mails(event, context):
    mail(event["id"])
    mail(event["id"])

@idempotent(key="id")
def one(record): return record["id"]

def batch(event, context):
    for number in event["ids"]:
        one({"id": number})

numbers = itertools.count()

@idempotent(key=lambda event: next(numbers))
def other_key(event, context): return "ok"

@idempotent(key="id")
def loud(event, context): raise ValueError("much " * 40 + "the end of a long text")

class Holder:
    @staticmethod
    @idempotent(key="id")
    async def handle(event, context):
        return charge(event["id"])
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"handlers_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize("handler", ["guarded", "Holder.handle"])
def test_deliver_shows_a_guarded_handler_run_once(run: Run, module: str, handler: str) -> None:
    watched = ["--watch", f"{module}.charge", "--allow-open"]
    ran = run("deliver", f"{module}:{handler}", '{"id": 1}', *watched)
    assert ran.code == 0
    # What the handler prints is kept apart.
    assert "charged" not in ran.out
    assert "charged" in ran.err
    plain = run(
        "deliver", f"{module}:{handler}", '{"id": 1}', "--json", "--times", "3", "--workers", "4"
    ).json
    found = {
        scenario["scenario"]: [
            [one["outcome"] for one in done["deliveries"]] for done in scenario["runs"]
        ]
        for scenario in plain
    }
    assert found["3 deliveries in turn"] == [["EXECUTED"] + ["SKIPPED_COMPLETED"] * 2]
    assert found["4 deliveries at once"] == [["EXECUTED"] + ["SKIPPED_IN_FLIGHT"] * 3]
    assert found["2 deliveries, the ledger fails at the claim of the first"] == [[None, "EXECUTED"]]
    kills = found["killed at each place, and delivered again after its lease"]
    assert len(kills) >= 6
    assert all(outcomes[-1] in ("EXECUTED", "SKIPPED_COMPLETED") for outcomes in kills)


def test_deliver_tells_that_a_handler_is_not_guarded(run: Run, module: str) -> None:
    ran = run("deliver", f"{module}:plain", '{"id": 1}')
    assert ran.code == 1
    assert "not guarded" in ran.out


def test_deliver_tells_what_the_handler_raises(run: Run, module: str) -> None:
    ran = run("deliver", f"{module}:two_effects", '{"id": 1}')
    assert ran.code == 1
    assert "ConnectionError" in ran.out


def test_deliver_finds_a_second_effect_that_a_crash_repeats(run: Run, module: str) -> None:
    watched = ["--watch", f"{module}.charge", "--fake", f"{module}.mail"]
    ran = run("deliver", f"{module}:two_effects", '{"id": 1}', *watched)
    assert ran.code == 1
    assert "'charge' was done 2 times, not once, when the attempt was killed" in ran.out
    assert run("deliver", f"{module}:in_steps", '{"id": 1}', *watched, "--allow-open").code == 0


def test_deliver_complains_of_a_repeat_out_of_the_open_moment_too(run: Run, module: str) -> None:
    watched = ["--watch", f"{module}.charge", "--fake", f"{module}.mail"]
    ran = run("deliver", f"{module}:in_steps", '{"id": 1}', *watched)
    assert ran.code == 1
    assert "after effect 'charge' *" in ran.out
    assert "Send an effect_key() along" in ran.out
    assert "or accept the repeat: --allow-open" in ran.out


def test_deliver_complains_of_one_effect_that_is_made_twice_without_steps(
    run: Run, module: str
) -> None:
    asked = ["deliver", f"{module}:two_mails", '{"id": 1}', "--fake", f"{module}.mail"]
    ran = run(*asked)
    assert ran.code == 1
    assert "'mail' was done 3 times, not 2 times, when the attempt was killed" in ran.out
    assert "give it a step of its own" in ran.out
    # The first mail was not the last thing done, so no open moment excuses it.
    accepted = run(*asked, "--allow-open")
    assert accepted.code == 1
    assert "'mail' was done 4 times" in accepted.out
    assert "'mail' was done 3 times" not in accepted.out


def test_deliver_counts_the_records_of_a_batch_one_by_one(run: Run, module: str) -> None:
    ran = run("deliver", f"{module}:batch", '{"ids": [1, 2, 1]}')
    assert ran.code == 0, ran.out
    assert "EXECUTED x2, SKIPPED_COMPLETED x1" in ran.out
    assert "note: 2 keys were seen in one event" in ran.out
    assert "BatchProcessor" in ran.out
    scenarios = run("deliver", f"{module}:batch", '{"ids": [1, 2, 1]}', "--json").json
    names = [scenario["scenario"] for scenario in scenarios]
    assert len(set(names)) == len(names)
    assert "2 deliveries, the ledger fails at the claim of the first, call 3 of 4" in names
    [in_turn] = scenarios[0]["runs"]
    assert in_turn["deliveries"][0]["outcomes"] == {"EXECUTED": 2, "SKIPPED_COMPLETED": 1}


def test_deliver_tells_that_the_key_differs_by_delivery(run: Run, module: str) -> None:
    ran = run("deliver", f"{module}:other_key", '{"id": 1}')
    assert ran.code == 1
    assert "the key differs by delivery" in ran.out


def test_deliver_shows_all_that_was_raised_where_nobody_looks(run: Run, module: str) -> None:
    assert "the end of a long text" in run("deliver", f"{module}:loud", '{"id": 1}').out


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def broken(:", "SyntaxError: "),
        ("import not_installed_here", "there is no module not_installed_here"),
        ("from json import nothing", "cannot import name 'nothing' from 'json'"),
        ("import os; os.environ['NOT_SET_HERE']", "KeyError: 'NOT_SET_HERE'"),
    ],
)
def test_deliver_tells_why_a_module_cannot_be_imported(
    run: Run, module: str, source: str, told: str
) -> None:
    Path(f"broken_{module}.py").write_text(source)
    ran = run("deliver", f"broken_{module}:handler", "{}")
    assert ran.code == 2
    assert f"handler: broken_{module} cannot be imported: " in ran.err
    assert told in ran.err
    assert ran.err.count("\n") == 1


def test_deliver_leaves_the_real_ledger_alone(run: Run, module: str, server: StrictSSM) -> None:
    assert run("deliver", f"{module}:guarded", '{"id": 1}').code == 0
    assert server.calls == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["{module}", "{}"],
        ["{module}:nothing", "{}"],
        ["no.such.module:handler", "{}"],
        ["{module}:guarded", "no-such-file"],
        ["{module}:guarded", "{}", "--watch", "{module}.nothing"],
    ],
)
def test_deliver_refuses_what_it_cannot_find(run: Run, module: str, arguments: list[str]) -> None:
    ran = run("deliver", *(text.replace("{module}", module) for text in arguments))
    assert ran.code == 2
    assert "error: " in ran.err


# key


def test_key_shows_what_is_selected_and_that_deliveries_agree(run: Run) -> None:
    first, second = (str(EVENTS / f"sqs_standard{suffix}.json") for suffix in ("", "_redelivery"))
    shown = run("key", "messageId", "--records", first, second)
    assert shown.code == 0
    assert "all 2 have the same key" in shown.out
    plain = run("key", "messageId", "--records", "--json", first, second, "--operation", "w").json
    from idemguard.keys import make_key

    message = json.loads(Path(first).read_text())["Records"][0]["messageId"]
    assert plain["agree"] is True
    for delivery in plain["deliveries"]:
        assert delivery["selected"] == message
        assert delivery["digest"] == make_key("w", message).digest
        assert delivery["name"] == f"default/w/{delivery['digest']}"


def test_key_tells_that_deliveries_differ(run: Run) -> None:
    shown = run("key", "id", '{"id": 1}', '{"id": 2}')
    assert shown.code == 1
    assert "2 different keys" in shown.out


def test_key_tells_what_is_missing_and_why(run: Run) -> None:
    shown = run("key", "[id, at]", '{"id": 7}')
    assert shown.code == 1
    assert "member 2 of the multi-select is null or absent" in shown.out
    batch = run("key", "messageId", str(EVENTS / "sqs_standard.json"))
    assert batch.code == 1
    assert "--records" in batch.out


def test_key_tells_what_is_volatile(run: Run) -> None:
    shown = run("key", "receiptHandle", "--records", str(EVENTS / "sqs_standard.json"))
    assert shown.code == 1
    assert "receiptHandle is new with every receive" in shown.out
    plain = run("key", "receiptHandle", "--records", str(EVENTS / "sqs_standard.json"), "--json")
    assert plain.json["volatile"][0]["field"] == "receiptHandle"


def test_a_key_of_zero_is_a_key(run: Run) -> None:
    assert run("key", "id", '{"id": 0}', '{"id": 0}').code == 0


def test_key_reads_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"id": "from stdin"}'))
    assert '"from stdin"' in run("key", "id", "-").out


def test_key_suggests_the_ready_made_expression(run: Run) -> None:
    shown = run("key", "--suggest", str(EVENTS / "sqs_standard.json"), str(EVENTS / "sns.json"))
    assert shown.code == 0
    assert "idemguard.sources.SQS_MESSAGE, for each of its records" in shown.out
    assert "Records[].Sns.MessageId" in shown.out
    unknown = run("key", "--suggest", '{"nothing": "known"}', "--json")
    assert unknown.code == 1
    assert unknown.json[0]["source"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["key", "a.[", '{"a": 1}'],
        ["key", "id"],
        ["key", "id", "no/such/file.json"],
        ["key", "id", '{"id": '],
        ["show"],
        ["list", "--state", "lost"],
        ["list", "--ledger", "redis://x"],
        ["list", "--ledger", "ssm:///aws/x"],
        ["list", "--under", "a b"],
        ["stats", "--under", "a/b c"],
        ["sweep", "--under", "a//b"],
        ["iam", "--namespace", "a b"],
        ["iam", "--prefix", "/aws/x"],
        ["key", "id", '{"id": 1}', "--namespace", "a b"],
        ["nonsense"],
    ],
)
def test_wrong_usage_ends_with_2(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert ran.err


def test_no_error_shows_a_broken_events_payload(run: Run) -> None:
    ran = run("key", "id", '{"card": "' + SECRET + '", ')
    assert ran.code == 2
    assert SECRET not in ran.err


@pytest.mark.parametrize("verb", ["list", "stats", "sweep"])
def test_a_ledger_that_cannot_be_used_ends_with_3(run: Run, server: StrictSSM, verb: str) -> None:
    server.inject("DescribeParameters", Fault.denied(), times=100)
    ran = run(verb)
    assert ran.code == 3
    assert "ssm:DescribeParameters" in ran.err
    assert ran.out == ""


def test_a_record_of_a_newer_version_ends_with_3(run: Run, server: StrictSSM) -> None:
    server.put_parameter(Name="/idempotency/a/b/c", Value='{"f":99,"x":"d"}', Type="String")
    ran = run("show", "a/b/c")
    assert ran.code == 3
    assert "upgrade" in ran.err


# The command itself.


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_tells_the_exit_codes_and_every_verb(run: Run, option: str) -> None:
    shown = run(option)
    assert shown.code == 0
    for word in ("key", "deliver", "list", "show", "stats", "release", "sweep", "iam", "doctor"):
        assert word in shown.out
    assert "3: the ledger cannot be used" in shown.out
    assert run("show", "-h").code == 0


def test_the_version_is_told(run: Run) -> None:
    shown = run("--version")
    assert (shown.code, shown.out) == (0, f"idemguard {__version__}\n")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_the_command_says_how_to_install_it(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None;"
        "from idemguard.cli import main; main(['list'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "pip install 'idemguard[cli]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_installed_command_runs() -> None:
    done = subprocess.run(
        [tool("idemguard"), "key", "id", "-", "--json"],
        input='{"id": 1}',
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["agree"] is True


def test_the_library_imports_neither_typer_nor_rich() -> None:
    code = (
        "import sys, idemguard, idemguard.cli, idemguard.sweeper, idemguard.iam, idemguard.upkeep;"
        "assert not {'typer', 'rich', 'boto3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_ledger_in_memory_can_be_looked_at_too(run: Run) -> None:
    ledger: Ledger = MemoryLedger()
    ledger.create("ns/op/k", claimed("t"))
    with ledger_in_place(ledger):
        assert run("list", "--json").json[0]["state"] == "claimed"
        assert run("stats", "--json").json["states"] == {"claimed": 1}
        assert run("show", "ns/op/k").code == 0
        assert run("release", "ns/op/k", "--reason", "r", "--yes").code == 0
        assert run("sweep", "--yes").code == 0
        assert run("doctor").code == 2
