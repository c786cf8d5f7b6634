"""Which key of the keyboard is which of the console's keys: a file of the operator's own.

    [keys]
    X = "F8"        # what X does is on F8 now, and X does nothing
    "^P" = "F2"

Text fields and dialogs keep their keys: a dialog that acts takes `y`, wherever one sits.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE_BYTES = 65536
_SMALL = "0123456789/?[]acdfghijklmnopqrstuvwz"
_CAPITALS = "BDEGHNOPRTUX"
_NAMED = {
    "Tab": "tab", "Enter": "enter", "Esc": "escape", "Backspace": "backspace", "Up": "up",
    "Down": "down", "Left": "left", "Right": "right", "PgUp": "pageup", "PgDn": "pagedown",
    "Home": "home", "End": "end", "Space": "space",
    **{f"F{number}": f"f{number}" for number in range(1, 13)},
    **{f"^{letter}": f"ctrl+{letter.lower()}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
}  # fmt: skip
"""Keys as they are printed, and as Textual calls them."""
KNOWN = frozenset((*_SMALL, *_CAPITALS, "Tab", "Enter", "Esc", "Backspace", "F1", "^P"))
"""The console's own, as printed."""
_TAKEN = {
    "^C": "it always leaves", "^S": "terminals stop at it", "^Q": "terminals go on at it",
    "^Z": "shells take it", "^M": "it is Enter", "^I": "it is Tab", "^[": "it is Esc",
    "^H": "it is Backspace", "^J": "it ends a line",
}  # fmt: skip


class KeymapError(Exception):
    """The file cannot be used. Says where and why."""


@dataclass(frozen=True, slots=True)
class Keymap:
    """`moved`: the console's key as printed, and the one that stands for it."""

    moved: Mapping[str, str] = field(default_factory=dict)

    def meaning(self, typed: str) -> str:
        """The console's key for one that was typed, both in Textual's names; empty: none."""
        names = {name_of(to): name_of(own) for own, to in self.moved.items()}
        if typed in names:
            return names[typed]
        return "" if typed in {name_of(own) for own in self.moved} else typed

    def shown(self, hint: str) -> str:
        """A key as it is shown in row 24 and in help."""
        return self.moved.get(hint, hint)


def name_of(printed: str) -> str:
    """Textual's name of a key as it is printed."""
    return _NAMED.get(printed, printed)


def default_file(env: Mapping[str, str]) -> Path:
    """Where the operator's own lies."""
    base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "steelyard" / "console.toml"


def load(path: Path, *, must: bool = True) -> Keymap:
    """The keymap in a file; with `must` false a missing file is none. Raises KeymapError."""
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES + 1)
        if len(body) > FILE_BYTES:
            raise KeymapError(f"{path}: larger than {FILE_BYTES} bytes, so it is no keymap")
        tables = tomllib.loads(body.decode())
    except FileNotFoundError:
        if must:
            raise KeymapError(f"{path}: no such file") from None
        return Keymap()
    except OSError as error:
        raise KeymapError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from error
    except (ValueError, RecursionError) as error:
        raise KeymapError(f"{path}: not valid TOML: {error}") from error
    return _checked(path, tables)


def _checked(path: Path, tables: Mapping[str, object]) -> Keymap:
    for name in tables:
        if name != "keys":
            raise KeymapError(f"{path}: no section `{name}`; there is one, [keys]")
    keys = tables.get("keys", {})
    if not isinstance(keys, dict):
        raise KeymapError(f"{path}: `keys` is a section: write [keys], then one key a line")
    moved: dict[str, str] = {}
    for own, to in keys.items():
        if own not in KNOWN:
            raise KeymapError(f"{path}: the console has no key `{own}`: see `?` in it")
        if not isinstance(to, str) or not _is_key(to):
            raise KeymapError(
                f"{path}: {own}: {to!r} is no key: write one sign, a name such as Tab, F5 or PgUp, "
                "or ^A to ^Z"
            )
        if to in _TAKEN:
            raise KeymapError(f"{path}: {own}: {to} cannot be used: {_TAKEN[to]}")
        moved[own] = to
    for own, to in moved.items():
        others = [one for one, at in moved.items() if at == to and one != own]
        if others or (to in KNOWN and to not in moved):
            other = others[0] if others else to
            raise KeymapError(f"{path}: {own} and {other} would both be on {to}")
    return Keymap(moved)


def _is_key(text: str) -> bool:
    return text in _NAMED or re.fullmatch(r"[!-~]", text) is not None
