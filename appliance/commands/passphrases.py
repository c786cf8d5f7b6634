"""How a command gets a passphrase: from a file, or from the person at the terminal."""

import sys
from pathlib import Path

import click

from appliance.commands.exits import NotDone

_MOST = 4096

passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File whose first line is the passphrase.",
)


def passphrase(file: Path | None, *, new: bool = False) -> bytes:
    """The first line of the file, without one what is typed; `new`: typed twice. Raises NotDone."""
    if file is not None:
        try:
            with file.open("rb") as opened:
                return opened.read(_MOST).partition(b"\n")[0].rstrip(b"\r")
        except OSError as error:
            raise NotDone(f"{file} cannot be read: {error.strerror}") from None
    if not sys.stdin.isatty():
        raise NotDone("there is no terminal to ask for a passphrase: give --passphrase-file")
    said: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    return said.encode()
