"""`steelyard audit`: verify the ledger, seal it, carry it out of the box, see who did what."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from appliance.commands.chained import operator
from appliance.commands.configured import config_option, load_config
from appliance.commands.terminal import one_line

if TYPE_CHECKING:
    from sqlite_utils import Database

    from appliance.config import Config
    from appliance.ledger.keysign import Signer

T = TypeVar("T")

UNREADABLE = 2
_DETAIL_CHARS = 60


@click.group("audit")
def audit_group() -> None:
    """Prove the ledger whole, seal it, export it, and see what operators did."""


@audit_group.command("verify")
@click.argument("path", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--fast", is_flag=True, help="Leave out token digests and older signatures.")
@click.option(
    "--against",
    type=click.Path(exists=True, path_type=Path),
    help="An earlier bundle, its seals.json or MANIFEST.json, or an older copy of the ledger: "
    "finds a history that was rewritten whole.",
)
@click.option(
    "--public-key",
    "keys",
    multiple=True,
    help="Who must have signed: 64 hex digits or a file; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@config_option
def audit_verify(
    path: Path | None,
    fast: bool,
    against: Path | None,
    keys: tuple[str, ...],
    as_json: bool,
    file: Path | None,
) -> int:
    """Check every row, seal, digest and sum of the box's ledger, or of the ledger or bundle at
    PATH. The box may be running. Exit code 1: faults; 2: it cannot be read."""
    from appliance.ledger.verify import command
    from appliance.ledger.verify.opening import Unreadable

    chosen = path if path is not None else _ledger(load_config(file))
    earlier = str(against) if against is not None else None
    try:
        verdict = command.run(str(chosen), fast=fast, against=earlier, keys=keys)
    except Unreadable as error:
        click.echo(f"steelyard: {error}", err=True)
        return UNREADABLE
    command.show(verdict, as_json=as_json)
    return command.OK if verdict.ok else command.FAULTS


@audit_group.command("log")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@config_option
def audit_log(limit: int, as_json: bool, file: Path | None) -> None:
    """Show what operators and the box itself did, newest first."""
    import msgspec

    from appliance.ledger.database import connect

    db = connect(_ledger(load_config(file)), read_only=True)
    try:
        found = db.conn.execute(
            "SELECT seq, body FROM entries WHERE kind = 'action' ORDER BY seq DESC LIMIT ?",
            (limit,),
        ).fetchall()
    finally:
        db.close()
    for seq, body in found:
        row = msgspec.json.decode(body)
        if as_json:
            click.echo(msgspec.json.encode({"seq": seq, **row}).decode())
        else:
            click.echo(_told(seq, row))
    if not found and not as_json:
        click.echo("Nobody did anything yet.", err=True)


def _told(seq: int, row: Mapping[str, Any]) -> str:
    """One action as a line."""
    from appliance.ledger.verify.verdict import moment

    who = row["key_name"] or row["operator"] or "the box"
    claimed = f" ({row['operator']})" if row["key_name"] and row["operator"] else ""
    detail = ", ".join(
        f"{name}={value}"
        for name, value in row["detail"].items()
        if isinstance(value, str | int | float)
    )
    words = [str(seq), moment(row["wall_ns"]), row["action"], row["target"] or "-"]
    words += [f"by {who}{claimed} at {row['host'] or 'local'}", detail[:_DETAIL_CHARS]]
    return one_line("  ".join(words).rstrip())


@audit_group.command("export")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--without-text", is_flag=True, help="Leave out texts of prompts and answers.")
@config_option
def audit_export(directory: Path, without_text: bool, file: Path | None) -> None:
    """Write a bundle into DIRECTORY, such as a USB stick, that verifies on any machine with
    Python. The box may be running."""
    import platform

    from appliance import __version__
    from appliance.ledger.export import Source, export

    config = load_config(file)
    source = Source(
        ledger=_ledger(config),
        signer=_signer(config),
        host=platform.node(),
        version=__version__,
        operator=operator(),
        texts=not without_text,
    )
    bundle = export(source, directory, time.time_ns())
    for warning in bundle.warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo(
        f"{bundle.path}\n"
        f"entries up to {bundle.head_seq}, {bundle.seals} seals, {bundle.bytes / 1e6:.1f} MB, "
        f"head {bundle.head}"
    )


@audit_group.command("seal")
@config_option
def audit_seal(file: Path | None) -> None:
    """Seal all entries that are not sealed yet."""
    from appliance.ledger.seals import seal_now

    config = load_config(file)
    signer = _signer(config)
    sealed = _change(config, lambda db: seal_now(db, signer, time.time_ns()))
    click.echo(str(sealed) if sealed is not None else "Nothing new to seal.")


@audit_group.command("key")
@config_option
def audit_key(file: Path | None) -> None:
    """Show the public key that signs seals and bundles. Give it to whoever will check them."""
    signer = _signer(load_config(file))
    if signer is None:
        raise click.ClickException("nothing is signed: ledger.sign is false in the configuration")
    click.echo(signer.public_pem().decode(), nl=False)
    click.echo(f"hex          {signer.public_key.hex()}\nfingerprint  {signer.id}")


def _ledger(config: "Config") -> Path:
    from appliance.accounts.keys import FILE_NAME

    return config.server.state_dir / FILE_NAME


def _signer(config: "Config") -> "Signer | None":
    """None where the configuration wants no signatures. Raises LedgerError."""
    from appliance.ledger.keysign import open_signer

    return open_signer(config.server.state_dir) if config.ledger.sign else None


def _change(config: "Config", change: "Callable[[Database], T]") -> T:
    from contextlib import closing

    from appliance.ledger.database import connect, transaction

    path = _ledger(config)
    with closing(connect(path, create=False)) as db, transaction(db, path):
        return change(db)
