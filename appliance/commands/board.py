"""`steelyard board`: keys and images for the board's firmware, and the board of a running box."""

import base64
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance.commands.asking import ask
from appliance.commands.exits import NotDone
from appliance.commands.passphrases import passphrase, passphrase_option
from appliance.commands.reaching import Reached, place_options, reach

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

_LOOK_S = 0.3
_PATIENCE_S = 300.0
"""An update that does not come forward is given up by the box itself long before."""
_FILE = click.Path(dir_okay=False, path_type=Path)
_SHOWN = {
    "asking": "asking the board",
    "head": "the board checks the signature",
    "files": "sending",
    "trying": "the board boots the new firmware",
    "confirming": "the new firmware is on trial",
}


@click.group("board")
def board_group() -> None:
    """Sign firmware for the board that watches the box, bring it there, show the board."""


# -- keys and images ---------------------------------------------------------------------------


@board_group.command("keygen")
@click.argument("target", metavar="FILE", type=_FILE)
@click.option("--encrypt", is_flag=True, help="Ask for a passphrase.")
def board_keygen(target: Path, encrypt: bool) -> None:
    """Make a key to sign firmware with: FILE, which stays with you, and FILE.pub for boards."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

    from firmware_bridge.image import trust_line

    lock: forms.KeySerializationEncryption = forms.NoEncryption()
    if encrypt:
        words = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
        lock = forms.BestAvailableEncryption(words.encode())
    key = generate_private_key(65537, 2048)
    pem = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, lock)
    _make(target, pem, 0o600)
    public = target.with_name(f"{target.name}.pub")
    _make(public, trust_line(key.public_key()).encode(), 0o644)
    click.echo(f"Wrote {target}: keep it away from the box, and a copy in a safe place.", err=True)
    click.echo(f"Wrote {public}: what boards are to trust.", err=True)


@board_group.command("sign")
@click.argument("target", metavar="FILE", type=_FILE)
@click.option("--key", "key_file", type=_FILE, required=True, help="Of `steelyard board keygen`.")
@passphrase_option
@click.option("--minimum", help="The lowest version that may be replaced by it. Default: any.")
def board_sign(
    target: Path, key_file: Path, passphrase_file: Path | None, minimum: str | None
) -> None:
    """Write the firmware that this program came with to FILE, signed. FILE should end in .fw."""
    from firmware_bridge.image import FIRST, ImageError, build, firmware_files, parse_version

    try:
        lowest = parse_version(minimum) if minimum else FIRST
        image = build(firmware_files(), _private(key_file, passphrase_file), minimum=lowest)
    except ImageError as error:
        raise NotDone(str(error)) from None
    _make(target, image.data, 0o644)
    click.echo(f"Wrote {target}: {image.name} for {image.board}.", err=True)


@board_group.command("files")
@click.argument("folder", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path))
@click.option("--trust", type=_FILE, required=True, help="FILE.pub of `steelyard board keygen`.")
def board_files(folder: Path, trust: Path) -> None:
    """Fill FOLDER with what a new board's flash must hold (docs/board.md: flashing)."""
    from firmware_bridge.image import ImageError, firmware_files, lay_out, trusted

    try:
        text = trust.read_text("ascii")
        trusted(text)
        folder.mkdir(parents=True, exist_ok=True)
        lay_out(folder, firmware_files(), text)
    except (ImageError, UnicodeError) as error:
        raise NotDone(f"{trust}: {error}") from None
    except OSError as error:
        raise NotDone(f"{error.filename}: {error.strerror}") from None
    click.echo(f"Filled {folder}. `mpremote cp -r {folder}/* :` copies it.", err=True)


def _private(file: Path, passphrase_file: Path | None) -> "RSAPrivateKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        data = file.read_bytes()
        try:
            key = load_pem_private_key(data, None)
        except TypeError:  # it is encrypted
            key = load_pem_private_key(data, passphrase(passphrase_file))
    except OSError as error:
        raise NotDone(f"{file} cannot be read: {error.strerror}") from None
    except UnsupportedAlgorithm:
        raise NotDone(f"{file} is no RSA key: `steelyard board keygen` makes one") from None
    except ValueError:
        raise NotDone(f"{file} is no private key, or the passphrase is another") from None
    if not isinstance(key, RSAPrivateKey) or key.key_size != 2048:
        raise NotDone(f"{file} is no RSA key of 2048 bits: `steelyard board keygen` makes one")
    return key


def _make(target: Path, data: bytes, mode: int) -> None:
    """The file whole, or not at all; never over another."""
    try:
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(data)
    except FileExistsError:
        raise NotDone(f"{target} exists already: take another name") from None
    except OSError as error:
        with suppress(OSError):
            target.unlink()
        raise NotDone(f"{target} cannot be written: {error.strerror}") from None


# -- the board of a running box ------------------------------------------------------------------


@board_group.command("status")
@place_options
def board_status(url: str | None, cacert: str | None, file: Path | None) -> None:
    """Show the board: its state, its firmware, and images that lie ready in the box."""
    for row in rows_of(_board(reach(url, cacert, file))):
        click.echo(row)


@board_group.command("update")
@click.argument("image", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@place_options
def board_update(image: Path, url: str | None, cacert: str | None, file: Path | None) -> None:
    """Bring IMAGE onto the board, and wait until it is confirmed. Takes the admin key from
    $STEELYARD_ADMIN_KEY."""
    from firmware_bridge.image import MOST, ImageError, read

    try:
        data = image.read_bytes()[:MOST]
        version = read(data).name
    except ImageError as error:
        raise NotDone(f"{image}: {error}") from None
    body = {"image": base64.b64encode(data).decode()}
    at = reach(url, cacert, file)
    ask(at, "/admin/board/update", body, _key())
    _follow(version, at)


def _follow(version: str, at: Reached) -> None:
    """Tell every step until it is over."""
    told, until = "", time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        update = _board(at).get("update") or {}
        phase = update.get("phase", "")
        if update.get("version") == version and phase == "done":
            click.echo(f"The board runs {version}.", err=True)
            return
        if update.get("version") == version and phase in ("refused", "reverted", "failed"):
            raise NotDone(f"the update was {phase}: {update.get('problem', '')}")
        if phase in _SHOWN and phase != told:
            told = phase
            click.echo(_SHOWN[phase], err=True)
        time.sleep(_LOOK_S)
    raise NotDone("the update does not come to an end: `steelyard board status` shows it")


def rows_of(board: dict[str, Any]) -> list[str]:
    """The board on a few lines, 80 columns."""
    slots = [f"{one['slot']} {one['version'] or '-'} {one['state']}" for one in board["slots"]]
    rows = [
        ("board", " ".join(filter(None, (board["state"], board["problem"])))),
        ("device", board["device"] or "none"),
        ("firmware", board["firmware"] or "?"),
        ("slots", ", ".join(slots) or "none, or not told"),
    ]
    if board["inhibited_ms"]:
        rows.append(("inhibited", f"for {board['inhibited_ms'] / 1000:.0f} s more"))
    if update := board["update"]:
        share = f"{update['done']} of {update['total']} bytes"
        text = f"{update['version']} {update['phase']}, {share} {update['problem']}"
        rows.append(("update", text.rstrip()))
    for one in board["images"]:
        rows.append(("image", f"{one['name']} {one['version'] or one['problem']}"))
    return [f"{name:<10}{value}" for name, value in rows]


def _board(at: Reached) -> dict[str, Any]:
    return ask(at, "/admin/board", None, _key())


def _key() -> str:
    key = os.environ.get("STEELYARD_ADMIN_KEY", "")
    if not key:
        raise NotDone("this needs an admin key: export STEELYARD_ADMIN_KEY=sk-steelyard-...")
    return key
