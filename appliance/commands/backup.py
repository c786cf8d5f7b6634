"""`steelyard backup` and `steelyard restore`: the box's state in one file, and back."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance.commands.chained import chain, operator
from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import FAILED
from appliance.commands.groups import DefaultGroup
from appliance.commands.passphrases import passphrase as read_passphrase
from appliance.commands.passphrases import passphrase_option
from appliance.commands.progress import Working
from appliance.commands.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from appliance.backup import Listed, Restored, Taken, Verified
    from appliance.config import Config

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress bar.")


@click.group("backup", cls=DefaultGroup, default="take")
def backup_group() -> None:
    """Back up ledger, keys, certificates, configuration and forecasters into one file.

    `steelyard backup TARGET` takes one; the box may be running."""


@backup_group.command("take")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--with-models", is_flag=True, help="The stored models' files too, not only names.")
@click.option(
    "--encrypt", is_flag=True, help="Ask for a passphrase that will be needed to restore."
)
@passphrase_option
@click.option(
    "--keep",
    type=click.IntRange(1, 10_000),
    help="Leave this many backups of this box in the directory TARGET, and delete older ones.",
)
@json_option
@quiet_option
@config_option
def backup_take(
    target: Path,
    with_models: bool,
    encrypt: bool,
    passphrase_file: Path | None,
    keep: int | None,
    as_json: bool,
    quiet: bool,
    file: Path | None,
) -> int:
    """Write a backup to the file TARGET, or under its own name into the directory TARGET.

    It holds secrets: only its owner can read it. Exit code 1: it was written, but the ledger in it
    is not sound."""
    from appliance.backup import take
    from appliance.config import find_file

    config = load_config(file)
    if keep and not target.is_dir():
        raise click.UsageError(f"--keep needs a directory, and {target} is none")
    passphrase = _passphrase(passphrase_file, ask=encrypt, new=True)
    with Working(quiet=quiet) as working:
        taken = take(
            config.server.state_dir,
            target,
            config_file=find_file(file, os.environ),
            with_models=with_models,
            passphrase=passphrase,
            keep=keep,
            tell=working.tell,
        )
    for warning in (*taken.warnings, *_noted(config, taken, encrypted=passphrase is not None)):
        click.echo(f"Warning: {warning}", err=True)
    if as_json:
        _print(taken)
    else:
        click.echo(
            f"{taken.path}\n{taken.files} files, {taken.bytes / 1e6:.1f} MB, entries up to "
            f"{taken.head_seq}, head {taken.head}"
        )
        for path in taken.removed:
            click.echo(f"removed {path}")
    return FAILED if taken.warnings else 0


def _noted(config: "Config", taken: "Taken", *, encrypted: bool) -> tuple[str, ...]:
    """A copy of the box's secrets left it: the ledger says so, if it can be written."""
    from appliance.ledger.errors import LedgerError

    detail = {"head_seq": taken.head_seq, "head": taken.head, "encrypted": encrypted}
    try:
        chain(config, "backup", taken.path.name, detail)
    except LedgerError as error:
        return (f"the backup is not noted in the ledger: {error}",)
    return ()


@backup_group.command("list")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@json_option
def backup_list(folder: Path, as_json: bool) -> None:
    """Show the backups in DIR. It reads only how they begin; `verify` reads all of one."""
    from appliance.backup import backups

    found = backups(folder)
    if as_json:
        _print([_row(one) for one in found])
        return
    for one in found:
        click.echo(_line(one))
    if not found:
        click.echo(f"No backups in {folder}.", err=True)


def _row(one: "Listed") -> dict[str, Any]:
    told = one.manifest
    return {
        "path": str(one.path),
        "bytes": one.bytes,
        "encrypted": told is None and not one.problem,
        "problem": one.problem,
        "host": told.host if told else "",
        "version": told.version if told else "",
        "made_wall_ns": told.made_wall_ns if told else 0,
        "head_seq": told.ledger.head_seq if told else 0,
        "with_models": bool(told and told.with_models),
    }


def _line(one: "Listed") -> str:
    from appliance.ledger.verify.verdict import moment

    words = [one.path.name, f"{one.bytes / 1e6:.1f} MB"]
    if one.manifest is not None:
        told = one.manifest
        words += [moment(told.made_wall_ns), told.host, f"Steelyard {told.version}"]
        words += [f"entries up to {told.ledger.head_seq}"]
        words += ["with models"] if told.with_models else []
    else:
        words += [one.problem or "encrypted"]
    return plain("  ".join(words))


@backup_group.command("verify")
@click.argument(
    "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE"
)
@passphrase_option
@json_option
@quiet_option
def backup_verify(path: Path, passphrase_file: Path | None, as_json: bool, quiet: bool) -> int:
    """Read all of FILE, and check the chain of the ledger in it. Exit code 1: do not rely on it."""
    from appliance.backup import is_sealed, verify

    passphrase = _passphrase(passphrase_file, ask=is_sealed(path))
    with Working(quiet=quiet) as working:
        found = verify(path, passphrase=passphrase, tell=working.tell)
    if as_json:
        _print(found)
    else:
        click.echo(plain(_verdict(found)))
    return FAILED if found.problems else 0


def _verdict(found: "Verified") -> str:
    from appliance.ledger.verify.verdict import moment

    lines = [
        f"{found.path}: of {found.host or 'a box'}, {moment(found.made_wall_ns)}, Steelyard "
        f"{found.version}{', encrypted' if found.encrypted else ''}",
        f"{found.files} files, {found.bytes / 1e6:.1f} MB, entries up to {found.head_seq}, "
        f"head {found.head}",
    ]
    if found.models:
        kept = "with their files" if found.with_models else "their names only"
        lines.append(f"models: {', '.join(found.models)} ({kept})")
    return "\n".join([*lines, *(found.problems or ["every byte is as it was written"])])


@click.command("restore")
@click.argument(
    "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE"
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory to restore into, in place of server.state_dir and the configuration.",
)
@click.option("--force", is_flag=True, help="Also where there is a ledger: it is kept aside.")
@click.option("--accept-faults", is_flag=True, help="Also a ledger whose chain is not sound.")
@passphrase_option
@quiet_option
@config_option
def restore_command(
    path: Path,
    into: Path | None,
    force: bool,
    accept_faults: bool,
    passphrase_file: Path | None,
    quiet: bool,
    file: Path | None,
) -> None:
    """Make the box what the backup FILE holds. All of it is verified first; a power cut leaves the
    old state or the new one. The box must not be running."""
    from appliance.backup import is_sealed, restore
    from appliance.config import find_file
    from appliance.config.load import SYSTEM_FILE

    state_dir, config_file = into, None
    if state_dir is None:
        state_dir = load_config(file).server.state_dir
        config_file = find_file(file, os.environ) or SYSTEM_FILE
    passphrase = _passphrase(passphrase_file, ask=is_sealed(path))
    with Working(quiet=quiet) as working:
        done = restore(
            path,
            state_dir,
            force=force,
            accept_faults=accept_faults,
            config_file=config_file,
            passphrase=passphrase,
            operator=operator(),
            tell=working.tell,
        )
    click.echo(plain(_told(path, done)))
    for warning in done.warnings:
        click.echo(f"Warning: {warning}", err=True)


def _told(path: Path, done: "Restored") -> str:
    lines = [f"{path} is restored into {done.into}, entries up to {done.head_seq}"]
    if done.replaced is not None:
        lines.append(f"what was there before is kept in {done.replaced}")
    if done.configuration is not None:
        lines.append(f"its configuration is {done.configuration}")
    if done.missing_models:
        names = ", ".join(done.missing_models)
        lines.append(f"models to add again (`steelyard model add FILE`): {names}")
    lines.append(
        "keys that were revoked after the backup work again, and those made after it do not: see"
        " `steelyard keys list`"
    )
    return "\n".join(lines)


def _passphrase(file: Path | None, *, ask: bool, new: bool = False) -> bytes | None:
    return read_passphrase(file, new=new) if ask or file is not None else None


def _print(value: object) -> None:
    import msgspec

    encode: Callable[[object], bytes] = msgspec.json.Encoder(enc_hook=str).encode
    click.echo(encode(value).decode())
