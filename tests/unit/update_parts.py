"""Images of the firmware, keys to sign them, and a board in memory whose flash is a folder."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from firmware_bridge.commands import Refusal
from firmware_bridge.firmware import board as firmware_board
from firmware_bridge.firmware import conversation
from firmware_bridge.firmware import update as firmware_update
from firmware_bridge.firmware.board import Board
from firmware_bridge.firmware.slots import Flash, Slots
from firmware_bridge.image import build, firmware_files, lay_out, trust_line
from firmware_bridge.update import Image, Update
from tests.unit.board_parts import MemoryHal, Pair

SCHEMA = "firmware_bridge/firmware/schema.py"
RUNS = b"VERSION = (1, 1, 0)"


@cache
def signer() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


@cache
def stranger() -> RSAPrivateKey:
    """Whom no board trusts."""
    return generate_private_key(65537, 2048)


def trust() -> str:
    return trust_line(signer().public_key())


def files_of(version: str) -> dict[str, bytes]:
    """The firmware, saying that it is of this version."""
    files = firmware_files()
    assert RUNS in files[SCHEMA]
    numbers = version.replace(".", ", ").encode()
    return files | {SCHEMA: files[SCHEMA].replace(RUNS, b"VERSION = (" + numbers + b")")}


def small_files(version: str) -> dict[str, bytes]:
    """Enough for an image, not for a board."""
    numbers = version.replace(".", ", ").encode()
    return {
        "firmware_bridge/__init__.py": b"",
        SCHEMA: b"VERSION = (" + numbers + b")\n" + b"# filled\n" * 900,
        "firmware_bridge/wire.py": b"# wire\n" * 700,
    }


def image_of(version: str = "1.2.0") -> Image:
    return build(files_of(version), signer())


def small_image(version: str = "1.2.0", **given: Any) -> Image:
    """Signed by `signer`, unless `key` is given."""
    return build(small_files(version), given.pop("key", signer()), **given)


class PowerCut(BaseException):
    """Nothing that the board's code catches."""


class Cut(Flash):
    """The power fails when the flash has changed so many times; 0: never."""

    def __init__(self, root: str, changes: int = 0) -> None:
        super().__init__(root)
        self.left = changes
        self.changes = 0

    def step(self) -> None:
        self.changes += 1
        self.left -= 1
        if self.left == 0:
            raise PowerCut


class SlottedHal(MemoryHal):
    """Resets are noted; the loader boots it again."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.flash = Cut(str(root))
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1


class SlottedPair(Pair):
    """A board with slots and its host, in one process. What a slot holds is not run: the board's
    code stays the same but for its version, and `slot` is what the loader would have run."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        if not (root / "main.py").exists():
            root.mkdir(exist_ok=True)
            lay_out(root, small_files("1.1.0"), trust())
        self.root, self._patch = root, patch
        self.slot, self.how = "", 0
        super().__init__()
        self.boot()

    def make_hal(self) -> MemoryHal:
        return SlottedHal(self.root)

    def boot(self) -> None:
        """The loader's choice, then the firmware. Its HELLO is heard."""
        slots = Slots(self.hal.flash)
        self.slot, self.how = slots.choose()
        manifest = slots.manifest(self.slot)
        assert manifest is not None, "a slot that is not whole was chosen"
        for module in (firmware_update, firmware_board, conversation):
            self._patch.setattr(module, "VERSION", tuple(manifest["version"]))
        self.hal.resets = 0
        self.board = Board(self.hal, self.slot, self.how)

    def heed_resets(self) -> None:
        if self.hal.resets:
            self.boot()

    @property
    def hal(self) -> SlottedHal:
        assert isinstance(self._hal, SlottedHal)
        return self._hal

    @hal.setter
    def hal(self, hal: MemoryHal) -> None:
        self._hal = hal

    def bring(self, image: Image, seconds: float = 100.0) -> Update:
        """Until it is over, or so long."""
        update = Update(image, self.now)
        self.finish(update, seconds)
        return update

    def finish(self, update: Update, seconds: float = 100.0) -> None:
        end = self.now + seconds
        while not update.progress.over and self.now < end:
            self.carry(update)

    def carry(self, update: Update) -> None:
        """One turn of everything."""
        for event in self.turn():
            update.take(event, self.now)
        self.heed_resets()
        if self.session.state not in ("ready", "unusable"):
            update.expire(self.now)
            return
        while (command := update.due(self.now)) is not None:
            number = self.session.send(command, self.now)
            if isinstance(number, Refusal):
                update.unsent(number.reason)
            else:
                update.sent(number, command)


def copied(root: Path, to: Path) -> Path:
    """The same flash once more."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(root, to)
    return to
