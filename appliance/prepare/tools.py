"""Finds tool calls in an answer while it is being written. Pure: text in, events out.

Rules:
1. Any split of the same text gives the same events, once neighbouring ones are joined.
2. Nothing that a model writes raises. What is no call comes out as content, tags and all.
3. Arguments are forwarded as the raw text of their JSON value, as soon as the call's name is known
   (`{"name": …, "arguments": {…}}` in this order, as our grammars have it). A call in any other
   order is held until it is complete.
4. What was sent cannot be taken back: if arguments break off, the call stays as it was sent and the
   rest is content.
5. White space next to a call belongs to nobody.
"""

import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from appliance.prepare.messages import ToolsFormat


@dataclass(frozen=True, slots=True)
class ContentDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    index: int
    text: str


ToolEvent: TypeAlias = ContentDelta | ToolCallStart | ToolCallArguments

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
# Bounded, so that no text makes matching slow; longer heads are parsed once they are complete.
_HEAD = re.compile(
    r'\{\s{0,64}"name"\s{0,64}:\s{0,64}("(?:[^"\\]|\\.){1,256}")\s{0,64},\s{0,64}'
    r'"arguments"\s{0,64}:\s{0,64}(?=\{)'
)
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r"[^\s0-9A-Za-z+\-.,:]")
_SPACE = re.compile(r"\s*")


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class ToolParser:
    """Reads one answer. Not reusable."""

    def __init__(self, format: ToolsFormat, new_id: Callable[[], str] = new_call_id) -> None:
        self._new_id = new_id
        self._buffer = ""
        self._events: list[ToolEvent] = []
        self._calls = 0
        self._object: _Object | None = None
        self._lead = ""
        """Text before a call that is content if the call turns out to be none."""
        self._state: Callable[[bool], bool] = (
            self._content if format == "hermes" else self._json_start
        )
        self._after = self._hermes_after if format == "hermes" else self._json_after
        self._broken = self._content if format == "hermes" else self._plain

    def feed(self, text: str) -> list[ToolEvent]:
        """What `text` adds."""
        self._buffer += text
        return self._advance(ended=False)

    def finish(self) -> list[ToolEvent]:
        """What was held back, after the answer's last text."""
        return self._advance(ended=True)

    @property
    def calls(self) -> int:
        """Calls begun so far."""
        return self._calls

    def _advance(self, ended: bool) -> list[ToolEvent]:
        while self._state(ended):
            pass
        events, self._events = self._events, []
        return events

    def _emit_content(self, text: str) -> None:
        if text:
            self._events.append(ContentDelta(text))

    # States: each handles what it can of the buffer and returns whether to go on.

    def _plain(self, ended: bool) -> bool:
        """Content to the end."""
        self._emit_content(self._buffer)
        self._buffer = ""
        return False

    def _content(self, ended: bool) -> bool:
        """Content up to the next tag."""
        at = self._buffer.find(_OPEN)
        if at < 0:
            keep = 0 if ended else _held(self._buffer)
            end = len(self._buffer) - keep
            self._emit_content(self._buffer[:end])
            self._buffer = self._buffer[end:]
            return False
        self._emit_content(self._buffer[:at].rstrip())
        self._lead = self._buffer[len(self._buffer[:at].rstrip()) : at + len(_OPEN)]
        self._buffer = self._buffer[at + len(_OPEN) :]
        self._state = self._hermes_start
        return True

    def _hermes_start(self, ended: bool) -> bool:
        """Between the tag and the call's brace."""
        if not self._skip_space(ended):
            return False
        if self._buffer[:1] != "{":
            return self._no_call()
        return self._begin()

    def _hermes_after(self, ended: bool) -> bool:
        """Behind a call: its closing tag, and space, are dropped."""
        rest = self._buffer.lstrip()
        if _CLOSE.startswith(rest) and rest != _CLOSE:
            self._buffer = "" if ended else rest
            return False
        self._buffer = rest.removeprefix(_CLOSE)
        self._state = self._after_close
        return True

    def _after_close(self, ended: bool) -> bool:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return False
        self._state = self._content
        return True

    def _json_start(self, ended: bool) -> bool:
        """The whole answer should be one call or a list of them."""
        if not self._skip_space(ended):
            return False
        if self._buffer[:1] == "[" and "[" not in self._lead:
            self._lead += "["
            self._buffer = self._buffer[1:]
            return True
        return self._begin() if self._buffer[:1] == "{" else self._no_call()

    def _json_after(self, ended: bool) -> bool:
        """Behind a call: a comma and the next, or the end."""
        self._lead = ""
        rest = self._buffer.lstrip()
        if not rest:
            self._buffer = ""
            return False
        self._lead, self._buffer = rest[0], rest[1:]
        if self._lead == ",":
            self._state = self._json_next
            return True
        if self._lead == "]":
            self._state = self._json_end
            return True
        return self._no_call()

    def _json_next(self, ended: bool) -> bool:
        if ended and not self._buffer.strip():
            return False
        if not self._skip_space(ended):
            return False
        return self._begin() if self._buffer[:1] == "{" else self._no_call()

    def _json_end(self, ended: bool) -> bool:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return False
        self._state = self._plain
        return True

    def _skip_space(self, ended: bool) -> bool:
        """Moves space into the lead; whether something follows it."""
        match = _SPACE.match(self._buffer)
        assert match is not None
        self._lead += match.group()
        self._buffer = self._buffer[match.end() :]
        if not self._buffer and ended:
            self._no_call()
        return bool(self._buffer)

    def _no_call(self) -> bool:
        """What looked like a call is content; so is, in JSON, all that follows."""
        self._emit_content(self._lead)
        self._lead = ""
        self._state = self._broken
        return True

    def _begin(self) -> bool:
        self._object = _Object()
        self._state = self._call
        return True

    def _call(self, ended: bool) -> bool:
        """Inside a call's object."""
        call = self._object
        assert call is not None
        call.read(self._buffer)
        self._buffer = ""
        if call.name is not None:
            self._forward(call)
        if call.is_complete or call.is_broken:
            self._close(call)
            return True
        if ended and call.name is None:
            self._buffer = self._lead + call.text
            self._state = self._plain
            return True
        return False

    def _forward(self, call: "_Object") -> None:
        if not call.is_sent:
            self._start(call.name or "")
            call.is_sent = True
        text = call.take_arguments()
        if text:
            self._events.append(ToolCallArguments(self._calls - 1, text))

    def _start(self, name: str) -> None:
        self._events.append(ToolCallStart(self._calls, self._new_id(), name))
        self._calls += 1

    def _close(self, call: "_Object") -> None:
        """Leaves a finished object: for what follows it, or as content if it was no call."""
        self._buffer = call.rest
        self._object = None
        self._state = self._after
        if call.is_sent:
            if call.is_broken:
                self._lead = ""
                self._state = self._broken
            return
        whole = None if call.is_broken else _whole(call.text)
        if whole is None:
            self._emit_content(self._lead + call.text)
            self._state = self._broken
        else:
            self._start(whole[0])
            self._events.append(ToolCallArguments(self._calls - 1, whole[1]))
        self._lead = ""


class _Object:
    """One JSON object, read as it comes: where its arguments are, and where it ends."""

    def __init__(self) -> None:
        self.text = ""
        self.rest = ""
        """What was read beyond the object's end or break."""
        self.name: str | None = None
        """Known once the head is complete."""
        self.is_complete = False
        self.is_broken = False
        self.is_sent = False
        self._at = 0
        self._stack: list[str] = []
        self._in_string = False
        self._from = 0
        self._to: int | None = None
        """Where arguments not yet taken begin, and where arguments end."""

    def read(self, text: str) -> None:
        self.text += text
        if self.name is None:
            self._read_head()
        while not (self.is_complete or self.is_broken) and self._step():
            pass
        if self.is_complete or self.is_broken:
            self.rest, self.text = self.text[self._at :], self.text[: self._at]

    def take_arguments(self) -> str:
        """Argument text that arrived since the last call."""
        end = len(self.text) if self._to is None else self._to
        start, self._from = self._from, max(self._from, end)
        return self.text[start:end]

    def _read_head(self) -> None:
        match = _HEAD.match(self.text)
        if match is None:
            return
        try:
            self.name = json.loads(match.group(1))
        except ValueError:
            return
        self._from = match.end()

    def _step(self) -> bool:
        """Moves behind the next character that matters; False when there is none yet."""
        match = (_IN_STRING if self._in_string else _OUTSIDE).search(self.text, self._at)
        if match is None:
            self._at = len(self.text)
            return False
        if self._in_string:
            return self._step_in_string(match.start())
        self._at = match.start()
        self._bracket(match.group())
        return True

    def _step_in_string(self, at: int) -> bool:
        if self.text[at] == '"':
            self._in_string = False
            self._at = at + 1
            return True
        if at + 1 == len(self.text):  # an escape whose second half is still to come
            self._at = at
            return False
        self._at = at + 2
        return True

    def _bracket(self, character: str) -> None:
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._stack.append("}" if character == "{" else "]")
        elif self._stack and character == self._stack[-1]:
            self._stack.pop()
            self._closed()
        else:
            self.is_broken = True
            if self._to is None:
                self._to = self._at
            return
        self._at += 1

    def _closed(self) -> None:
        if not self._stack:
            self.is_complete = True
        elif len(self._stack) == 1 and self.name is not None and self._to is None:
            self._to = self._at + 1


def _held(text: str) -> int:
    """How much of the end may belong to a tag that is still to come."""
    partial = next(
        (size for size in range(len(_OPEN) - 1, 0, -1) if text.endswith(_OPEN[:size])), 0
    )
    body = text[: len(text) - partial]
    return partial + len(body) - len(body.rstrip())


def _whole(text: str) -> tuple[str, str] | None:
    """Name and arguments of a complete call in whatever order; None if it is no call."""
    try:
        call = json.loads(text)
        arguments = call.get("arguments", call.get("parameters", {}))
        if isinstance(arguments, str):
            found = arguments if isinstance(json.loads(arguments), dict) else None
        else:
            found = json.dumps(arguments, ensure_ascii=False)
            found = found if isinstance(arguments, dict) else None
    except (ValueError, RecursionError):
        return None
    name = call.get("name")
    if found is None or not isinstance(name, str) or not name:
        return None
    return name, found
