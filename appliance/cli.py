"""The `steelyard` command. Heavy modules are imported by the commands that need them, so that the
small ones answer at once. A failure is one clear message and an exit code, never a traceback
(`steelyard --debug ...` shows it)."""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from appliance import __version__
from appliance.commands.audit import audit_group
from appliance.commands.backup import backup_group, restore_command
from appliance.commands.board import board_group
from appliance.commands.bundle import bundle_group
from appliance.commands.calibrate import calibrate_group
from appliance.commands.configured import config_option
from appliance.commands.control import control_group
from appliance.commands.cost import cost_group
from appliance.commands.doctor import doctor_command
from appliance.commands.exits import FAILED, INTERRUPTED, USAGE, NotDone
from appliance.commands.forecast import forecast_command
from appliance.commands.keys import keys_group, tenants_group
from appliance.commands.lora import loras_of
from appliance.commands.model import model_group
from appliance.commands.modeluse import model_use
from appliance.commands.requests import requests_group
from appliance.commands.status import status_command
from appliance.commands.study import study_group
from appliance.commands.support import support_command
from appliance.commands.terminal import spelt
from appliance.commands.tls import tls_group
from appliance.commands.tui import tui_command
from appliance.commands.tune import tune_group
from appliance.commands.update import update_group
from appliance.commands.usage import usage_command
from appliance.errors import ForOperator

if TYPE_CHECKING:
    from appliance.accounts.keys import KeyStore
    from appliance.config import Config

DOCS = Path("docs/configuration.md")


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    try:
        return int(steelyard.main(list(args), prog_name="steelyard", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        if "--debug" in args:
            traceback.print_exc()
        return _report(error)


def _report(error: Exception) -> int:
    """Say what went wrong and what to do, on standard error."""
    import sqlite3

    from appliance.bundle.errors import BundleError  # it cannot know what the box knows
    from appliance.config import ConfigError
    from appliance.ledger.meanings import meaning

    if isinstance(error, ConfigError):
        click.echo(f"steelyard: the configuration cannot be used:\n{spelt(error)}", err=True)
        return USAGE
    if isinstance(error, ForOperator | BundleError):
        click.echo(f"steelyard: {spelt(error)}", err=True)
        return FAILED
    if isinstance(error, UnicodeEncodeError):
        click.echo(f"steelyard: {error.object!a} is not UTF-8: write it in UTF-8", err=True)
        return FAILED
    if isinstance(error, sqlite3.Error) and (known := meaning(error, "the ledger")):
        click.echo(f"steelyard: {spelt(known)}", err=True)
        return FAILED
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, OSError) and error.strerror:  # the machine's, and no bug of ours
        what = f"{error.filename or 'input or output'}: {error.strerror}"
    click.echo(f"steelyard: {spelt(what)} (`steelyard --debug ...` shows where)", err=True)
    return FAILED


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from appliance import buildinfo

    build = buildinfo.installed()
    click.echo(
        f"steelyard {__version__} (llama.cpp {build.llama_commit}, llama-cpp-python "
        f"{build.package_version}, built with {build.compiler})"
    )
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and that of the llama.cpp inside.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def steelyard() -> None:
    """An on-prem LLM box that tells what a request will cost before it runs."""


def _load(file: Path | None, **options: object) -> "Config":
    """The configuration; options named `section__key` win where they are given."""
    from appliance.config import load

    given = {name.replace("__", "."): value for name, value in options.items() if value is not None}
    return load(file, overrides=given)


def _keys(config: "Config") -> "KeyStore":
    from appliance.accounts.keys import FILE_NAME, KeyStore

    return KeyStore(config.server.state_dir / FILE_NAME)


@steelyard.command("serve")
@config_option
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="TCP port.")
@click.option("--model", help="GGUF file to serve.")
@click.option(
    "--lora",
    multiple=True,
    callback=loras_of,
    metavar="FILE[=SCALE]",
    help="LoRA adapter to load with the model, in place of those of the configuration; scale 1 "
    "unless said. Once for each.",
)
@click.option(
    "--simulate-board", is_flag=True, help="Run the board's firmware here, in place of a board."
)
def serve_command(
    file: Path | None,
    host: str | None,
    port: int | None,
    model: str | None,
    lora: list[dict[str, object]] | None,
    simulate_board: bool,
) -> int:
    """Run the box until SIGTERM."""
    from appliance.alone import refuse_strangers

    config = _load(file, server__host=host, server__port=port, model__path=model, model__lora=lora)
    refuse_strangers(config.server.state_dir)
    _refuse_open_box(config, _keys(config))
    from appliance.daemon import serve

    return serve(config, simulate_board=simulate_board)


def _refuse_open_box(config: "Config", keys: "KeyStore") -> None:
    """A box that others can reach serves nobody without a key, so one must exist."""
    from appliance.config import is_loopback

    if keys.problem:
        raise NotDone(keys.problem)
    host = config.server.host
    if not is_loopback(host) and not keys.has_live("infer"):
        raise NotDone(
            f"{host} can be reached by other machines, and no valid key with scope infer exists. "
            "Make one first: `steelyard keys create NAME --scope infer`, or listen on 127.0.0.1"
        )


@steelyard.command("selftest")
@config_option
@click.option("--model", help="GGUF file to test.")
def selftest_command(file: Path | None, model: str | None) -> int:
    """Load the model in a child process and prove one decode."""
    from appliance.alone import refuse_strangers
    from appliance.selftest import selftest

    config = _load(file, model__path=model)
    refuse_strangers(config.server.state_dir)
    return selftest(config)


@steelyard.group("config")
def config_group() -> None:
    """Check and show the configuration."""


@config_group.command("check")
@click.argument("file", type=click.Path(path_type=Path), required=False)
def config_check(file: Path | None) -> None:
    """Test FILE, or the file that `serve` would read. Exit code 2 if it cannot be used."""
    import os

    from appliance.config import effective, find_file

    config = _load(file)
    source = find_file(file, os.environ)
    click.echo(f"ok: {source if source is not None else 'no file, all defaults'}\n")
    click.echo(effective(config), nl=False)


@config_group.command("show")
@config_option
def config_show(file: Path | None) -> None:
    """Print what is in effect as TOML; defaults are commented out."""
    from appliance.config import effective

    click.echo(effective(_load(file)), nl=False)


@config_group.command("docs", hidden=True)
@click.argument("target", type=click.Path(path_type=Path), default=DOCS)
def config_docs(target: Path) -> None:
    """Write the reference page from the settings' own descriptions."""
    from appliance.config import reference

    target.write_text(reference(), encoding="utf-8")


steelyard.add_command(audit_group)
steelyard.add_command(backup_group)
steelyard.add_command(restore_command)
steelyard.add_command(board_group)
steelyard.add_command(bundle_group)
steelyard.add_command(calibrate_group)
steelyard.add_command(control_group)
steelyard.add_command(cost_group)
steelyard.add_command(doctor_command)
steelyard.add_command(forecast_command)
steelyard.add_command(keys_group)
steelyard.add_command(tenants_group)
steelyard.add_command(usage_command)
steelyard.add_command(model_group)
model_group.add_command(model_use)
steelyard.add_command(requests_group)
steelyard.add_command(status_command)
steelyard.add_command(study_group)
steelyard.add_command(support_command)
steelyard.add_command(tls_group)
steelyard.add_command(tui_command)
steelyard.add_command(tune_group)
steelyard.add_command(update_group)
