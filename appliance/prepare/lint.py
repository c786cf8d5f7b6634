"""Is a model's chat template one that the box can serve well?

What it says is read here without running it; what it does is seen in a prepare process, as a
request would see it.
"""

from collections.abc import Collection
from pathlib import Path

import jinja2
import jinja2.meta
import jinja2.nodes
import msgspec

from appliance.errors import ApiError
from appliance.prepare.chatml import CHATML
from appliance.prepare.client import PrepareError, Preparer
from appliance.prepare.messages import ChatJob, PrepareLimits
from appliance.prepare.template import RESERVED, environment

_USER, _SYSTEM, _ASSISTANT = "the user's words", "the operator's rule", "the answer before"
LIMITS = PrepareLimits(template_s=10.0, prepare_s=60.0)
"""More than a request gets: a machine that is busy now is not the template's fault."""


class Names(msgspec.Struct, frozen=True):
    """What a template refers to, as far as it can be read."""

    problem: str = ""
    """Why it cannot be parsed."""
    messages: bool = False
    tools: bool = False
    variables: tuple[str, ...] = ()
    """Further ones, which a client may give as `chat_template_kwargs`."""
    unknown: tuple[str, ...] = ()
    """Functions, filters and tests that the box does not have."""


class Lint(msgspec.Struct, frozen=True):
    """What is to be said of a template."""

    source: str
    """model, configuration, or fallback: the model brings none and ChatML is used."""
    names: Names
    problems: tuple[str, ...]
    """What will go wrong, each a sentence."""
    notes: tuple[str, ...]
    """What is good to know."""
    system: str = ""
    """kept, refused, dropped; empty: not known."""
    generation_prompt: str = ""
    """What opens the answer."""


def read_names(source: str) -> Names:
    """Parse a template without running it."""
    box = environment()
    try:
        tree = box.parse(source)
        unknown = _missing(tree, jinja2.nodes.Filter, "filter", box.filters)
        unknown |= _missing(tree, jinja2.nodes.Test, "test", box.tests)
        # It refuses a template with such a name as a whole.
        named = set() if unknown else jinja2.meta.find_undeclared_variables(tree)
    except (jinja2.TemplateError, RecursionError) as error:
        return Names(problem=str(error) or type(error).__name__)
    foreign = named - set(box.globals) - RESERVED
    called = {
        call.node.name
        for call in tree.find_all(jinja2.nodes.Call)
        if isinstance(call.node, jinja2.nodes.Name)
    }
    unknown |= {f"{name}()" for name in called & foreign}
    return Names(
        messages="messages" in named or bool(unknown),
        tools="tools" in named,
        variables=tuple(sorted(foreign - called)),
        unknown=tuple(sorted(unknown)),
    )


def _missing(
    tree: jinja2.nodes.Template,
    kind: type[jinja2.nodes.Filter] | type[jinja2.nodes.Test],
    word: str,
    known: Collection[str],
) -> set[str]:
    return {f"the {word} `{node.name}`" for node in tree.find_all(kind) if node.name not in known}


async def lint(
    model: Path, template: str | None, own: str | None, limits: PrepareLimits = LIMITS
) -> Lint:
    """Of what the box would use: `template`, the operator's, or `own`, the model's. Runs it in a
    process of its own, which is gone when this returns.
    """
    chosen = template or own or CHATML
    source = "configuration" if template else "model" if own else "fallback"
    names = read_names(chosen)
    problems, notes = _said(names, source), _noted(names)
    if names.problem or names.unknown:
        return Lint(source, names, tuple(problems), tuple(notes))
    preparer = Preparer(str(model), limits, chosen)
    try:
        await preparer.start()
        return await _rendered(preparer, Lint(source, names, tuple(problems), tuple(notes)))
    except PrepareError as error:
        return Lint(source, names, (*problems, f"It cannot be used: {error}."), tuple(notes))
    finally:
        await preparer.stop()


def _said(names: Names, source: str) -> list[str]:
    if names.problem:
        return [f"It cannot be parsed: {names.problem}. Set model.chat_template to one that can."]
    problems = []
    if names.unknown:
        problems.append(
            f"It uses what the box does not have: {', '.join(names.unknown)}. Set "
            "model.chat_template to one without."
        )
    if not names.messages:
        problems.append("It never mentions `messages`, so it is not a template for chats.")
    return problems


def _noted(names: Names) -> list[str]:
    notes = []
    if names.variables:
        notes.append(
            f"It reads {', '.join(names.variables)}: clients may give these as "
            "`chat_template_kwargs`."
        )
    if not names.tools and not names.problem:
        notes.append("It knows no tools: the box describes them in the system message.")
    return notes


async def _rendered(preparer: Preparer, lint: Lint) -> Lint:
    problems, notes = list(lint.problems), list(lint.notes)
    user = {"role": "user", "content": _USER}
    plain = await _render(preparer, [user], opened=False)
    if _USER not in plain.text:
        what = f"It cannot show a question: {plain.why}." if plain.why else "It drops questions."
        return msgspec.structs.replace(lint, problems=(*problems, what))
    opened = await _render(preparer, [user], opened=True)
    prompt = opened.text.removeprefix(plain.text) if opened.text.startswith(plain.text) else ""
    if not opened.why and opened.text == plain.text:
        problems.append(
            "It adds no generation prompt: the model may go on writing the user's part."
        )
    turns = [user, {"role": "assistant", "content": _ASSISTANT}, user]
    talk = await _render(preparer, turns, opened=True)
    if _ASSISTANT not in talk.text:
        problems.append(f"It does not show earlier answers{_because(talk)}.")
    told = await _render(preparer, [{"role": "system", "content": _SYSTEM}, user], opened=True)
    system = "kept" if _SYSTEM in told.text else "refused" if told.why else "dropped"
    if system != "kept":
        what = {"refused": "refuses", "dropped": "drops"}[system]
        problems.append(f"It {what} system messages, so apps lose their rules{_because(told)}.")
    return msgspec.structs.replace(
        lint,
        problems=tuple(problems),
        notes=tuple(notes),
        system=system,
        generation_prompt=prompt,
    )


class _Shown(msgspec.Struct, frozen=True):
    text: str = ""
    why: str = ""
    """Why there is none."""


async def _render(preparer: Preparer, messages: list[dict[str, str]], *, opened: bool) -> _Shown:
    job = ChatJob(messages=list(messages), add_generation_prompt=opened)
    try:
        return _Shown(text=await preparer.render(job))
    except ApiError as error:
        return _Shown(why=error.message)


def _because(shown: _Shown) -> str:
    return f" ({shown.why})" if shown.why else ""
