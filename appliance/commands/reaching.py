"""How a command reaches a box: where it is, its CA, and the key."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


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
    default="http://127.0.0.1:8421",
    show_default=True,
    envvar="STEELYARD_URL",
    help="Where the box is; $STEELYARD_URL.",
)
cacert_option = click.option(
    "--cacert", type=click.Path(exists=True), help="Certificate of the box's CA."
)


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
