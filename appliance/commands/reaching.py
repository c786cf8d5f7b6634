"""How a command reaches a box: where it is, its CA, and the key.

What `--url` or the environment says counts. Without, it is the box of this machine, found by what
it holds; and where none is here, the usual address, at which a tunnel may lead to one.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from appliance.commands.configured import config_option
from appliance.commands.exits import NotDone

USUAL = "http://127.0.0.1:8421"


@dataclass(frozen=True, slots=True)
class Reached:
    """Where to ask."""

    url: str
    cacert: str = ""
    looked: str = ""
    """Why it is the usual address: what was looked for on this machine. Empty: it is not."""


class _Place(click.ParamType[str]):
    """Where a box is. SDKs' addresses end with /v1, as the one that `steelyard serve` prints; that
    names the same box."""

    name = "text"

    def convert(self, value: str, *_: object) -> str:
        return value.strip().rstrip("/").removesuffix("/v1").rstrip("/")


PLACE = _Place()
url_option = click.option(
    "--url",
    type=PLACE,
    envvar="STEELYARD_URL",
    help=f"Where the box is; $STEELYARD_URL. Default: the box on this machine, else {USUAL}.",
)
cacert_option = click.option(
    "--cacert", type=click.Path(exists=True), help="Certificate of the box's CA."
)


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--url`, `--cacert` and `--config`: the arguments of `reach`."""
    return url_option(cacert_option(config_option(command)))


def reach(url: str | None, cacert: str | None, file: Path | None) -> Reached:
    """The box that the options name, or that of this machine. Raises NotDone where it does not
    listen yet or another listens in its place, and ConfigError for a `file` that cannot be used."""
    if url:
        return Reached(url, cacert or "")
    from appliance.config import ConfigError, load
    from appliance.doctor.place import here

    try:
        found = here(load(file))
    except ConfigError as error:
        if file is not None:
            raise
        return Reached(USUAL, cacert or "", f"the configuration cannot be used: {error}")
    if found.barred:
        raise NotDone(found.why)
    return Reached(found.url or USUAL, cacert or found.cacert, found.why)


def key_option(told: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds `--key-file FILE`, as the argument `key_file` for `read_key`; `told` is its help."""
    return click.option(
        "--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help=told
    )


def read_key(
    file: Path | None, *names: str, refusal: type[Exception] = click.ClickException
) -> str:
    """What the file holds; without one, the first of these environment variables that says
    anything; else empty. Raises `refusal`."""
    if file is None:
        return next((os.environ[name].strip() for name in names if os.environ.get(name)), "")
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise refusal(f"{file} cannot be read as a key: {error}") from None
