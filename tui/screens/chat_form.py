"""How the chat screen asks: temperature, limit, budget, schema, tier, system; and their form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tui.cells import cells
from tui.field import Field
from tui.lines import Line, Span, fit, line
from tui.view import View

TIERS = ("auto", "priority", "default", "flex")
MODES = ("soft", "strict")
NAMES = ("temperature", "max_tokens", "budget", "tier", "system", "schema")
_LABEL = 14
_HOTTEST = 5.0
"""What the box takes at most."""


@dataclass(frozen=True, slots=True)
class Options:
    """What goes with every question; None: the box's own value."""

    temperature: float | None = None
    max_tokens: int | None = None
    budget: tuple[int, str] | None = None
    """Tokens at which the answer is to end, and how strictly."""
    tier: str = "auto"
    system: str = ""
    schema: Mapping[str, Any] | None = None

    def body(self) -> dict[str, Any]:
        """As members of a chat's body."""
        found: dict[str, Any] = {} if self.tier == "auto" else {"service_tier": self.tier}
        if self.temperature is not None:
            found["temperature"] = self.temperature
        if self.max_tokens is not None:
            found["max_tokens"] = self.max_tokens
        if self.budget is not None:
            found["budget"] = dict(zip(("tokens", "mode"), self.budget, strict=True))
        if self.schema is not None:
            shape = {"name": "console", "schema": self.schema, "strict": True}
            found["response_format"] = {"type": "json_schema", "json_schema": shape}
        return found

    @property
    def agreed(self) -> str:
        """The budget as it is typed; soft goes without saying."""
        if self.budget is None:
            return ""
        tokens, mode = self.budget
        return str(tokens) if mode == "soft" else f"{tokens} {mode}"

    def texts(self) -> dict[str, str]:
        """As the form shows them."""
        return {
            "temperature": "" if self.temperature is None else f"{self.temperature:g}",
            "max_tokens": "" if self.max_tokens is None else str(self.max_tokens),
            "budget": self.agreed,
            "tier": self.tier,
            "system": self.system,
            "schema": "" if self.schema is None else json.dumps(self.schema, ensure_ascii=False),
        }


class Invalid(Exception):
    """A field holds what it cannot take: its name, then the key of the word that says why."""


def read(texts: Mapping[str, str]) -> Options:
    """What the form says. Raises Invalid."""
    return Options(
        _temperature(texts["temperature"].strip()),
        _max_tokens(texts["max_tokens"].strip()),
        _budget(texts["budget"].lower().split()),
        _tier(texts["tier"].strip().lower()),
        texts["system"],
        _schema(texts["schema"].strip()),
    )


def _temperature(text: str) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        value = -1.0
    if value is not None and not 0 <= value <= _HOTTEST:
        raise Invalid("temperature", "chat.bad_temperature")
    return value


def _max_tokens(text: str) -> int | None:
    if text and not _counts(text):
        raise Invalid("max_tokens", "chat.bad_max_tokens")
    return int(text) if text else None


def _budget(words: list[str]) -> tuple[int, str] | None:
    """`200`, or `200 strict`."""
    if not words:
        return None
    tokens, mode = words[0], words[1] if len(words) == 2 else "soft"
    if len(words) > 2 or mode not in MODES or not _counts(tokens):
        raise Invalid("budget", "chat.bad_budget")
    return int(tokens), mode


def _counts(text: str) -> bool:
    """Whether it is a whole number above 0."""
    return text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0


def _tier(text: str) -> str:
    if text and text not in TIERS:
        raise Invalid("tier", "chat.bad_tier")
    return text or "auto"


def _schema(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        raise Invalid("schema", "chat.bad_json") from None
    if value is not None and not isinstance(value, dict):
        raise Invalid("schema", "chat.bad_schema")
    return value


@dataclass(slots=True)
class Form:
    """The fields under edit. Enter takes all of them, Esc none."""

    fields: dict[str, Field]
    at: int = 0
    problem: tuple[str, str] = ("", "")
    """Field and word key of what is wrong."""
    taken: Options | None = field(default=None)
    """What was entered, once Enter found nothing wrong."""

    @classmethod
    def of(cls, options: Options) -> "Form":
        sizes = {"system": 4_000, "schema": 20_000}
        texts = options.texts().items()
        return cls(
            {
                name: Field(text, many=name in sizes, most=sizes.get(name, 20))
                for name, text in texts
            }
        )

    @property
    def current(self) -> Field:
        return self.fields[NAMES[self.at]]

    def press(self, key: str) -> None:
        """A key for the form, Esc excepted."""
        if key == "enter":
            self._take()
        elif key in ("tab", "shift+tab"):
            self._go(1 if key == "tab" else -1)
        elif not self.current.press(key) and key in ("up", "down"):
            self._go(1 if key == "down" else -1)

    def _go(self, by: int) -> None:
        self.at = (self.at + by) % len(NAMES)

    def _take(self) -> None:
        try:
            self.taken = read({name: field.text for name, field in self.fields.items()})
        except Invalid as problem:
            name, why = problem.args
            self.at, self.problem = NAMES.index(name), (name, why)

    def draw(self, view: View) -> list[Line]:
        """Label, field and what it takes; the field with the cursor gets room for three rows."""
        rows: list[Line] = []
        for at, name in enumerate(NAMES):
            rows += self._field(view, name, on=at == self.at)
        return rows

    def _field(self, view: View, name: str, *, on: bool) -> list[Line]:
        words, field = view.words, self.fields[name]
        note = self._note(view, name)
        wide = name in ("system", "schema")
        room = view.width - _LABEL - 3
        width = room if wide else min(12, room)
        height = min(3, field.height(view.foreign, width)) if on and wide else 1
        lines = field.draw(view.foreign, width, height, focus=on)
        label = fit(line(f"{'>' if on else ' '}{words(f'chat.{name}')}"), _LABEL + 1)
        gap = line(" " * (_LABEL + 1))
        drawn = [(*(gap if row else label), *part) for row, part in enumerate(lines)]
        if not wide:
            return [(*drawn[0], Span(" "), note)]
        return [*drawn, (*gap, note)] if on and cells(note.text) else drawn

    def _note(self, view: View, name: str) -> Span:
        """What is wrong with the field, else what it takes."""
        if self.problem[0] == name:
            return Span(view.words(self.problem[1]), "bold")
        return Span(view.words(f"chat.{name}_takes"), "dim")
