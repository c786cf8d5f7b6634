"""Screen 8: try a prompt against the box. The conversation lives here; the box keeps its ledger."""

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from tui.cells import clip
from tui.conversation import Exchange, inert, messages, row_of, transcript
from tui.field import Field
from tui.lines import Line, Span, blank, fill, fit, line, overlay, paint, width_of
from tui.screen import Copy, Effect, Hint, Query, Save, Screen, Stop, Stream, Tell
from tui.screens.chat_form import Form, Options
from tui.screens.chat_talk import Talk, lines_of
from tui.view import View

PATH = "/v1/chat/completions"
WHOAMI = Query("/admin/whoami", 30.0)
LONGEST = 20_000
"""Signs of a prompt; more than the context of the model holds."""
_ROWS = 6
"""Rows the prompt may take before it scrolls."""
_SCROLL = {"up": -1, "k": -1, "down": 1, "j": 1}


class Chat(Screen):
    number: ClassVar[int] = 8
    name: ClassVar[str] = "chat"

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.field = Field(many=True, most=LONGEST)
        self.options = Options()
        self.form: Form | None = None
        self._writing = False
        self._open = False
        """A stream was begun and has not ended."""
        self._talk = Talk()
        self._top: int | None = None
        """First row of the conversation that is shown; None: the end is."""
        self._room, self._last = 10, 0
        """Rows of the conversation that fit; the first of them when its end is in sight."""
        self._key: tuple[str, frozenset[str]] | None = None
        """Name and scopes of the console's key, once known."""

    @property
    def typing(self) -> bool:
        return self._writing or self.form is not None

    # -- drawing -----------------------------------------------------------------------------------

    def body(self, view: View) -> list[Line]:
        foot = self._foot(view)
        self._room = max(0, view.body_height - len(foot))
        rows = self._said(view)
        seen, note = self._window(rows)
        if note and foot:
            foot[0] = _at_right(foot[0], note, view.width)
        lines = fill([*seen, *foot], view.width, view.body_height)
        return [paint(row, "dim") for row in lines] if view.stale else lines

    def _said(self, view: View) -> list[Line]:
        """The conversation so far, or what to do first."""
        if not self.exchanges:
            return [*lines_of(view.words("chat.empty"), view.width), blank(view.width)]
        return self._talk.draw(self.exchanges, view)

    def _window(self, rows: list[Line]) -> tuple[list[Line], str]:
        """The rows that fit, and where they are when not all do."""
        last = max(0, len(rows) - self._room)
        top = last if self._top is None else min(self._top, last)
        self._last = last
        note = f"{min(len(rows), top + self._room)}/{len(rows)}" if last else ""
        return rows[top : top + self._room], note

    def _foot(self, view: View) -> list[Line]:
        """Options and prompt, or the form, and what stands in the way."""
        if self.form is not None:
            return [line(Span(view.words("chat.form"), "bold")), *self.form.draw(view)]
        width = view.width - 1
        height = max(1, min(_ROWS, view.body_height // 3, self.field.height(view.foreign, width)))
        prompt = self.field.draw(view.foreign, width, height, focus=self._writing)
        mark = ">" if self._writing else " "
        rows = [(Span(" " if at else mark), *part) for at, part in enumerate(prompt)]
        if not self.field.text and not self._writing:
            rows = [line(Span(f" {view.words('chat.begin')}", "dim"))]
        return [self._settings(view), *rows, *self._hindrance(view)]

    def _settings(self, view: View) -> Line:
        """What the next question goes with."""
        words, options = view.words, self.options
        text = words(
            "chat.options",
            temp=_number(options.temperature, view, "sampling.temperature"),
            most=_number(options.max_tokens, view, "limits.max_tokens_default"),
            budget=options.agreed or "-",
            schema=words("chat.yes") if options.schema is not None else "-",
            tier=options.tier,
            system=words("chat.yes") if options.system.strip() else "-",
        )
        return line(Span(f" {text}", "dim"))

    def _hindrance(self, view: View) -> list[Line]:
        """Why a question may be refused, before it is."""
        words = view.words
        if self.field.full:
            return lines_of(words("chat.full", LONGEST), view.width)
        if self._key is None or "infer" in self._key[1]:
            return []
        name, scopes = self._key
        has = ", ".join(sorted(scopes)) or "-"
        text = words("chat.no_scope", view.foreign(name), view.foreign(has))
        return [*lines_of(text, view.width), *lines_of(words("chat.make_key"), view.width)]

    def hints(self, view: View) -> list[Hint]:
        words = view.words
        if self.form is not None:
            found = _FORM_HINTS
        elif self._writing:
            found = _TYPE_HINTS
        else:
            found = [hint for hint in _HINTS if hint[0] != "X" or self._running]
        return [(key, words(f"chat.hint_{word}")) for key, word in found]

    @property
    def _running(self) -> bool:
        return bool(self.exchanges) and self.exchanges[-1].running

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str, view: View) -> Effect | None:
        if self.form is not None:
            self._edit(self.form, key)
            return None
        if self._writing:
            return self._type(key, view)
        if key == "enter":
            self._writing = True
        elif key in _SCROLL or key in ("pageup", "pagedown", "home", "g", "end"):
            self._scroll(key)
        else:
            return self._act(key, view)
        return None

    def _edit(self, form: Form, key: str) -> None:
        if key == "escape":
            self.form = None
            return
        form.press(key)
        if form.taken is not None:
            self.options, self.form = form.taken, None

    def _type(self, key: str, view: View) -> Effect | None:
        if key == "enter":
            return self._send(view)
        if key == "escape":
            self._writing = False
        elif not self.field.press(key):
            self._scroll(key)
        return None

    def _act(self, key: str, view: View) -> Effect | None:
        if key == "E":
            self.form = Form.of(self.options)
        elif key == "X":
            return self._stop(view)
        elif key == "N":
            return self._new(view)
        elif key == "c":
            last = self.exchanges[-1].text if self.exchanges else ""
            return Copy(inert(last)) if last else Tell(view.words("chat.nothing"))
        elif key == "w":
            return self._save(view)
        return None

    def _scroll(self, key: str) -> None:
        step = {**_SCROLL, "pageup": 1 - self._room, "pagedown": self._room - 1}
        at = self._last if self._top is None else min(self._top, self._last)
        at = {"home": 0, "g": 0, "end": self._last}.get(key, at + step.get(key, 0))
        self._top = None if at >= self._last else max(0, at)

    def paste(self, text: str, view: View) -> None:
        if self.form is not None:
            self.form.current.insert(text)
        elif self._writing:
            self.field.insert(text)

    # -- asking ------------------------------------------------------------------------------------

    def _send(self, view: View) -> Effect:
        words, prompt = view.words, self.field.text
        if not prompt.strip():
            return Tell(words("chat.blank"))
        if self._open:
            return Tell(words("chat.busy" if self._running else "chat.closing"))
        if not view.acts:
            return Tell(words("chat.read_only" if view.read_only else "chat.no_link"))
        said = messages(self.exchanges, self.options.system, prompt)
        self.exchanges.append(Exchange(prompt))
        self.field.set("")
        self._writing, self._open, self._top = False, True, None
        asked = {"messages": said, **_STREAMED, **self.options.body()}
        if view.live is not None and view.live.forecast_state != "none":
            asked["return_forecast"] = True
        return Stream(PATH, asked)

    def _stop(self, view: View) -> Effect:
        if not self._running:
            return Tell(view.words("chat.not_running"))
        self.exchanges[-1].stop()
        return Stop()

    def _new(self, view: View) -> Effect | None:
        if self._open:
            return Tell(view.words("chat.busy" if self._running else "chat.closing"))
        self.exchanges, self._top, self._talk = [], None, Talk()
        return None

    def _save(self, view: View) -> Effect:
        if not self.exchanges:
            return Tell(view.words("chat.nothing"))
        words = view.words
        return Save("chat.txt", transcript(self.exchanges, words("chat.you"), words("chat.box")))

    # -- what comes --------------------------------------------------------------------------------

    def streamed(self, data: str | None, error: str | None) -> None:
        if not self._open:
            return
        exchange = self.exchanges[-1]
        if data is not None:
            if exchange.running:
                exchange.take(data)
            return
        self._open = False
        exchange.end(error)
        if exchange.phase == "refused" and not self.field.text:
            self.field.set(exchange.prompt)

    def wants(self, view: View) -> tuple[Query, ...]:
        row = self._row_wanted()
        return (WHOAMI,) if row is None else (WHOAMI, row)

    def _row_wanted(self) -> Query | None:
        """Of the newest answer, once it is written and its row in the ledger is not known."""
        last = self.exchanges[-1] if self.exchanges else None
        if last is None or last.running or not last.id or last.row is not None:
            return None
        return Query(f"/admin/requests/{quote(last.id, safe='', errors='replace')}", 1.0)

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        if query == WHOAMI:
            self._key = _key(data) if error is None else None
        elif error is None and query == self._row_wanted():
            self.exchanges[-1].row = row_of(data)


_TYPE_HINTS = [("Enter", "send"), ("^J", "newline"), ("Esc", "leave")]
_FORM_HINTS = [("Enter", "take"), ("Tab", "next"), ("^J", "newline"), ("Esc", "leave")]
_HINTS = [
    ("Enter", "type"),
    ("X", "stop"),
    ("E", "edit"),
    ("N", "new"),
    ("c", "copy"),
    ("w", "write"),
]
_STREAMED = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
    "return_progress": True,
}


def _key(data: Any) -> tuple[str, frozenset[str]] | None:
    """Name and scopes from GET /admin/whoami."""
    if not isinstance(data, Mapping) or not isinstance(data.get("scopes"), list):
        return None
    return str(data.get("key_name", "")), frozenset(map(str, data["scopes"]))


def _number(value: float | None, view: View, setting: str) -> str:
    """The operator's value, else the box's."""
    if value is not None:
        return f"{value:g}"
    found = view.state.settings.get(setting) if view.state is not None else None
    none = not found or (found == "0" and setting.startswith("limits."))
    return "-" if none else clip(view.foreign(found or ""), 8)


def _at_right(row: Line, note: str, width: int) -> Line:
    tag = line(Span(f" {note}", "dim"))
    return overlay(fit(row, width), tag, max(0, width - width_of(tag)))
