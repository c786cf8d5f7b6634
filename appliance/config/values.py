"""One value: from TOML or the environment to its field's type, within its field's bounds."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from appliance.config.model import Lora
from appliance.config.setting import Setting, about

TEXTS = tuple[str, ...]
LORAS = tuple[Lora, ...]


class BadValue(ValueError):
    """The value does not fit its field; the text says why, without naming the key."""


def plain(number: float) -> str:
    """A bound as people write it: no exponent, no `.0`."""
    return str(int(number)) if float(number).is_integer() else str(number)


def expected(hint: Any, about: Setting) -> str:
    """What the field takes, in words."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(hint))
    if hint is bool:
        return "true or false"
    if hint in (int, float):
        kind = "a whole number" if hint is int else "a number"
        low, high = about.bounds
        return f"{kind} from {plain(low)} to {plain(high)}"
    if hint in (str, Path):
        return about.form or "a file name"
    assert about.high is not None, "every list and table has a bound"
    if hint == LORAS:
        return (
            f"at most {plain(about.high)} tables with `path` and `scale`, and `name` where wanted"
        )
    kind = "a list" if hint == TEXTS else "a table"
    return f"{kind} of at most {plain(about.high)} {about.form}"


def parse_text(text: str, hint: Any) -> object:
    """What an environment variable says, as TOML would have given it. Lists may be written
    `one,two`."""
    if hint in (str, Path) or get_origin(hint) is Literal:
        return text
    if hint == TEXTS and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        found = tomllib.loads(f"value = {text.strip()}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if found.keys() == {"value"} else text


@dataclass(frozen=True, slots=True)
class Slot:
    """A place a value goes to: the field's type and bounds, and where relative paths start."""

    hint: Any
    about: Setting
    base: Path

    def read(self, raw: object) -> object:
        """`raw` as the field's type. Raises BadValue."""
        if get_origin(self.hint) is Literal:
            return raw if raw in get_args(self.hint) else self._refuse(raw)
        if self.hint is bool:
            return raw if isinstance(raw, bool) else self._refuse(raw)
        if self.hint in (int, float):
            return self._number(raw)
        if self.hint is str:
            return self._string(raw)
        if self.hint is Path:
            return Path(self._text(raw))
        if self.hint == TEXTS:
            return tuple(self._text(item) for item in self._list(raw))
        if self.hint == LORAS:
            return tuple(self._lora(item) for item in self._list(raw))
        return self._table(raw)

    def _refuse(self, raw: object) -> NoReturn:
        raise BadValue(f"{_shown(raw)} does not fit; it takes {expected(self.hint, self.about)}")

    def _number(self, raw: object) -> int | float:
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            self._refuse(raw)
        if isinstance(raw, float) and (self.hint is int or not math.isfinite(raw)):
            self._refuse(raw)
        low, high = self.about.bounds
        if not low <= raw <= high:
            wants = expected(self.hint, self.about)
            raise BadValue(f"{_shown(raw)} is out of bounds; it takes {wants}")
        return raw if self.hint is int else float(raw)

    def _string(self, raw: object) -> str:
        """A text field: empty stands for its default."""
        text = "" if raw == "" else self._text(raw)
        most = self.about.high
        if most is not None and len(text) > most:
            raise BadValue(f"a text of {len(text)} characters; at most {plain(most)} are allowed")
        return text

    def _text(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw:
            self._refuse(raw)
        if "\0" in raw or any("\ud800" <= letter <= "\udfff" for letter in raw):
            raise BadValue(f"{_shown(raw)} holds a character that no text may have")
        if self.about.pattern and not re.fullmatch(self.about.pattern, raw):
            self._refuse(raw)
        return self._absolute(raw) if self.about.path else raw

    def _absolute(self, name: str) -> str:
        try:
            return str((self.base / Path(name).expanduser()).absolute())
        except RuntimeError as error:
            raise BadValue(f"{name!r}: {error}") from error

    def _list(self, raw: object) -> list[object]:
        if not isinstance(raw, list):
            self._refuse(raw)
        self._count(raw)
        return raw

    def _table(self, raw: object) -> Mapping[str, str]:
        if not isinstance(raw, dict):
            self._refuse(raw)
        self._count(raw)
        return MappingProxyType({self._text(k): self._text(v) for k, v in raw.items()})

    def _count(self, raw: list[object] | dict[object, object]) -> None:
        assert self.about.high is not None
        if len(raw) > self.about.high:
            raise BadValue(f"{len(raw)} entries; at most {plain(self.about.high)} are allowed")

    def _lora(self, raw: object) -> Lora:
        hints = get_type_hints(Lora)
        if not isinstance(raw, dict) or not raw.get("path") or raw.keys() - hints.keys():
            self._refuse(raw)
        read: dict[str, Any] = {
            of.name: Slot(hints[of.name], about(of), self.base).read(raw[of.name])
            for of in fields(Lora)
            if of.name in raw
        }
        return Lora(**read)


def _shown(raw: object) -> str:
    text = str(raw).lower() if isinstance(raw, bool) else _printed(raw)
    return text if len(text) <= 60 else text[:57] + "..."


def _printed(raw: object) -> str:
    try:
        return ascii(raw)
    except ValueError:
        return "an enormous number"
