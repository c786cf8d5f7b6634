"""The documentation against the code: files, functions, commands, settings, routes, fields, error
codes and metrics that it names exist, and it names all that a client can meet."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from appliance.api.routes import DOCS, ROUTES
from appliance.cli import steelyard
from appliance.config import Config, describe, load
from appliance.observe.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), *(ROOT / f"{n}.md" for n in ("README", "CHANGELOG"))])
HTTP = ROOT / "docs/http.md"

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"(?:(\w+)\.)?(\w+)\(\)")
SOURCE = re.compile(r"[\w./-]+/[\w.-]+\.(?:py|h|md|txt|toml)|[\w-]+\.(?:py|h)")
SETTING = re.compile(rf"(?:{'|'.join(Config.__dataclass_fields__)})\.[a-z_]+\b")
COMMAND = re.compile(r"(?:.*/)?steelyard (?P<rest>[a-z-][^#]*)")
ROUTE = re.compile(r"(?:(GET|POST|DELETE) )?(/[\w{}/.-]*)(?:\?\S*)?")
URL = re.compile(r"http://127\.0\.0\.1:8421(/[\w/.-]*)")
METRIC = re.compile(r"(?:steelyard|llamacpp):[a-z0-9_]+")
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def spans(page: Path) -> Iterator[str]:
    """What stands in backticks, code blocks left out."""
    yield from SPAN.findall(FENCE.sub("", page.read_text()))


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in ROOT.glob("appliance/**/*.py")}


@cache
def defined() -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Functions and methods by name, and methods by class and name."""
    names: set[str] = set()
    methods: set[tuple[str, str]] = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.ClassDef):
                inner = (
                    n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
                )
                methods.update((node.name, method.name) for method in inner)
    return frozenset(names), frozenset(methods)


def text_of(path: str) -> str:
    return (ROOT / path).read_text()


@pages
def test_relative_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not urlsplit(target).scheme:
            assert (page.parent / target.partition("#")[0]).exists(), target


@pages
def test_files_that_are_named_exist(page: Path) -> None:
    for span in spans(page):
        if SOURCE.fullmatch(span) and not span.startswith("/"):
            places = [ROOT / span, ROOT / "appliance" / span]
            assert any(place.exists() for place in places), span


@pages
def test_functions_that_are_named_exist(page: Path) -> None:
    names, methods = defined()
    for span in spans(page):
        if found := CALL.fullmatch(span):
            owner, name = found.groups()
            assert ((owner, name) in methods) if owner else (name in names), span


def test_functions_stand_in_the_file_that_is_named_after_them() -> None:
    """`name()` (`folder/file.py`) in the architecture page."""
    text = text_of("docs/architecture.md")
    pairs = re.findall(r"`(?:\w+\.)?(\w+)(?:\(\))?`\s\(`([\w/]+\.py)`\)", text)
    assert len(pairs) > 20
    for name, file in pairs:
        assert re.search(rf"(?:def|class) {name}\b", text_of(f"appliance/{file}")), (name, file)


@pages
def test_settings_that_are_named_exist(page: Path) -> None:
    known = {entry.key for entry in describe()}
    for span in spans(page):
        if found := SETTING.match(span):
            answered = page.name == "operating.md" and found[0] in SHOWN_BY_READYZ
            named = found[0] in known or found[0] in STATE_FILES
            assert named or answered or SOURCE.fullmatch(span), span


STATE_FILES = {"ledger.sqlite"}
"""In the state directory; not settings either."""
SHOWN_BY_READYZ = {"ledger.problem", "engine.state", "engine.last_failure", "engine.paused"}
"""Members of its answer, not settings."""


@pages
def test_configurations_that_are_shown_can_be_used(page: Path, tmp_path: Path) -> None:
    for shown in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S):
        file = tmp_path / "steelyard.toml"
        file.write_text(shown)
        load(file, {})


@pages
def test_commands_that_are_named_exist(page: Path) -> None:
    lines = (line for block in FENCE.findall(page.read_text()) for line in block.splitlines())
    for code in (*spans(page), *lines):
        if found := COMMAND.match(code.removeprefix("ExecStart=")):
            check_command(found["rest"].split())


def check_command(words: list[str]) -> None:
    """Follows the words through groups and commands; every option must be known on the way."""
    command: click.Command = steelyard
    known = {"--help"}
    for word in words:
        known |= {name for option in command.params for name in option.opts}
        if word.startswith("--"):
            assert word.rstrip(".,;:") in known, (word, words)
        elif isinstance(command, click.Group) and word.isalpha():
            assert word in command.commands, words
            command = command.commands[word]


@pages
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    for span in spans(page):
        if found := re.match(r"make ([a-z]+)", span):
            assert found[1] in targets, span


def test_routes_of_the_page_are_those_of_the_box() -> None:
    paths = {path for route in (*ROUTES, *DOCS) for path in route.paths}
    methods = {(route.method, route.path) for route in (*ROUTES, *DOCS)}
    named: set[str] = set()
    for found in filter(None, map(ROUTE.fullmatch, spans(HTTP))):
        method, path = found.groups()
        matching = {known for known in paths if known.replace(":path", "") == path}
        assert matching, path
        assert method is None or any((method, known) in methods for known in matching), found[0]
        named |= matching
    assert named == paths


def test_page_says_which_routes_count_against_quotas() -> None:
    text = HTTP.read_text().partition("\nThese limits count")[2].partition("All others are free")[0]
    counted = {path for route in ROUTES if route.generates for path in route.paths}
    assert set(SPAN.findall(text)) - {"POST"} == counted | {"/admin/audit/{trace_id}/replay"}


def test_scopes_of_the_page_are_those_of_the_table() -> None:
    rows = dict(
        re.findall(r"^\| `((?:GET|POST|DELETE) \S+?)`.*\| (\w+) \|$", HTTP.read_text(), re.M)
    )
    table = (*ROUTES, *DOCS)
    assert rows == {f"{each.method} {each.path.replace(':path', '')}": each.need for each in table}


@pages
def test_examples_ask_for_routes_that_exist(page: Path) -> None:
    paths = {path for route in (*ROUTES, *DOCS) for path in route.paths}
    for path in URL.findall(page.read_text()):
        assert path in paths | {"/v1"}, path


def test_every_field_of_a_request_is_documented() -> None:
    told = set(spans(HTTP)) | set(re.findall(r"\w+", HTTP.read_text()))
    for shape in {route.body for route in ROUTES if route.body is not None}:
        missing = set(shape.names()) - told
        assert not missing, (shape.__name__, missing)


def test_fields_without_effect_are_documented_as_such() -> None:
    said = HTTP.read_text().partition("**Taken without effect")[2].partition("\n\n")[0]
    hints = {n for route in ROUTES if route.body is not None for n in route.body.HINTS}
    assert set(SPAN.findall(said)) == {
        *hints, "X-Ignored-Params", "stream_options.include_obfuscation",
    }  # fmt: skip


def error_codes() -> set[str]:
    """Every literal that becomes the `code` of an error."""
    found: set[str] = set()
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "code":
                found |= literals(node.value) - {""}
            elif isinstance(node, ast.FunctionDef):
                found |= default_codes(node)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Cause":
                found |= literals(node.args[0])
        if path.name == "client.py":
            found |= set(re.findall(r'\("(\w+_timeout)"', path.read_text()))
    return found


def literals(node: ast.expr) -> set[str]:
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def default_codes(node: ast.FunctionDef) -> set[str]:
    arguments = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return {c for arg, value in arguments if arg.arg == "code" and value for c in literals(value)}


def test_error_codes_of_the_page_are_those_of_the_code() -> None:
    table = HTTP.read_text().partition("| status | type | codes |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`([a-z_]+)`", re.sub(r"(?m)^\| \d+ \| `\w+`", "", table)))
    codes = error_codes() - UNSEEN
    assert codes <= told, codes - told
    assert told - codes <= {"invalid_request_error"}, told - codes


UNSEEN = {"gpu_required", "interrupted"}
"""One stops the box before a client could see it, the other is given at the next start."""


@pages
def test_metrics_that_are_named_exist(page: Path) -> None:
    metrics = Metrics(version="1", llama_commit="2", model="m")
    metrics.request_done("/", "ok")
    known = set(METRIC.findall(metrics.text().decode()))
    for span in spans(page):
        if METRIC.fullmatch(span):
            assert span in known, span


def test_architecture_stays_one_page() -> None:
    assert len(text_of("docs/architecture.md").splitlines()) <= 260
