"""Chat templates: what is said of them before anybody is served with them."""

import re
from pathlib import Path

import pytest

from appliance.prepare.lint import Lint, lint, read_names
from appliance.prepare.messages import PrepareLimits
from tests.unit.model_parts import TEMPLATE, write_mite

REFUSES = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no rules') }}{% endif %}"
    "[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)
DROPS = (
    "{% for m in messages %}{% if m.role != 'system' %}[{{ m.content }}]{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)
LAST_ONLY = "{{ messages[-1].content }}{% if add_generation_prompt %}>{% endif %}"
NEVER_OPENS = "{% for m in messages %}{{ m.content }}{% endfor %}"
BLOWS_UP = "{{ messages[0].content * 1000000000 }}"


@pytest.fixture(scope="module")
def mite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mite(tmp_path_factory.mktemp("models") / "mite.gguf")


async def said(mite: Path, template: str) -> Lint:
    return await lint(mite, template, None)


def test_names_are_read_without_running_anything() -> None:
    names = read_names(
        "{% macro show(m) %}{{ m.content | trim }}{% endmacro %}"
        "{% for m in messages if m is defined %}{{ show(m) }}{% endfor %}"
        "{{ tools | tojson }}{{ strftime_now('%d') }}{{ enable_thinking }}{{ bos_token }}"
    )
    assert (names.problem, names.unknown) == ("", ())
    assert names.messages
    assert names.tools
    assert names.variables == ("enable_thinking",)


@pytest.mark.parametrize(
    ("template", "unknown"),
    [
        ("{{ fetch(messages) }}", ("fetch()",)),
        ("{{ messages | urlfetch }}", ("the filter `urlfetch`",)),
        ("{% if messages is tall %}{% endif %}", ("the test `tall`",)),
        ("{{ open('/etc/passwd') }}{{ a.b() }}{{ messages }}", ("open()",)),
    ],
)
def test_functions_that_the_box_does_not_have_are_named(
    template: str, unknown: tuple[str, ...]
) -> None:
    assert read_names(template).unknown == unknown


@pytest.mark.parametrize("template", ["{{ messages }", "{% for %}", "{% if a %}", "{{ 1 +"])
async def test_a_template_that_cannot_be_parsed_says_why(mite: Path, template: str) -> None:
    found = await said(mite, template)
    assert found.names.problem
    assert found.problems[0].startswith("It cannot be parsed: ")
    assert "model.chat_template" in found.problems[0]


async def test_unknown_functions_are_a_problem(mite: Path) -> None:
    (problem,) = (await said(mite, "{{ fetch(messages) }}")).problems
    assert problem.startswith("It uses what the box does not have: fetch().")


async def test_a_sound_template_has_no_problems(mite: Path) -> None:
    found = await lint(mite, None, TEMPLATE)
    assert (found.source, found.problems, found.system) == ("model", (), "kept")
    assert found.generation_prompt == "<assistant>"
    assert any("knows no tools" in note for note in found.notes)


async def test_without_any_template_chatml_is_used(mite: Path) -> None:
    found = await lint(mite, None, None)
    assert (found.source, found.problems) == ("fallback", ())
    assert found.generation_prompt == "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "system", "problem"),
    [
        (REFUSES, "refused", r"It refuses system messages.*: no rules"),
        (DROPS, "dropped", "It drops system messages"),
        (LAST_ONLY, "dropped", "It does not show earlier answers"),
        (NEVER_OPENS, "kept", "It adds no generation prompt"),
        (BLOWS_UP, "", "It cannot show a question: .*(memory|too long)"),
        ("Hello!", "", "It never mentions `messages`"),
    ],
)
async def test_what_a_template_does_to_a_chat_is_seen(
    mite: Path, template: str, system: str, problem: str
) -> None:
    found = await said(mite, template)
    assert found.system == system
    assert any(re.search(problem, line) for line in found.problems), found.problems


async def test_a_template_without_end_is_stopped(mite: Path) -> None:
    loop = "{% for i in range(100000) %}" * 3 + "{% endfor %}" * 3
    limits = PrepareLimits(template_s=0.2)
    (problem,) = (await lint(mite, loop + "{{ messages }}", None, limits)).problems
    assert problem.startswith("It cannot show a question: rendering the chat template took longer")
