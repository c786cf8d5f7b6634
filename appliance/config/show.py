"""The configuration as text: effective TOML, and the reference page."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from appliance.config.load import sections, settings, variable
from appliance.config.model import Lora
from appliance.config.sections import Config
from appliance.config.setting import about
from appliance.config.values import LORAS, TEXTS, expected

INTRO = """\
# Configuration

<!-- Written by `steelyard config docs`; edit the sections in appliance/config instead. -->

Steelyard reads one TOML file: the one named by `--config`, else by `$STEELYARD_CONFIG`, else
`/etc/steelyard/steelyard.toml` if it is there. Without a file every setting has its default.
An environment variable `STEELYARD_<SECTION>_<KEY>` (such as `STEELYARD_SERVER_PORT`) wins over the
file, and an option of `steelyard serve` wins over both. A key that does not exist, a value of the
wrong type and a number out of bounds are errors; nothing is ignored.

`steelyard config check [FILE]` tests a file; `steelyard config show` prints what is in effect,
with the defaults commented out. Relative file names in the file start from its directory.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting, described."""

    key: str
    type: str
    default: str
    bounds: str
    doc: str


def describe() -> list[Entry]:
    """Every setting in the order of the sections."""
    return [_entry(key, hint, of) for key, (hint, of) in settings().items()]


def reference() -> str:
    """docs/configuration.md."""
    entries = describe()
    parts = [INTRO]
    for name, section in sections():
        parts.append(f"\n## [{name}]\n\n{section.__doc__}\n")
        parts += [_paragraph(entry) for entry in entries if entry.key.startswith(name + ".")]
    return "".join(parts)


def effective(config: Config) -> str:
    """TOML that gives `config` again; settings at their default are commented out."""
    keys = settings()
    lines: list[str] = []
    for name, section in sections():
        lines.append(f"[{name}]")
        standard, part = section(), getattr(config, name)
        for key in (key for key in keys if key.startswith(name + ".")):
            field = keys[key][1].name
            value = getattr(part, field)
            mark = "# " if value == getattr(standard, field) else ""
            lines.append(f"{mark}{field} = {toml(value)}")
        lines.append("")
    return "\n".join(lines)


def toml(value: object) -> str:
    """The value as TOML writes it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Lora):
        name = f", name = {toml(value.name)}" if value.name else ""
        return f"{{ path = {toml(value.path)}, scale = {toml(value.scale)}{name} }}"
    if isinstance(value, tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    assert isinstance(value, str | Path)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _entry(key: str, hint: Any, of: Any) -> Entry:
    setting = about(of)
    value = of.default_factory() if of.default is MISSING else of.default
    default = setting.shown_default or f"`{toml(value)}`"
    return Entry(key, _kind(hint), default, expected(hint, setting), setting.doc)


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        assert get_args(hint)
        return "text"
    names = {bool: "true/false", int: "whole number", float: "number", str: "text", Path: "text"}
    if hint in names:
        return names[hint]
    return {TEXTS: "list of texts", LORAS: "list of tables"}.get(hint, "table")


def _paragraph(entry: Entry) -> str:
    name = entry.key.partition(".")[2]
    return (
        f"\n### `{name}`\n\n{entry.doc}\n\n"
        f"Takes {entry.bounds}. Default: {entry.default}. Variable: `{variable(entry.key)}`.\n"
    )
