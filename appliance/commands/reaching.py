"""How a command reaches a box: where it is, its CA, and the key."""

import os
from pathlib import Path

import click

url_option = click.option(
    "--url",
    default="http://127.0.0.1:8421",
    show_default=True,
    envvar="STEELYARD_URL",
    help="Where the box is; $STEELYARD_URL.",
)
cacert_option = click.option(
    "--cacert", type=click.Path(exists=True), help="Certificate of the box's CA."
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
