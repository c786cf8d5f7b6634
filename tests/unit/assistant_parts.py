"""A machine for the set-up assistant: a folder, and commands that only remember."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from images.layout import HERE
from tui.assistant import files
from tui.assistant.checks import Wrong
from tui.assistant.machine import Facts, Machine
from tui.assistant.steps import Answers, first_answers

SECRET = "sk-steelyard-as-long-as-keys-are-and-in-one-row-01234567"
"""As long as a real one."""
PACKAGED = "SmolLM2-135M-Instruct.Q4_1"


@dataclass
class Shelf:
    """What the commands find, and which of them were called."""

    ran: list[list[str]] = field(default_factory=list)
    told: list[str | None] = field(default_factory=list)
    fails: str = ""
    """Part of the command that fails."""
    keys: dict[str, str] = field(default_factory=lambda: {"admin": "admin"})
    models: tuple[str, ...] = (PACKAGED, "Qwen")
    blind: bool = False
    """The box can tell nothing."""

    def run(self, command: Sequence[str], told: str | None = None) -> str:
        words = [Path(command[0]).name, *command[1:]]
        if words[1:3] in (["keys", "list"], ["model", "list"]):
            return self._listed(words[1])
        self.ran.append(words)
        self.told.append(told)
        if self.fails and self.fails in " ".join(words):
            raise Wrong("command", self.fails, "it failed")
        if words[1:3] == ["keys", "create"]:
            self.keys[words[3]] = words[5]
            return f"{SECRET}\n"
        return ""

    def _listed(self, what: str) -> str:
        if self.blind:
            raise Wrong("command", "steelyard", "the ledger cannot be read")
        if what == "model":
            models = [{"name": name} for name in self.models]
            return json.dumps({"models": models, "selected": None})
        return json.dumps(
            [
                {"name": "old", "scopes": ["admin", "infer"], "state": "revoked"},
                *(
                    {"name": name, "scopes": [scope], "state": "valid"}
                    for name, scope in self.keys.items()
                ),
            ]
        )

    @property
    def lines(self) -> list[str]:
        return [" ".join(words) for words in self.ran]


def machine(root: Path, shelf: Shelf | None = None, *, interfaces: int = 2) -> Machine:
    """As a box is after its first boot."""
    config = root / files.CONFIG
    config.parent.mkdir(parents=True, exist_ok=True)
    if not config.exists():
        config.write_text((HERE / "rootfs/steelyard.toml").read_text())
        (root / "etc/shadow").write_text("root:*:20000:0:99999:7:::\n")
        for number in range(1, interfaces + 1):
            (root / f"sys/class/net/enp{number}s0/device").mkdir(parents=True)
            (root / f"sys/class/net/enp{number}s0/carrier").write_text(f"{number % 2}\n")
        (root / "sys/class/net/lo").mkdir(parents=True)
    return Machine(
        root,
        (shelf or Shelf()).run,
        lambda: datetime(2027, 1, 31, 14, 5, tzinfo=UTC),
        lambda: "steelyard",
    )


def answers(facts: Facts, **given: str) -> Answers:
    """Those that change nothing, and these: `net_how` stands for net.how."""
    return first_answers(facts) | {name.replace("_", ".", 1): text for name, text in given.items()}


FULL = {
    "net_how": "static", "net_address": "192.168.7.20/24", "net_gateway": "192.168.7.1",
    "net_dns": "192.168.7.1, 192.168.7.2", "time_how": "server", "time_server": "time.site",
    "login_first": "long enough", "login_again": "long enough", "serve_who": "0.0.0.0",
    "serve_names": "box.site 192.168.7.20", "serve_app": "webapp", "admin_how": "make",
    "admin_name": "alice", "board_how": "/dev/appliance-mcu",
}  # fmt: skip
"""Everything at once."""
