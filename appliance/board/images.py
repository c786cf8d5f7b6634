"""Firmware images that lie in the box's own folder, and the keys that they must be signed with.

<state_dir>/firmware/trusted_key    public keys, one a line; none: the board alone decides
<state_dir>/firmware/*.fw           images
"""

from dataclasses import dataclass
from pathlib import Path

from firmware_bridge.firmware.slots import KEYS
from firmware_bridge.image import MOST, ImageError, is_signed_by, read, trusted
from firmware_bridge.update import Image

FOLDER = "firmware"
ENDING = ".fw"
MOST_LISTED = 32


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of the folder. `problem` says why it cannot be used, empty if it can."""

    name: str
    version: str
    problem: str = ""


def trust_of(state_dir: Path) -> str | None:
    """The keys that the box trusts, as boards keep them; None where there is no such file. Raises
    ImageError for one that cannot be read: nobody knows then whom the box trusts."""
    path = state_dir / FOLDER / KEYS
    try:
        with path.open("rb") as file:
            return file.read(MOST).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ImageError(
            f"{FOLDER}/{KEYS} in the state directory cannot be read: {error.strerror}"
        ) from None


def checked(data: bytes, state_dir: Path) -> Image:
    """An image that the box may bring onto its board. Raises ImageError."""
    image = read(data)
    trust = trust_of(state_dir)
    if trust is not None and not is_signed_by(image, trusted(trust)):
        raise ImageError(
            f"no key of {FOLDER}/{KEYS} in the state directory has signed it: sign it with "
            "`steelyard board sign`"
        )
    return image


def image_named(name: str, state_dir: Path) -> Image:
    """An image of the folder. Raises ImageError."""
    path = state_dir / FOLDER / name
    if Path(name).name != name or not name.endswith(ENDING) or not name.isprintable():
        raise ImageError(f"{name[:100]!r} is no name of an image: GET /admin/board lists them")
    try:
        with path.open("rb") as file:
            return checked(file.read(MOST), state_dir)
    except OSError as error:
        raise ImageError(
            f"{FOLDER}/{name[:100]} in the state directory cannot be read: {error.strerror}"
        ) from None


def images(state_dir: Path) -> tuple[Listed, ...]:
    """What lies in the folder, by name."""
    try:
        names = sorted(path.name for path in (state_dir / FOLDER).glob(f"*{ENDING}"))
    except OSError:
        return ()
    return tuple(_listed(name, state_dir) for name in names[:MOST_LISTED])


def _listed(name: str, state_dir: Path) -> Listed:
    try:
        return Listed(name, image_named(name, state_dir).name)
    except ImageError as error:
        return Listed(name, "", str(error))
