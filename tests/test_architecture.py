"""The file list tells the story; imports point down only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "idemguard"

# From the top down. A module may import from its own row's modules only where the row says so, and
# from every row below it.
ROWS: list[set[str]] = [
    {"__init__", "cli", "pytest_plugin", "testing", "sweeper", "integrations"},
    {"sweeping", "doctor", "iam"},
    {"upkeep"},
    {"decorator", "steps"},
    {"guard"},
    {"delivery_async"},
    {"delivery"},
    {"duplicate"},
    {"contest", "claim"},
    {"holding", "cache"},
    {"options", "volatile"},
    {"ledgers", "sources"},
    {"ledger", "lifecycle", "keys", "codec"},
    {"outcome", "record", "clock", "errors"},
]
# What has a helper of its own beside it, which nobody else needs.
FAMILIES = {
    "keys": {"canonical", "expression", "functions"},
    "codec": {"annotations", "failures", "packing", "refusal", "scalars", "usertypes"},
}

# The hooks that the options logger, tracer and metrics ask for, imported when they are given.
ON_REQUEST = {("guard", "integrations")}


def _row(module: str) -> int:
    for family, members in FAMILIES.items():
        if module in members:
            module = family
    for number, row in enumerate(ROWS):
        if module in row:
            return number
    raise AssertionError(f"idemguard/{module} stands in no row: give it its place here")


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _imported(path: Path) -> set[str]:
    """Top-level names inside the package that a module imports, wherever in it."""
    own = path.relative_to(PACKAGE).with_suffix("").parts
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = own[: len(own) - node.level]
                parts = (*base, *(node.module or "").split(".")) if node.module else base
                names = [parts[0]] if parts else [alias.name for alias in node.names]
            elif node.module and node.module.split(".")[0] == "idemguard":
                rest = node.module.split(".")[1:]
                names = rest[:1] or [alias.name for alias in node.names]
            else:
                continue
            found.update(names)
    return found


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    typed_only = _typed_only(path)
    for name in sorted(_imported(path) - typed_only):
        if not ((PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()):
            continue  # a name that the package itself exports
        edge = _row(own) == 0
        edge = edge or (own, name) in ON_REQUEST
        assert name == own or edge or _row(name) >= _row(own), f"{own} must not import {name}"


def _typed_only(path: Path) -> set[str]:
    """What is imported for type checkers alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for inner in node.body:
                if isinstance(inner, ast.ImportFrom) and inner.module and inner.level == 1:
                    found.add(inner.module.split(".")[0])
    return found


def test_ledgers_know_nothing_of_the_layers_above_them() -> None:
    allowed = {"clock", "errors", "ledger", "ledgers", "record"}
    for path in sorted((PACKAGE / "ledgers").glob("*.py")):
        assert _imported(path) <= allowed | {
            module.stem for module in (PACKAGE / "ledgers").glob("*.py")
        }, path.name


@pytest.mark.parametrize(
    "module", ["guard", "delivery", "duplicate", "contest", "holding", "lifecycle"]
)
def test_the_machinery_names_no_ledger_and_no_sdk(module: str) -> None:
    text = (PACKAGE / f"{module}.py").read_text()
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert not [name for name in imported if name.startswith(("boto", "ledgers", "pydantic"))]


def test_the_decisions_do_no_io() -> None:
    for module in ("lifecycle", "record", "keys", "canonical", "codec", "packing"):
        names = {
            name.split(".")[0]
            for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text()))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else []
            )
        }
        assert not names & {"time", "os", "socket", "threading", "random", "boto3"}, module
