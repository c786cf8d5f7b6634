"""Every visible word, in English and Simplified Chinese. Each screen has its own catalogue in a
module `words_<name>.py` with two dicts, EN and ZH, of the same keys. Units, ids and keys of the
keyboard are not translated. `{rows:row/rows}` counts: `1 row`, `2 rows`."""

import pkgutil
import re
import string
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal

import tui


class _Counted(string.Formatter):
    """Knows `{rows:row/rows}`: `1 row`, `2 rows`, `? rows`."""

    def format_field(self, value: Any, spec: str) -> Any:
        one, slash, many = spec.partition("/")
        if not slash:
            return super().format_field(value, spec)
        return f"{value} {one if str(value) == '1' else many}"


_COUNTS = re.compile(r"\{\w*:[^}]*/")

Lang = Literal["en", "zh"]
LANGS: tuple[Lang, ...] = ("en", "zh")


class Words:
    """`words("overview.output")`: the word of that key in one language."""

    def __init__(self, lang: Lang = "en") -> None:
        self.lang: Lang = lang
        self._texts = catalogue(lang)

    def __call__(self, key: str, *args: object, **named: object) -> str:
        """The text with its `{}` filled in. A key nobody wrote shows as itself."""
        text = self._texts.get(key, key)
        if not args and not named:
            return text
        try:
            if _COUNTS.search(text):
                return _Counted().vformat(text, args, named)
            return text.format(*args, **named)
        except (IndexError, KeyError, ValueError):
            return text

    def has(self, key: str) -> bool:
        return key in self._texts

    def or_else(self, key: str, fallback: str) -> str:
        """The word of the key, or a name as the box gave it (made clean by the caller)."""
        return self._texts.get(key, fallback)


@lru_cache
def catalogue(lang: Lang) -> Mapping[str, str]:
    """All texts of one language."""
    texts: dict[str, str] = {}
    for module in sorted(part.name for part in pkgutil.iter_modules(tui.__path__)):
        if module.startswith("words_"):
            texts |= getattr(import_module(f"tui.{module}"), lang.upper())
    return texts


def language(environ: Mapping[str, str]) -> Lang:
    """What the terminal's locale asks for."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environ.get(name):
            return "zh" if environ[name].lower().startswith("zh") else "en"
    return "en"
