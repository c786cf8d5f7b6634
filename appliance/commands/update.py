"""`steelyard update`: another version from a bundle, and the way back."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance.commands.bundle import key_option, keys_of, root_option
from appliance.commands.groups import DefaultGroup
from appliance.commands.progress import Working

if TYPE_CHECKING:
    from appliance.bundle.layout import Layout
    from appliance.bundle.record import Record
    from appliance.bundle.update import Updater

no_start_option = click.option(
    "--no-start", is_flag=True, help="Start nothing: the box does it at its next start."
)
PHASES = {
    "building": "begun; the slot in use was not touched",
    "switching": "cut off while switching",
    "trial": "in use, and on trial till the box is started",
    "returning": "going back to the old version",
    "done": "done",
    "returned": "went back to the old version",
    "stopped": "not done",
}
"""What `status` says of an update."""


@click.group("update", cls=DefaultGroup, default="install")
def update_group() -> None:
    """Update this box from a bundle, without a network.

    `steelyard update BUNDLE` installs it into the slot that is not in use, proves it there, backs
    up the state, switches over, and goes back by itself if the box does not become ready."""


@update_group.command("install")
@click.argument("bundle", type=click.Path(path_type=Path))
@key_option
@click.option("--allow-downgrade", is_flag=True, help="Also to an older version.")
@no_start_option
@click.option("--quiet", is_flag=True, help="No progress bar.")
@root_option
def update_install(
    bundle: Path,
    given: str | None,
    allow_downgrade: bool,
    no_start: bool,
    quiet: bool,
    root: Path,
) -> None:
    """Install BUNDLE and put it in use."""
    from appliance.bundle.folder import check_files, open_bundle
    from appliance.bundle.signing import verify

    updater = _updater(root, no_start)
    opened = open_bundle(bundle, keys_of(given, root), verify)
    with Working(quiet=quiet) as bar:
        check_files(opened, lambda done, total: bar.tell("verify", done, total))
        record = updater.update(
            opened,
            allow_downgrade=allow_downgrade,
            tell=lambda done, total: bar.tell("fill", done, total),
        )
    _done(record)


@update_group.command("rollback")
@click.option(
    "--with-backup",
    is_flag=True,
    help="Restore the state from before the update, if the older version needs it.",
)
@no_start_option
@root_option
def update_rollback(with_backup: bool, no_start: bool, root: Path) -> None:
    """Put the version in the other slot in use again."""
    _done(_updater(root, no_start).rollback(with_backup=with_backup))


@update_group.command("settle")
@no_start_option
@root_option
def update_settle(no_start: bool, root: Path) -> None:
    """End an update that was cut off, forwards or backwards. `update` and a reboot do it, too."""
    record = _updater(root, no_start).settle()
    click.echo("no update was made here" if record is None else _told(record))


@update_group.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@root_option
def update_status(as_json: bool, root: Path) -> None:
    """Show both slots and the last update."""
    from appliance.bundle import record as records
    from appliance.bundle.layout import Layout

    layout = Layout(root)
    record = records.read(layout.record)
    slots = _slots(layout)
    if as_json:
        last = asdict(record) if record is not None else None
        click.echo(json.dumps({"slots": slots, "update": last}))
        return
    if not any(slot["in_use"] for slot in slots):
        click.echo(f"nothing is installed in {layout.base}")
        return
    for slot in slots:
        mark = "*" if slot["in_use"] else " "
        click.echo(f"{mark} slot {slot['slot']}: {slot['version'] or 'empty'}")
    if record is not None:
        click.echo(_told(record))


def _slots(layout: "Layout") -> list[dict[str, Any]]:
    from appliance.bundle.layout import SLOTS

    rows = []
    for name in SLOTS:
        made = layout.installed(name)
        version = made.version if made is not None else ""
        rows.append({"slot": name, "version": version, "in_use": name == layout.in_use()})
    return rows


def _updater(root: Path, no_start: bool) -> "Updater":
    from appliance.bundle.layout import Layout
    from appliance.bundle.machine import RealMachine
    from appliance.bundle.unit import Unit
    from appliance.bundle.update import Updater

    layout = Layout(root.absolute())
    whole = root == Path("/") and not no_start
    unit = Unit.of_machine() if whole else None
    return Updater(layout, RealMachine(layout, unit), lambda text: click.echo(text, err=True))


def _done(record: "Record") -> None:
    click.echo(_told(record))
    if record.backup:
        click.echo(f"the state from before: {record.backup}")


def _told(record: "Record") -> str:
    why = f" ({record.why})" if record.why else ""
    return f"update from {record.old_version} to {record.new_version}: {PHASES[record.phase]}{why}"
