"""The machine as it is before anything is changed, and the commands that are called on it."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tui.assistant import files
from tui.assistant.checks import Static, Wrong

STEELYARD = "opt/steelyard/current/venv/bin/steelyard"
"""The command, relative to the root, as all paths here."""
DONE = "var/lib/steelyard-setup/done"
BOARD = "/dev/appliance-mcu"
_UDEV = "run/udev/data"
PATIENCE_S = 600.0
"""For one command: a box that starts loads its model before it says so."""

MOST_SAID = 300
"""Signs of what a failed command says that are told."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface with hardware behind it. `up`: it has a link; None: not known."""

    name: str
    up: bool | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A key that is good now."""

    name: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found. Texts are as they were read, not made clean for a terminal."""

    host: str = ""
    interfaces: tuple[Interface, ...] = ()
    interface: str = ""
    """The one that the assistant set up, if it did."""
    static: Static | None = None
    """Its address; None: by DHCP."""
    time_server: str = ""
    clock: str = ""
    """UTC, to the minute."""
    password: bool = False
    """root may log in with one."""
    config: str = ""
    """Text of the configuration."""
    serves: str = ""
    """server.host."""
    names: tuple[str, ...] = ()
    """tls.names."""
    board: str = ""
    """board.device."""
    board_seen: bool = False
    keys: tuple[Key, ...] | None = None
    """None: they could not be read."""
    models: tuple[str, ...] = ()
    model: str = ""
    """The one that is served from the next start on."""
    model_fixed: bool = False
    """model.path in the configuration names it."""
    finished: bool = False
    chinese: bool = True
    """The terminal can draw Chinese signs."""

    @property
    def open(self) -> bool:
        """Whether other machines are served."""
        return self.serves not in ("", "127.0.0.1", "::1", "localhost")

    def has_key(self, scope: str) -> bool:
        return any(scope in key.scopes for key in self.keys or ())


Run = Callable[..., str]


def run(command: Sequence[str], told: str | None = None) -> str:
    """What the command says on its standard output. Raises Wrong."""
    try:
        done = subprocess.run(
            command, input=told, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL if told is None else None,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise Wrong("command", command[0], str(error)) from None
    if done.returncode:
        said = " ".join(done.stderr.split())[-MOST_SAID:].strip(" .")
        raise Wrong("command", _short(command), said or str(done.returncode))
    return done.stdout


def _short(command: Sequence[str]) -> str:
    return " ".join((Path(command[0]).name, *command[1:]))


@dataclass
class Machine:
    """Everything outside of the assistant; a test puts a folder and its own commands here."""

    root: Path = Path("/")
    run: Run = run
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    host: Callable[[], str] = field(default=lambda: os.uname().nodename)

    def read(self, name: str) -> str:
        return files.read(self.root / name)

    def look(self, *, chinese: bool = True) -> Facts:
        """Whatever cannot be found out is left out; it raises nothing."""
        config = self.read(files.CONFIG)
        name, static = files.network_of(self.read(files.NETWORK))
        fixed = files.value_of(config, "model", "path")
        models, model = self._models()
        return Facts(
            host=self.host(),
            interfaces=interfaces(self.root / "sys/class/net"),
            interface=name,
            static=static,
            time_server=files.time_server_of(self.read(files.TIME)),
            clock=f"{self.now():%Y-%m-%d %H:%M}",
            password=has_password(self.read("etc/shadow")),
            config=config,
            serves=_text(files.value_of(config, "server", "host")),
            names=tuple(map(str, files.value_of(config, "tls", "names") or ())),
            board=_text(files.value_of(config, "board", "device")),
            board_seen=self._board_seen(),
            keys=self._keys(),
            models=models,
            model=_text(fixed) or model,
            model_fixed=bool(fixed),
            finished=(self.root / DONE).exists(),
            chinese=chinese,
        )

    def _keys(self) -> tuple[Key, ...] | None:
        listed = self._json("keys", "list", "--json")
        if not isinstance(listed, list):
            return None
        return tuple(
            Key(str(key["name"]), tuple(key["scopes"])) for key in listed if key["state"] == "valid"
        )

    def _models(self) -> tuple[tuple[str, ...], str]:
        listed = self._json("model", "list", "--json")
        if not isinstance(listed, dict) or not listed.get("models"):
            return (), ""
        names = tuple(str(model["name"]) for model in listed["models"])
        return names, str(listed.get("selected") or names[0])

    def steelyard(self, *words: str) -> list[str]:
        """A command of the box."""
        return [str(self.root / STEELYARD), *words]

    def _json(self, *words: str) -> Any:
        try:
            return json.loads(self.run(self.steelyard(*words)))
        except (Wrong, ValueError):
            return None

    def _board_seen(self) -> bool:
        """By its name, or by what udev keeps of it: the set-up unit sees no devices."""
        if (self.root / BOARD.lstrip("/")).exists():
            return True
        known = (self.root / _UDEV).glob("c*")
        return any(f"\nS:{Path(BOARD).name}\n" in f"\n{files.read(one)}\n" for one in known)


def interfaces(folder: Path) -> tuple[Interface, ...]:
    """Those with hardware behind them, by name."""
    if not folder.is_dir():
        return ()
    found = sorted(one for one in folder.iterdir() if (one / "device").exists())
    links = {"1": True, "0": False}
    return tuple(
        Interface(one.name, links.get(files.read(one / "carrier").strip())) for one in found
    )


def has_password(shadow: str) -> bool:
    """Whether root may log in with one."""
    fields = next((row.split(":") for row in shadow.splitlines() if row[:5] == "root:"), [])
    return len(fields) > 1 and fields[1][:1] not in ("", "!", "*")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
