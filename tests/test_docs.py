"""The documentation cannot drift: its code runs, its tables agree with the code, its site builds."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from idemguard import VolatileKeyWarning, cache, errors, idempotent, sources, step
from idemguard.iam import Role, Scope, policy
from idemguard.ledgers.ssm import SSMLedger
from idemguard.testing import FakeLambdaContext, FrozenClock, StrictSSM

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<code>.*?)^(?P=indent)(?P=ticks) *$",
    re.MULTILINE | re.DOTALL,
)
_PRINTS = re.compile(r"\n\n```text\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r'--8<-- "([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    info: str
    code: str
    #: The text block that follows at once, if one does.
    prints: str | None = None

    @property
    def language(self) -> str:
        return re.split(r"[\s{}.]+", self.info.strip("{ ."), maxsplit=1)[0]

    @property
    def included(self) -> list[str]:
        return _INCLUDE.findall(self.code)

    @property
    def fragment(self) -> bool:
        return ".fragment" in self.info

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["info"],
            textwrap.dedent(match["code"]),
            prints[1].strip() if (prints := _PRINTS.match(text, match.end())) else None,
        )
        for match in _FENCE.finditer(text)
    ]
    return [block for block in found if block.language == language]


def everywhere(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page, language)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_code(language: str) -> pytest.MarkDecorator:
    """Parametrises by the pages that hold code of a language."""
    pages = [page for page in PAGES if blocks(page, language)]
    return pytest.mark.parametrize("page", pages, ids=name_of)


@contextlib.contextmanager
def imports_of_pages() -> Iterator[None]:
    """Lets a page import the files beside it, and forgets them: their names are anybody's."""
    before = dict(sys.modules)
    sys.path.insert(0, str(DOCS / "snippets"))
    try:
        yield
    finally:
        sys.path.remove(str(DOCS / "snippets"))
        for name in sys.modules.keys() - before.keys():
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).is_relative_to(DOCS):
                del sys.modules[name]


def test_what_a_page_imports_is_not_there_for_the_next() -> None:
    with imports_of_pages():
        importlib.import_module("shop")
        assert "shop" in sys.modules
    assert "shop" not in sys.modules


@pytest.fixture
def _imports() -> Iterator[None]:
    with imports_of_pages():
        yield


@pytest.mark.usefixtures("_imports")
@with_code("python")
def test_the_code_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace, on a ledger of its own; a page's asserts are the test."""
    monkeypatch.setenv("POWERTOOLS_TRACE_DISABLED", "1")
    cache.forget()
    namespace: dict[str, Any] = {"__name__": f"docs_{page.stem.replace('-', '_')}"}
    # Dataclasses and annotations look their module up.
    module = type(sys)(namespace["__name__"])
    module.__dict__.update(namespace)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    # By the environment and not in place: the test kit puts its own ledger in place, as at a reader's.
    monkeypatch.setenv("IDEMGUARD_LEDGER", f"memory://{secrets.token_hex(8)}")
    for block in blocks(page, "python"):
        if block.included or block.fragment:
            continue
        # The line numbers of a traceback are the page's own.
        code = "\n" * block.line + block.code
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(page), "exec"), module.__dict__)
        if block.prints is not None:
            assert printed.getvalue().strip() == block.prints


def test_a_fragment_is_python_and_says_why_it_is_not_run() -> None:
    fragments = [block for block in everywhere("python") if block.fragment]
    for block in fragments:
        compile(block.code, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert re.search(r'data-reason="[^"]{10,}"', block.info), block.place
    assert len(fragments) <= 8, "run them instead"


def test_included_files_are_run_by_a_test() -> None:
    included = {path for page in PAGES for path in _INCLUDE.findall(page.read_text())}
    assert included
    for path in sorted(included):
        file = ROOT / path.split(":")[0]
        assert file.is_file(), path
        if file.suffix == ".py":
            near = next(folder for folder in file.parents if [*folder.glob("test_*.py")])
            tests = [test.read_text() for test in near.glob("test_*.py")]
            used = any(
                re.search(rf"import\b.*\b{file.stem}\b|\b{file.stem}\b.*\bimport", test)
                for test in tests
            )
            assert file.name.startswith("test_") or used, f"no test uses {path}"


@pytest.mark.parametrize("folder", ["tutorial", "snippets"])
def test_the_files_that_pages_show_pass_their_own_tests(folder: str, tmp_path: Path) -> None:
    """In a folder of their own and with nobody else's settings, as at a reader's."""
    for file in (DOCS / folder).glob("*.py"):
        shutil.copy(file, tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("block", everywhere("json"), ids=lambda block: block.place)
def test_json_is_json(block: Block) -> None:
    if not block.included:
        text = block.code.strip()
        json.loads(text if text.startswith(("{", "[")) else f"{{{text}}}")


def test_each_ready_made_key_has_its_page_with_the_expression_as_it_is() -> None:
    shown: dict[str, str] = {}
    for page in (DOCS / "howto" / "sources").glob("*.md"):
        for name, expression in re.findall(
            r"^\| `([A-Z0-9_]+)` \| `(.+?)` \|", page.read_text(), re.M
        ):
            shown[name] = expression
    assert shown == dict(sources.ALL)


def test_the_fields_of_which_the_page_on_keys_says_that_they_warn_do() -> None:
    page = (DOCS / "howto" / "keys.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| anywhere(?: but .+)? \|$", page, re.M)
    fields = [field for row in rows for field in re.findall(r"`(\w+)`", row)]
    assert len(rows) == 2
    for field in fields:
        with pytest.warns(VolatileKeyWarning, match=field):
            idempotent(key=f"id || {field}", operation="any")(lambda event, context: None)


def _subclasses(cls: type[BaseException]) -> Iterator[type[BaseException]]:
    for sub in cls.__subclasses__():
        if sub.__module__ == errors.__name__:
            yield sub
            yield from _subclasses(sub)


def test_the_table_of_errors_holds_every_error_and_whether_trying_again_helps() -> None:
    page = (DOCS / "reference" / "errors.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \|", page, re.M))
    assert rows == {
        error.__name__: "yes" if error.retryable else "no"  # type: ignore[attr-defined]
        for error in _subclasses(errors.IdempotencyError)
        if error is not errors.LedgerError
    }


def test_step_functions_retries_what_passes_and_catches_the_rest() -> None:
    page = DOCS / "howto" / "sources" / "step-functions.md"
    [machine] = [
        json.loads(f"{{{block.code}}}") for block in blocks(page, "json") if "Retry" in block.code
    ]
    known = {error.__name__: error for error in _subclasses(errors.IdempotencyError)}
    retried = {name for rule in machine["Retry"] for name in rule["ErrorEquals"]}
    caught = {name for rule in machine["Catch"] for name in rule["ErrorEquals"]}
    assert all(getattr(known[name], "retryable") for name in retried)  # noqa: B009
    assert not any(getattr(known[name], "retryable") for name in caught)  # noqa: B009


def test_the_architecture_page_names_every_module_and_nothing_else() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text()
    named = re.findall(r"^\| `([\w/]+\.py)` \| \S", page, re.M)
    package = ROOT / "idemguard"
    there = [path.relative_to(package).as_posix() for path in package.rglob("*.py")]
    assert sorted(named) == sorted(there)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        assert re.search(rf"\s{re.escape(page.relative_to(DOCS).as_posix())}$", navigation, re.M), (
            page
        )


def test_the_site_builds_strictly_and_asks_nothing_of_other_hosts(tmp_path: Path) -> None:
    site = tmp_path / "site"
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"'](?:https?:)?//[^>]*>")
    for page in site.rglob("*.html"):
        foreign = [tag for tag in loads.findall(page.read_text()) if 'rel="canonical"' not in tag]
        assert not foreign, page.name
    assert not list(site.rglob("*.py"))


def _verbs() -> dict[str, set[str]]:
    """The command line's verbs with their options, and `""` for those of the command itself."""
    import typer

    from idemguard.cli.app import app

    command: Any = typer.main.get_command(app)
    verbs = {
        name: {text for option in verb.params for text in option.opts if text.startswith("-")}
        for name, verb in command.commands.items()
    }
    return {"": set(), **verbs}


def _commands() -> list[tuple[str, list[str]]]:
    """Every `idemguard ...` that a page shows, in a block or in a line, with its words."""
    found: list[tuple[str, list[str]]] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        shell = [line for block in blocks(page, "sh") for line in block.code.splitlines()]
        for line in shell + re.findall(r"`(idemguard [a-z][^`]*)`", text):
            if line.startswith("idemguard "):
                found.append((name_of(page), shlex.split(line, comments=True)[1:]))
    return found


def test_every_command_that_is_shown_exists() -> None:
    verbs, shown = _verbs(), _commands()
    assert {words[0] for _, words in shown} >= set(verbs) - {""}
    for page, words in shown:
        verb = "" if words[0].startswith("-") else words[0]
        assert verb in verbs, f"{page}: idemguard {verb}"
        options = {word for word in words if word.startswith("--")} - {"--help"}
        assert options <= verbs[verb], f"{page}: idemguard {' '.join(words)}"


def test_the_page_of_the_command_line_tells_every_verb_and_every_option() -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    everywhere_alike = {"--ledger", "--json", "--help", "-y"}
    for verb, options in _verbs().items():
        if verb:
            told = set(re.findall(r"`(--[a-z-]+)`", sections[verb]))
            assert told == options - everywhere_alike, verb
    assert set(sections) == set(_verbs()) - {""}


def test_the_policies_that_are_shown_are_those_that_the_command_line_writes() -> None:
    scope = Scope(namespace="orders", region="eu-west-1", account="111122223333")
    shown = [json.loads(block.code) for block in blocks(DOCS / "howto" / "iam.md", "json")]
    assert shown == [policy("handler", scope), policy("sweeper", scope)]


@pytest.mark.parametrize(("page", "role"), [("sweeping", "sweeper"), ("terraform", "handler")])
def test_a_template_allows_what_its_role_needs(page: str, role: Role) -> None:
    text = (DOCS / "howto" / f"{page}.md").read_text(encoding="utf-8")
    needed = {action for item in policy(role, Scope())["Statement"] for action in item["Action"]}
    assert set(re.findall(r"\bssm:[A-Z]\w+", text)) - {"ssm:Overwrite"} == needed


def test_the_calls_that_the_capacity_page_counts_are_those_that_are_made() -> None:
    clock = FrozenClock()
    ssm = StrictSSM(clock)

    @idempotent(key="id", ledger=SSMLedger(ssm, clock=clock), local_cache=False, clock=clock)
    def work(event: dict[str, Any], context: FakeLambdaContext) -> None:
        if event.get("step"):
            step("a", lambda: None)
        if event.get("fail"):
            raise ValueError

    def calls(**event: Any) -> tuple[int, int]:
        """Writes and reads of one delivery."""
        before = len(ssm.calls)
        with contextlib.suppress(ValueError):
            work(event, FakeLambdaContext(clock=clock))
        made = [operation for operation, *_ in ssm.calls[before:]]
        return made.count("PutParameter"), made.count("GetParameter")

    again = {"Records": [{"attributes": {"ApproximateReceiveCount": "2"}}]}
    first, duplicate, known = calls(id=1), calls(id=1), calls(id=1, **again)
    with_step, failed, retried = calls(id=2, step=True), calls(id=3, fail=True), calls(id=3)
    page = (DOCS / "howto" / "capacity.md").read_text(encoding="utf-8")
    rows = {
        path: (int(writes), int(reads))
        for path, writes, reads in re.findall(
            r"^\| ([a-z ]+) \| (\d+)[^|]* \| (\d+) \|$", page, re.M
        )
    }
    assert rows["first delivery"] == first
    assert rows["each step"] == (with_step[0] - first[0], 0)
    assert rows["duplicate"] == duplicate
    assert known == (0, 1)
    assert rows["retry after a failure"] == retried
    assert failed == (2, 0)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_top_level_files_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (ROOT / link).is_file(), link
    for target in re.findall(r"`?make ([a-z]+)\b`?", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target
