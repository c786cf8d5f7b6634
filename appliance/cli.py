"""The `steelyard` command. Heavy modules are imported by the commands that need them, so that the
small ones answer at once. A failure is one clear message and an exit code, never a traceback
(`steelyard --debug ...` shows it)."""

import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from appliance import __version__

if TYPE_CHECKING:
    from appliance.accounts.keys import Key, KeyStore
    from appliance.config import Config

FAILED = 1
USAGE = 2
"""Also for a configuration that cannot be used."""
INTERRUPTED = 130

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
    from appliance.accounts.keys import KeysError
    from appliance.config import ConfigError
    from appliance.gguf import BadModel

    if isinstance(error, ConfigError):
        click.echo(f"steelyard: the configuration cannot be used:\n{error}", err=True)
        return USAGE
    if isinstance(error, KeysError | BadModel | _Refusal):
        click.echo(f"steelyard: {error}", err=True)
        return FAILED
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    click.echo(f"steelyard: {what} (`steelyard --debug ...` shows where)", err=True)
    return FAILED


class _Refusal(Exception):
    """The command will not do it. Says why and what to do."""


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


def _config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path),
        help="TOML file. Default: $STEELYARD_CONFIG, else /etc/steelyard/steelyard.toml.",
    )(command)


def _load(file: Path | None, **options: object) -> "Config":
    """The configuration; options named `section__key` win where they are given."""
    from appliance.config import load

    given = {name.replace("__", "."): value for name, value in options.items() if value is not None}
    return load(file, overrides=given)


def _keys(config: "Config") -> "KeyStore":
    from appliance.accounts.keys import FILE_NAME, KeyStore

    return KeyStore(config.server.state_dir / FILE_NAME)


@steelyard.command("serve")
@_config_option
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="TCP port.")
@click.option("--model", help="GGUF file to serve.")
def serve_command(file: Path | None, host: str | None, port: int | None, model: str | None) -> int:
    """Run the box until SIGTERM."""
    config = _load(file, server__host=host, server__port=port, model__path=model)
    _refuse_open_box(config, _keys(config))
    from appliance.daemon import serve

    return serve(config)


def _refuse_open_box(config: "Config", keys: "KeyStore") -> None:
    """A box that others can reach serves nobody without a key, so one must exist."""
    from appliance.config import is_loopback

    if keys.problem:
        raise _Refusal(keys.problem)
    host = config.server.host
    if not is_loopback(host) and not keys.has_live("infer"):
        raise _Refusal(
            f"{host} can be reached by other machines, and no valid key with scope infer exists. "
            "Make one first: `steelyard keys create NAME --scope infer`, or listen on 127.0.0.1"
        )


@steelyard.command("selftest")
@_config_option
@click.option("--model", help="GGUF file to test.")
def selftest_command(file: Path | None, model: str | None) -> int:
    """Load the model in a child process and prove one decode."""
    config = _load(file, model__path=model)
    from appliance.daemon import selftest

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
@_config_option
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


@steelyard.group("keys")
def keys_group() -> None:
    """Make, list and revoke API keys. A running daemon follows at once."""


@keys_group.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["infer", "metrics", "admin"]),
    multiple=True,
    default=["infer"],
    show_default=True,
    help="What the key may do; may be given several times.",
)
@click.option(
    "--expires", type=click.DateTime(["%Y-%m-%d"]), help="Last day on which it is good (UTC)."
)
@_config_option
def keys_create(
    name: str, scopes: tuple[str, ...], expires: datetime | None, file: Path | None
) -> None:
    """Make a key and print its secret, which nothing can show again."""
    secret = _keys(_load(file)).create(name, scopes, expires.date() if expires else None)
    click.echo(secret)
    click.echo(
        f"Key {name} may: {', '.join(sorted(set(scopes)))}. It is not shown again.", err=True
    )


@keys_group.command("list")
@_config_option
def keys_list(file: Path | None) -> None:
    """Show all keys; secrets are not kept."""
    from datetime import UTC

    keys = _keys(_load(file)).list()
    if not keys:
        click.echo("No keys. `steelyard keys create NAME --scope infer` makes one.", err=True)
        return
    today = datetime.now(UTC).date()
    rows = [("ID", "NAME", "SCOPES", "CREATED", "EXPIRES", "STATE")]
    rows += [_row(key, live=key.live(today)) for key in keys]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


def _row(key: "Key", *, live: bool) -> tuple[str, str, str, str, str, str]:
    return (
        key.id,
        key.name,
        ",".join(sorted(key.scopes)),
        f"{key.created:%Y-%m-%d}",
        str(key.expires or "never"),
        "valid" if live else "expired",
    )


@keys_group.command("revoke")
@click.argument("name")
@_config_option
def keys_revoke(name: str, file: Path | None) -> None:
    """Remove the key of that NAME (or id) for good."""
    key = _keys(_load(file)).revoke(name)
    click.echo(f"Revoked {key.name} ({key.id}).", err=True)
