"""`steelyard tui`: the console. It talks HTTP only, so it runs here or on any desk of the LAN."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance import __version__
from appliance.commands.configured import config_option
from appliance.commands.exits import FAILED
from appliance.commands.reaching import key_option, reach, read_key, url_option

if TYPE_CHECKING:
    from tui.app import Console
    from tui.keymap import Keymap
    from tui.settings import Settings

BROWSER = "127.0.0.1:8422"
_NOT_HERE = "the console needs a terminal: use `steelyard status` in scripts and pipes"


@click.command("tui")
@url_option
@key_option("File with the key. Without one: $STEELYARD_ADMIN_KEY, else it is asked for.")
@click.option("--operator", help="Your name, kept with every action. Default: who is logged in.")
@click.option("--read-only", is_flag=True, help="Look only: keys that act do nothing.")
@click.option("--ascii", "plain", is_flag=True, help="Plots without Braille.")
@click.option("--lang", type=click.Choice(["en", "zh"]), help="Default: the terminal's.")
@click.option("--theme", type=click.Choice(["terminal", "mono", "dark", "light"]), help="Colours.")
@click.option(
    "--cacert",
    "ca",
    type=click.Path(exists=True, dir_okay=False),
    help="Certificate of the box's CA.",
)
@click.option("--slow", is_flag=True, help="Paint twice a second, even on a fast connection.")
@click.option("--mouse", is_flag=True, help="Take the mouse too; the terminal's own marking ends.")
@click.option(
    "--keymap",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with keys of your own. Default: ~/.config/steelyard/console.toml, if it is there.",
)
@click.option(
    "--serve",
    is_flag=False,
    flag_value=BROWSER,
    metavar="[HOST:PORT]",
    help=f"Show the console in a browser on this machine. Default: {BROWSER}.",
)
@config_option
def tui_command(
    url: str | None,
    key_file: Path | None,
    operator: str | None,
    read_only: bool,
    plain: bool,
    lang: str | None,
    theme: str | None,
    ca: str | None,
    slow: bool,
    mouse: bool,
    keymap: Path | None,
    serve: str | None,
    file: Path | None,
) -> int:
    """Watch and operate a box."""
    key = find_key(key_file)
    if serve is not None:
        given = {
            "--url": url,  # without one each console finds the box anew
            "--config": str(file.absolute()) if file else None,
            "--operator": operator,
            "--lang": lang,
            "--theme": theme,
            "--cacert": ca,
            "--keymap": str(keymap.resolve()) if keymap else None,
        }
        flags = {"--read-only": read_only, "--ascii": plain, "--slow": slow, "--mouse": True}
        arguments = [part for name, value in given.items() if value for part in (name, value)]
        return _serve(serve, [*arguments, *(name for name, on in flags.items() if on)], key)
    if "TEXTUAL_DRIVER" not in os.environ and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.ClickException(_NOT_HERE)
    settings = _settings(operator, read_only, plain, lang, theme)
    settings.keymap = _keymap(keymap)
    at = reach(url, ca, file)
    return _run(_console(at.url, key, at.cacert, settings, slow), mouse)


def find_key(file: Path | None) -> str:
    """The key from a file, the environment, or the person at the terminal; empty: none."""
    if file is not None:
        return read_key(file)
    if (key := os.environ.get("STEELYARD_ADMIN_KEY")) is not None:
        return key.strip()
    if not sys.stdin.isatty():
        return ""
    asked: str = click.prompt(
        "Key with scope admin (not shown; empty for none)",
        hide_input=True,
        default="",
        show_default=False,
        err=True,
    )
    return asked.strip()


def _settings(
    operator: str | None, read_only: bool, plain: bool, lang: str | None, theme: str | None
) -> "Settings":
    from tui.settings import Settings
    from tui.words import language

    unicode = lang == "zh" or _speaks_utf8()
    chosen = language(os.environ) if lang is None else "zh" if lang == "zh" else "en"
    return Settings(
        operator=operator or _operator(),
        read_only=read_only,
        ascii=plain or not unicode,
        lang=chosen if unicode else "en",
        theme=theme or "terminal",
        version=__version__,
        folder=Path.cwd(),
    )


def _keymap(file: Path | None) -> "Keymap":
    from tui.keymap import KeymapError, default_file, load

    try:
        return load(file or default_file(os.environ), must=file is not None)
    except KeymapError as error:
        raise click.ClickException(str(error)) from error


def _operator() -> str:
    """Who is logged in; nobody where that is a shared account, and then the console asks."""
    from appliance.commands.chained import operator

    name = operator()
    return "" if name == "root" else name


def _speaks_utf8() -> bool:
    """What the locale says, as Python itself may have made UTF-8 of a plain one."""
    if "TEXTUAL_DRIVER" in os.environ:
        return True
    found = next(
        (os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), ""
    )
    return "utf" in found.lower()


def _console(url: str, key: str, ca: str, settings: "Settings", slow: bool) -> "Console":
    from tui.app import Console
    from tui.link import Link
    from tui.screens.all import every_screen
    from tui.trust import Trust

    def connect(to: str) -> Link:
        to = to if "://" in to else f"http://{to}"
        return Link(to, key, Trust(to, ca=ca))

    return Console(connect, url, every_screen(), settings, slow=slow)


def _run(console: "Console", mouse: bool) -> int:
    console.run(mouse=mouse)
    return FAILED if console.report else 0


def _serve(place: str, arguments: list[str], key: str) -> int:
    """Loopback only: the page goes in clear, and whoever reads it acts with the key."""
    from ipaddress import ip_address

    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    try:
        loopback = host == "localhost" or ip_address(host).is_loopback
        number = int(port)
        if not 0 < number < 65536:
            raise ValueError(port)
    except ValueError:
        raise click.UsageError(
            f"--serve takes HOST:PORT, as {BROWSER}; {place!r} is none"
        ) from None
    if not loopback:
        raise click.UsageError(
            f"--serve listens on this machine only, not on {host}. From elsewhere, tunnel to it: "
            f"ssh -L {number}:127.0.0.1:{number} HOST"
        )
    _free(host, number)
    from tui.browser import serve

    serve(arguments, {"STEELYARD_ADMIN_KEY": key}, host, number)
    return 0


def _free(host: str, port: int) -> None:
    """Before an address is shown, at which somebody else listens."""
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise click.ClickException(
            f"--serve cannot listen on {host}:{port}: {error.strerror or error}. Name another port"
        ) from None
