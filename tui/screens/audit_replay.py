"""Asking for a replay, an answer's own tokens run through the engine again, and telling of it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tui.cells import clip
from tui.screen import Ask, Call, Show
from tui.view import View

_TITLE = 24


def replay_ask(id: str, choice: int, view: View) -> Ask:
    """The dialog for the replay of one answer."""
    words, name = view.words, view.foreign(id)
    call = Call(
        "POST",
        f"/admin/audit/{quote(id, safe='', errors='replace')}/replay",
        {"id": id, "choice": choice},
        done=words("audit.replay.done", id=name),
    )
    lines = (name, words("audit.replay.what"), words("audit.replay.cost"))
    return Ask(words("audit.replay.title", id=clip(name, _TITLE)), lines, call)


def replay_told(data: Any, view: View) -> Show | None:
    """What the box answered to it; None: the answer was to something else."""
    if not isinstance(data, Mapping) or "replay" not in data:
        return None
    words, report = view.words, data.get("report")
    lines = [view.foreign(str(data.get("said", "")))]
    name = ""
    if isinstance(report, Mapping):
        name = view.foreign(str(report.get("id", "")))
        counts = {key: report.get(key, 0) for key in ("differing", "positions")}
        key = f"audit.result.{report.get('result')}"
        lines += [words(key, **counts)] if words.has(key) else []
        facts = report.get("facts")
        lines += reasons_of(facts if isinstance(facts, Mapping) else {}, view)
    title = words("audit.replay.result", id=clip(name or view.foreign(str(data.get("id", ""))), 40))
    return Show(title, tuple(lines))


def reasons_of(facts: Mapping[str, Any], view: View) -> list[str]:
    """What may explain a difference, as the box says it."""
    reasons = facts.get("reasons") or ()
    if not isinstance(reasons, list | tuple) or not reasons:
        return []
    return [
        view.words("audit.detail.reasons"),
        *(f"- {view.foreign(str(reason))}" for reason in reasons),
    ]
