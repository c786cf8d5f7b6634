"""The chat screen with an answer that comes in."""

import json
from dataclasses import replace as changed
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.console_views import STATE, view
from tui.conversation import digest
from tui.screen import Stream
from tui.screens.chat import Chat
from tui.view import View

SETTINGS = {"sampling.temperature": "0.8", "limits.max_tokens_default": "0"}
TEXTS = st.text(st.characters(blacklist_categories=()), max_size=80)
NAMED = (
    *("enter", "escape", "up", "down", "left", "right", "home", "end", "backspace", "delete"),
    *("tab", "shift+tab", "ctrl+j", "ctrl+w", "ctrl+u", "ctrl+k", "ctrl+left", "ctrl+right"),
    *("pageup", "pagedown", "E", "X", "N", "c", "w", "g", "space", "f5"),
)
KEYS = st.one_of(st.characters(blacklist_categories=()), st.sampled_from(NAMED))


def seen(kind: str = "normal", **given: Any) -> View:
    return changed(view(kind, **given), state=replace(STATE, settings=SETTINGS))


def typed(screen: Chat, text: str) -> None:
    for sign in text:
        screen.press("ctrl+j" if sign == "\n" else sign, seen())


def sent(screen: Chat, text: str) -> Stream:
    """What a prompt becomes."""
    screen.press("enter", seen())
    typed(screen, text)
    effect = screen.press("enter", seen())
    assert isinstance(effect, Stream)
    return effect


def come(screen: Chat, **event: Any) -> None:
    screen.streamed(json.dumps(event), None)


def delta(screen: Chat, text: str, *ids: int) -> None:
    come(screen, id="chatcmpl-1", choices=[{"delta": {"content": text}, "token_ids": list(ids)}])


def answered(screen: Chat, text: str = "It weighs.") -> None:
    """A whole answer, as the box streams it."""
    prompt, answer = [11, 12, 13], [21, 22]
    come(
        screen, id="chatcmpl-1", choices=[{"delta": {"role": "assistant"}}], prompt_token_ids=prompt
    )
    delta(screen, text, *answer)
    timings = {"queue_ms": 80.0, "prompt_ms": 100.0, "predicted_ms": 50.0, "prompt_n": 2}
    end = {"X-Token-Diff-SHA256": digest(prompt, answer)}
    come(screen, choices=[{"delta": {}, "finish_reason": "stop"}], timings=timings, **end)
    details = {"cached_tokens": 1}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": details}
    come(screen, choices=[], usage=usage, **end)
    screen.streamed(None, None)
