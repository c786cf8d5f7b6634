"""`steelyard calibrate versions|use|rollback|report|import|export`: the forecasters there are."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import config_option, load_config
from appliance.commands.exits import NotDone

if TYPE_CHECKING:
    from appliance.calibrate.catalogue import Listed
    from appliance.config import Config
    from appliance.forecast.bundle import Bundle
    from appliance.forecast.versions import Versions

_OUT = click.Path(dir_okay=False, path_type=Path)
_FORCE = click.option("--force", is_flag=True, help="Replace the file.")


def forecaster_commands() -> list[click.Command]:
    return [versions_command, use_command, rollback_command, report_command, import_command,
            export_command]  # fmt: skip


@contextmanager
def _known(file: Path | None) -> Iterator["tuple[Config, Versions]"]:
    """The forecasters of the configured model. What is wrong with one is told in a sentence."""
    from appliance.forecast.bundle import BadForecaster
    from appliance.forecast.versions import Versions
    from appliance.models import check

    config = load_config(file)
    try:
        yield config, Versions(config.server.state_dir, check(config).sha256)
    except BadForecaster as error:
        raise NotDone(str(error)) from error


@click.command("versions")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@config_option
def versions_command(as_json: bool, file: Path | None) -> None:
    """List the forecasters of the model, newest first."""
    import msgspec

    from appliance.calibrate.catalogue import catalogue

    with _known(file) as (_, versions):
        found = catalogue(versions)
    if as_json:
        for one in found:
            click.echo(msgspec.json.encode(one).decode())
        return
    if not found:
        click.echo("None: forecasts come from one distribution for all requests.", err=True)
        return
    click.echo(f"{'VERSION':10} {'STATE':8} {'SKILL':>6} {'COVER':>6} {'MAE':>6}  MADE")
    for one in found:
        click.echo(_row(one))


def _row(one: "Listed") -> str:
    state = "in use" if one.in_use else "kept"
    if one.problem:
        return f"{one.version:10} {'bad':8} {one.problem}"
    figures = f"{_text(one.skill, 2):>6} {_text(one.coverage_pct, 1):>6} {_text(one.mae, 1):>6}"
    return f"{one.version:10} {state:8} {figures}  {one.created[:10]}"


def _text(value: float | None, places: int) -> str:
    return "?" if value is None else f"{value:.{places}f}"


@click.command("use")
@click.argument("version")
@config_option
def use_command(version: str, file: Path | None) -> None:
    """Put VERSION (v0002, packaged, ...) into use. A running box goes over to it by itself."""
    from appliance.commands.chained import chain

    with _known(file) as (config, versions):
        used = versions.use(version)
    chain(config, "forecaster.use", used.name)
    click.echo(f"{used.name} is in use.", err=True)


@click.command("rollback")
@config_option
def rollback_command(file: Path | None) -> None:
    """Go back to the version before the one in use."""
    from appliance.commands.chained import chain

    with _known(file) as (config, versions):
        used = versions.rollback()
    chain(config, "forecaster.use", used.name, {"why": "rollback"})
    click.echo(f"{used.name} is in use.", err=True)


@click.command("report")
@click.argument("version")
@click.option("-o", "--output", type=_OUT, help="File to write. Default: the version's name.")
@config_option
@_FORCE
def report_command(version: str, output: Path | None, file: Path | None, force: bool) -> None:
    """Write VERSION's report, one HTML file that needs nothing else."""
    target = output or Path(f"{version}.html")
    _refuse_taken(target, force=force)
    with _known(file) as (_, versions):
        bundle = _bundle(versions, version)
    if not bundle.report_html:
        raise NotDone(f"{version} carries no report")
    _write(target, bundle.report_html)


@click.command("import")
@click.argument("source", metavar="FILE", type=click.Path(exists=True, path_type=Path))
@config_option
def import_command(source: Path, file: Path | None) -> None:
    """Take a forecaster from FILE and put it into use, after checking all of it."""
    from appliance.calibrate.catalogue import install
    from appliance.commands.chained import chain
    from appliance.forecast.bundle import Bundle

    with _known(file) as (config, versions):
        installed = install(versions, Bundle.read(source))
    chain(config, "forecaster.install", installed.name, {"why": "import"})
    click.echo(f"{installed.name} is in use.", err=True)


@click.command("export")
@click.argument("version")
@click.argument("target", metavar="FILE", type=_OUT)
@config_option
@_FORCE
def export_command(version: str, target: Path, file: Path | None, force: bool) -> None:
    """Write VERSION to FILE, for another box with the same model."""
    _refuse_taken(target, force=force)
    with _known(file) as (_, versions):
        data = _bundle(versions, version).pack()
    _write(target, data)


def _bundle(versions: "Versions", name: str) -> "Bundle":
    from appliance.forecast.bundle import Bundle

    for version in versions.list():
        if version.name == name:
            return Bundle.read(version.path)
    raise NotDone(f"no forecaster {name!r}: `steelyard calibrate versions` lists them")


def _refuse_taken(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise NotDone(f"{path} exists already: name another, or replace it with --force")


def _write(path: Path, data: bytes) -> None:
    from appliance import durable

    try:
        durable.replace(path, data)
    except OSError as error:
        raise NotDone(f"{path} cannot be written: {error.strerror or error}") from error
    click.echo(f"Wrote {path}.", err=True)
