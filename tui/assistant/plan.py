"""What the answers come to, and doing it.

Nothing is written while questions are asked. The files are first written into one plan, whose
renaming is the instant from which they count: a power cut before it leaves all of them as they
were, one after it has the next boot place the rest (`resume`, before the network comes up). Keys
and the password are never in it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tui.assistant import checks, files
from tui.assistant.checks import Wrong
from tui.assistant.machine import DONE, Facts, Machine
from tui.assistant.steps import LOOPBACK, first_wrong

PENDING = "var/lib/steelyard-setup/plan.json"
_CANDIDATE = "etc/steelyard/.steelyard.toml.candidate"
_NETWORKD = ("systemctl", "restart", "systemd-networkd.service")
_TIMESYNCD = ("systemctl", "restart", "systemd-timesyncd.service")
_BOX = "steelyard.service"

Told = tuple[str, tuple[str, ...]]
"""The key of a word, and what it tells of."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be made."""

    name: str
    scope: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is to be done; empty: nothing is."""

    clock: tuple[tuple[str, ...], ...] = ()
    """Commands that set the clock by hand."""
    password: str = ""
    keys: tuple[NewKey, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by target, relative to the root."""
    commands: tuple[tuple[str, ...], ...] = ()
    """What makes the files count."""
    model: str = ""
    """To be proved and chosen, while the box is stopped."""
    changes: tuple[Told, ...] = ()
    """What a person is shown of it."""

    @property
    def restarts(self) -> bool:
        return files.CONFIG in self.files and not self.model


@dataclass(slots=True)
class Outcome:
    """What was done, each new key (its name, scope and secret), and what failed, if something
    did: nothing after that was begun."""

    done: list[Told] = field(default_factory=list)
    secrets: list[tuple[str, str, str]] = field(default_factory=list)
    failed: Wrong | None = None


def planned(given: Mapping[str, str], facts: Facts) -> Plan:
    """From answers to acts. Raises Wrong: a step was answered wrong, or the configuration is of a
    shape that only a person should edit."""
    wrong = first_wrong(given, facts)
    if wrong is not None:
        raise wrong[1]
    texts: dict[str, str] = {}
    commands: list[tuple[str, ...]] = []
    clock: tuple[tuple[str, ...], ...] = ()
    changes: list[Told] = []
    if given["net.how"] != "keep":
        chosen = None
        if given["net.how"] == "static":
            typed = (given["net.address"], given["net.gateway"], given["net.dns"])
            chosen = checks.static(*typed)
        name = given["net.interface"]
        texts[files.NETWORK] = files.network_file(name, chosen)
        commands.append(_NETWORKD)
        changes.append(("assist.do.network", (name, chosen.address if chosen else "DHCP")))
    if given["time.how"] == "server":
        server = checks.time_server(given["time.server"])
        texts[files.TIME] = files.time_file(server)
        commands += [_TIMESYNCD, ("timedatectl", "set-ntp", "true")]
        changes.append(("assist.do.time", (server,)))
    elif given["time.how"] == "hand":
        at = checks.moment(given["time.now"])
        clock = (("timedatectl", "set-ntp", "false"), ("timedatectl", "set-time", f"{at} UTC"))
        changes.append(("assist.do.clock", (f"{at} UTC",)))
    password = checks.password(given["login.first"], given["login.again"])
    changes += [("assist.do.password", ())] if password else []
    keys = _keys(given)
    changes += [("assist.do.key", (key.name, key.scope)) for key in keys]
    config, settings = _config(given, facts)
    if settings:
        texts[files.CONFIG] = config
        changes += settings
    model = given["model.name"] if given["model.name"] != facts.model else ""
    changes += [("assist.do.model", (model,))] if model else []
    return Plan(clock, password, keys, texts, tuple(commands), model, tuple(changes))


def _keys(given: Mapping[str, str]) -> tuple[NewKey, ...]:
    made = []
    if given["serve.who"] != LOOPBACK and given["serve.app"].strip():
        made.append(NewKey(given["serve.app"].strip(), "infer"))
    if given["admin.how"] == "make":
        made.append(NewKey(given["admin.name"].strip(), "admin"))
    return tuple(made)


def _config(given: Mapping[str, str], facts: Facts) -> tuple[str, list[Told]]:
    """Its new text, and what is new in it. Raises Wrong."""
    text = facts.config
    told: list[Told] = []
    wanted: list[tuple[str, str, str | list[str], object]] = [
        ("server", "host", given["serve.who"], facts.serves),
        ("board", "device", given["board.how"], facts.board),
    ]
    if given["serve.who"] != LOOPBACK:
        names = list(checks.names(given["serve.names"]))
        wanted.append(("tls", "names", names, list(facts.names)))
    for section, key, value, now in wanted:
        if value != now and not (not value and not now) and not (value == LOOPBACK and not now):
            text = files.edited(text, section, key, value)
            shown = value if isinstance(value, str) else " ".join(value)
            told.append(("assist.do.setting", (f"{section}.{key}", shown or '""')))
    return text, told


# -- doing it --------------------------------------------------------------------------------------

Tell = Callable[[Told], None]
"""Hears of each act as it begins."""


def apply(plan: Plan, machine: Machine, tell: Tell = lambda told: None) -> Outcome:
    """Everything, keys before the box opens to others. Raises nothing: see Outcome."""
    out = Outcome()

    def act(told: Told, work: Callable[[], object]) -> None:
        tell(told)
        work()
        out.done.append(told)

    try:
        if files.CONFIG in plan.files:
            act(("assist.do.check", ()), lambda: _proved(plan.files[files.CONFIG], machine))
        if plan.clock:
            at = plan.clock[-1][-1]
            act(("assist.do.clock", (at,)), lambda: _all(machine, plan.clock))
        if plan.password:
            told = f"root:{plan.password}\n"
            act(("assist.do.password", ()), lambda: machine.run(["chpasswd"], told))
        for key in plan.keys:
            made = ("assist.do.key", (key.name, key.scope))
            act(made, partial(_make, key, machine, out))
        if plan.files:
            act(("assist.do.files", ()), lambda: _committed(plan, machine))
        for command in plan.commands:
            shown = (" ".join(command),)
            act(("assist.do.command", shown), partial(machine.run, command))
        if plan.restarts:
            act(("assist.do.restart", ()), lambda: machine.run(["systemctl", "restart", _BOX]))
        if plan.model:
            act(("assist.do.model", (plan.model,)), lambda: _chosen(plan.model, machine))
    except Wrong as wrong:
        out.failed = wrong
    return out


def _all(machine: Machine, commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        machine.run(command)


def _proved(config: str, machine: Machine) -> None:
    """The new configuration as the box itself reads it, beside the old one."""
    candidate = machine.root / _CANDIDATE
    files.write_whole(candidate, config)
    try:
        machine.run(machine.steelyard("config", "check", str(candidate)))
    finally:
        candidate.unlink(missing_ok=True)


def _make(key: NewKey, machine: Machine, out: Outcome) -> None:
    command = machine.steelyard("keys", "create", key.name, "--scope", key.scope)
    out.secrets.append((key.name, key.scope, machine.run(command).strip()))


def _chosen(name: str, machine: Machine) -> None:
    """Proved in a unit of its own, as it needs the memory of a whole engine. The box starts again
    whatever came of it."""
    machine.run(["systemctl", "stop", _BOX])
    try:
        proved = ("systemd-run", "--quiet", "--wait", "--pipe", "--collect")
        machine.run([*proved, *machine.steelyard("model", "use", name)])
    finally:
        machine.run(["systemctl", "start", _BOX])


def _committed(plan: Plan, machine: Machine) -> None:
    """The instant from which the files count is the renaming of the plan."""
    whole = {"files": dict(plan.files)}
    files.write_whole(machine.root / PENDING, json.dumps(whole), 0o600)
    _place(plan.files, machine.root)


def _place(texts: Mapping[str, str], root: Path) -> None:
    for target, text in texts.items():
        files.write_whole(root / target, text, keep=True)
    pending = root / PENDING
    try:
        pending.unlink()
        files.settle(pending.parent)
    except OSError as error:
        raise Wrong("write", str(pending), error.strerror or str(error)) from None


def resume(root: Path) -> bool:
    """Ends what a power cut broke off; whether there was anything. Raises Wrong."""
    pending = root / PENDING
    if not pending.exists():
        return False
    try:
        texts = json.loads(pending.read_text("utf-8"))["files"]
        if not texts or any(name not in files.TARGETS for name in texts):
            raise ValueError
        if any(not isinstance(text, str) for text in texts.values()):
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise Wrong("plan", str(pending)) from None
    _place(texts, root)
    return True


def finish(root: Path) -> None:
    """From now on the console asks for a login. Raises Wrong."""
    files.write_whole(root / DONE, "")
