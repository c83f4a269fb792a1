from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from idemguard import idempotent, step
from idemguard.ledgers.ssm import SSMLedger
from idemguard.outcome import Phase
from idemguard.testing.frozen_clock import FrozenClock
from idemguard.testing.strict_ssm import StrictSSM
from samples.local import SAMPLES, LocalContext, killed

TEMPLATES = sorted(SAMPLES.glob("*/template.yaml"))
NAMES = [path.parent.name for path in TEMPLATES]
LEDGER = (
    "arn:${AWS::Partition}:ssm:${AWS::Region}:${AWS::AccountId}:"
    "parameter/idempotency/${AWS::StackName}/*"
)


class CloudFormation(yaml.SafeLoader):  # type: ignore[misc]
    """YAML with `!Ref` and the like, each read as `{"Ref": ...}`."""


def _tag(loader: Any, suffix: str, node: Any) -> dict[str, Any]:
    kind = {"scalar": loader.construct_scalar, "sequence": loader.construct_sequence}
    name = suffix if suffix == "Ref" else f"Fn::{suffix}"
    return {name: kind[node.id](node)}


CloudFormation.add_multi_constructor("!", _tag)


@pytest.fixture(params=TEMPLATES, ids=NAMES)
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def template(path: Path) -> dict[str, Any]:
    return dict(yaml.load(path.read_text(encoding="utf-8"), CloudFormation))


def functions(template: dict[str, Any]) -> list[dict[str, Any]]:
    """The properties of each function, the global ones included."""
    shared = template.get("Globals", {}).get("Function", {})
    return [
        {**shared, **resource["Properties"]}
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Serverless::Function"
    ]


def statements(template: dict[str, Any]) -> Iterator[tuple[list[str], list[Any]]]:
    """Actions and resources of each statement."""
    for function in functions(template):
        for policy in function["Policies"]:
            for statement in policy["Statement"]:
                assert statement["Effect"] == "Allow"
                yield listed(statement["Action"]), listed(statement["Resource"])


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_every_sample_has_its_parts() -> None:
    folders = [init.parent for init in sorted(SAMPLES.glob("*/__init__.py"))]
    assert [folder.name for folder in folders] == NAMES
    for folder in folders:
        assert (folder / "event.json").is_file()
        assert "idemguard" in (folder / "requirements.txt").read_text().split()
        assert list(folder.glob("test_*.py"))


def test_a_template_is_a_sam_template_that_says_what_it_does(template: dict[str, Any]) -> None:
    assert template["Transform"] == "AWS::Serverless-2016-10-31"
    assert template["Description"]
    assert functions(template)


def test_every_handler_is_there(path: Path, template: dict[str, Any]) -> None:
    for function in functions(template):
        assert function["CodeUri"] == "."
        module, _, name = function["Handler"].rpartition(".")
        assert (path.parent / module.replace(".", "/")).with_suffix(".py").is_file()
        found = importlib.import_module(f"samples.{path.parent.name}.{module}")
        assert callable(getattr(found, name))


def test_every_reference_leads_somewhere(template: dict[str, Any]) -> None:
    known = {*template["Resources"], *template.get("Parameters", {})}

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if "Ref" in node:
                yield node["Ref"]
            if "Fn::GetAtt" in node:
                yield node["Fn::GetAtt"].split(".")[0]
        for child in (
            node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        ):
            yield from references(child)

    assert {name for name in references(template) if not name.startswith("AWS::")} <= known


def used_actions() -> set[str]:
    """The SSM actions of every path a handler can take: create, replay, release, steps, takeover."""
    clock, context = FrozenClock(), LocalContext()
    ssm = StrictSSM(clock)

    @idempotent(key="id", ledger=SSMLedger(ssm, clock=clock), local_cache=False)
    def work(event: dict[str, Any], context: LocalContext) -> int:
        step("first", lambda: 1)
        return 1 // int(event.get("by", 1))

    work({"id": 1}, context)
    work({"id": 1}, context)
    with pytest.raises(ZeroDivisionError):
        work({"id": 2, "by": 0}, context)
    work({"id": 2}, context)
    assert killed(lambda: work({"id": 3}, context), Phase.COMPLETE)
    clock.advance(32)
    work({"id": 3}, context)
    return {f"ssm:{operation}" for operation, *_ in ssm.calls}


def test_a_function_may_do_to_its_own_records_what_a_handler_does_and_no_more(
    template: dict[str, Any],
) -> None:
    for actions, resources in statements(template):
        if any(action.startswith("ssm:") for action in actions):
            assert set(actions) == used_actions()
            assert resources == [{"Fn::Sub": LEDGER}]
    ledgers = [
        resources for _, resources in statements(template) if {"Fn::Sub": LEDGER} in resources
    ]
    assert len(ledgers) == len(functions(template))


def test_the_namespace_is_the_one_that_the_policy_is_for(template: dict[str, Any]) -> None:
    shared = template.get("Globals", {}).get("Function", {}).get("Environment", {})
    for function in functions(template):
        variables = {**shared.get("Variables", {}), **function["Environment"]["Variables"]}
        assert variables["IDEMGUARD_NAMESPACE"] == {"Ref": "AWS::StackName"}


def test_no_statement_allows_everything(template: dict[str, Any]) -> None:
    for actions, resources in statements(template):
        assert not [action for action in actions if "*" in action]
        assert not [resource for resource in resources if resource == "*"]
