"""The files that a set-up writes: their text, what stands in them now, and how they are placed so
that a power cut leaves the old one or the new one."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tui.assistant.checks import Static, Wrong, interface, static

NETWORK = "etc/systemd/network/70-steelyard.network"
TIME = "etc/systemd/timesyncd.conf.d/70-steelyard.conf"
CONFIG = "etc/steelyard/steelyard.toml"
TARGETS = (NETWORK, TIME, CONFIG)
"""All of them, relative to the root of the machine."""
_MADE = "# Written by the set-up assistant."


def network_file(name: str, chosen: Static | None) -> str:
    """For systemd-networkd; None: by DHCP. Raises Wrong."""
    lines = [_MADE, "[Match]", f"Name={interface(name)}", "", "[Network]"]
    if chosen is None:
        lines += ["DHCP=yes", "LinkLocalAddressing=yes"]
    else:
        lines += ["DHCP=no", f"Address={chosen.address}"]
        lines += [f"Gateway={chosen.gateway}"] if chosen.gateway else []
        lines += [f"DNS={one}" for one in chosen.dns]
    return "\n".join(lines) + "\n"


def network_of(text: str) -> tuple[str, Static | None]:
    """Interface and static address in such a file; empty and None where it has none."""
    found: dict[str, list[str]] = {}
    for row in text.splitlines():
        name, sign, value = row.partition("=")
        if sign:
            found.setdefault(name, []).append(value)
    try:
        address, gateway = found.get("Address", [""])[0], found.get("Gateway", [""])[0]
        chosen = static(address, gateway, " ".join(found.get("DNS", [])))
    except Wrong:
        chosen = None
    return found.get("Name", [""])[0], chosen


def time_file(server: str) -> str:
    """For systemd-timesyncd; the server was checked."""
    return f"{_MADE}\n[Time]\nNTP={server}\nFallbackNTP=\n"


def time_server_of(text: str) -> str:
    """The server in such a file; empty: none."""
    found = re.search(r"(?m)^NTP=(.*)$", text)
    return found[1].strip() if found else ""


def edited(text: str, section: str, key: str, value: str | list[str]) -> str:
    """The configuration with one value changed, everything else as a person left it. Raises Wrong
    where that cannot be done without doubt: then a person edits it."""
    wanted = _parsed(text)
    table = wanted.setdefault(section, {})
    if not isinstance(table, dict):
        raise Wrong("config_shape", section, key)
    if table.get(key) == value:
        return text
    table[key] = value
    changed = _replaced(text, section, f"{key} = {json.dumps(value, ensure_ascii=False)}", key)
    if _parsed(changed) != wanted:
        raise Wrong("config_shape", section, key)
    return changed


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise Wrong("config_toml", str(error)) from None


def _replaced(text: str, section: str, row: str, key: str) -> str:
    lines = text.splitlines()
    heads = [at for at, line in enumerate(lines) if line.lstrip().startswith("[")]
    start = next((at for at in heads if re.fullmatch(rf"\s*\[{section}\]\s*(#.*)?", lines[at])), -1)
    if start < 0:
        return "\n".join([*lines, "", f"[{section}]", row]) + "\n"
    end = next((at for at in heads if at > start), len(lines))
    there = [at for at in range(start, end) if re.match(rf"\s*{key}\s*=", lines[at])]
    if there:
        lines[there[0]] = row
    else:
        lines.insert(start + 1, row)
    return "\n".join(lines) + "\n"


def value_of(text: str, section: str, key: str) -> Any:
    """What the configuration says; None: nothing, or it cannot be read."""
    try:
        table = _parsed(text).get(section, {})
    except Wrong:
        return None
    return table.get(key) if isinstance(table, Mapping) else None


def read(path: Path) -> str:
    """The text of a file; empty where there is none that can be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def write_whole(path: Path, text: str, mode: int = 0o644, *, keep: bool = False) -> None:
    """All of it or nothing, whatever happens to the power. `keep`: a file that was there keeps its
    owner and its mode. Raises Wrong."""
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.stat() if keep and path.exists() else None
        with open(new, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            if old is not None:
                os.fchown(out.fileno(), old.st_uid, old.st_gid)
            os.fchmod(out.fileno(), mode if old is None else old.st_mode & 0o7777)
            os.fsync(out.fileno())
        new.replace(path)
        settle(path.parent)
    except OSError as error:
        raise Wrong("write", str(path), error.strerror or str(error)) from None


def settle(folder: Path) -> None:
    """Names that were changed in the folder stay so without power. Raises OSError."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(at)
    finally:
        os.close(at)
