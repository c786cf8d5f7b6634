"""The first install of a machine, from a bundle that was checked. Standard library only.

Cut off at any point it is simply run again: `current` is made last, and without it nothing is
installed.
"""

from pathlib import Path

from appliance.bundle import durable, placing
from appliance.bundle.errors import BundleError
from appliance.bundle.filling import python_version, room_needed
from appliance.bundle.fitting import check_machine
from appliance.bundle.folder import Opened, Say, Tell, silent
from appliance.bundle.layout import Layout
from appliance.bundle.machine import Machine
from appliance.bundle.record import reached

SLOT = "a"


def install(
    layout: Layout,
    machine: Machine,
    opened: Opened,
    *,
    appliance: bool = False,
    prove: bool = True,
    say: Say = lambda _: None,
    tell: Tell = silent,
) -> None:
    """Fills the first slot and puts it in use; starts nothing. With `appliance` the machine is made
    into nothing but a box; without `prove` no token is decoded, for trees of other machines. Raises
    BundleError."""
    if layout.in_use() is not None:
        raise BundleError(
            f"Steelyard is installed in {layout.base} already: `steelyard update` brings it to "
            "another version"
        )
    check_machine(opened.manifest)
    try:
        with durable.readable_by_all():
            _fill(layout, machine, opened, say, tell)
            _trust(layout, opened)
            folder = layout.slot(SLOT) / placing.FOLDER
            placing.place(folder, layout.root, appliance=appliance, enable=True)
        reached("placed")
        machine.bring(SLOT, opened, say)
        if prove:
            say("proves it: configuration, one decode")
            machine.prove(SLOT)
        machine.place(SLOT)
        layout.command.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        durable.replace_link(layout.command, "/opt/steelyard/current/venv/bin/steelyard")
        layout.switch(SLOT)
        reached("installed")
    except PermissionError as error:
        raise BundleError(f"{error.filename} cannot be written: run it as root") from None
    except OSError as error:
        raise BundleError(f"{error.filename or layout.base}: {error.strerror or error}") from error


def _fill(layout: Layout, machine: Machine, opened: Opened, say: Say, tell: Tell) -> None:
    layout.base.mkdir(mode=0o755, parents=True, exist_ok=True)
    if layout.digest(SLOT) == opened.digest:
        return
    needed, room = room_needed(opened.manifest.wheels_for(python_version())), machine.room()
    if room < needed:
        raise BundleError(
            f"{layout.base} has {room >> 20} MiB free, and {needed >> 20} MiB are needed: free "
            "some space and run it again"
        )
    say(f"installs version {opened.manifest.version} into {layout.slot(SLOT)}")
    machine.fill(SLOT, opened, tell)


def _trust(layout: Layout, opened: Opened) -> None:
    """Later bundles must be signed with the same key, unless the operator adds others."""
    if layout.trusted.exists():
        return
    layout.trusted.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    durable.replace_text(layout.trusted, opened.key.text())


def next_steps(layout: Layout, *, started: bool) -> str:
    """What an operator does now."""
    if layout.root != Path("/"):
        return f"installed into {layout.root}"
    begun = "" if started else "  systemctl start steelyard      # starts the box\n"
    return (
        "installed. Next:\n"
        f"{begun}"
        "  steelyard status               # how it stands\n"
        "  steelyard doctor               # what to look after\n"
        "  steelyard keys create NAME --scope infer   # a key for an application\n"
        "The first admin key is shown on the machine's console, once; for another one:\n"
        "  steelyard keys create NAME --scope admin"
    )
