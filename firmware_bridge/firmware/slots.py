"""Two slots of firmware in the flash, and which of them boots.

    slots.py, main.py    the loader: a copy of this file, and two lines that call boot(); never
                         updated, and on its own: it imports nothing of ours
    boot.json            the selector, replaced whole
    trusted_key          moduli of the keys that images are signed with, in hex, one a line
    a/, b/               a slot each: `head` and the files that its manifest names

A new slot is tried once: the selector counts that down before the slot gets to run, so whatever
ends the trial (a crash, the board's own watchdog, a power cut) leads back to the confirmed slot.
A slot whose files are not those of its manifest never boots while there is another.
"""

import hashlib
import json
import os
import struct
import sys

try:
    from collections.abc import Generator
    from typing import Any
except ImportError:  # MicroPython has neither
    pass

SLOTS = ("a", "b")
SELECTOR = "boot.json"
KEYS = "trusted_key"
HEAD_NAME = "head"
MAGIC = b"STEELYFW"
HEAD = "<8sHI256s"
"""Magic, bytes of the manifest, bytes of all files, signature; then the manifest, in JSON. The
signature is of all but itself."""
HEAD_SIZE = struct.calcsize(HEAD)
SIGNATURE_AT = 14
MAX_HEAD = 6144
MAX_TOTAL = 262_144
MAX_FILES = 48
MAX_KEYS = 4
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_/"
CHUNK = 512
RESET = 3
"""Exit status of a simulated board that boots anew."""
LOADER_WATCHDOG_MS = 8000
NOWHERE = "/dev/null"
"""The root of a flash that does not exist."""

CONFIRMED = 0
TRIAL = 1
REVERTED = 2
"""How a slot was chosen: as ever; on trial; because the trial of the other one failed."""


class Flash:
    """A folder of the file system. Everything that changes it passes `step` first: tests cut the
    power there."""

    def __init__(self, root: str) -> None:
        self.root = root

    def step(self) -> None:
        """Just before the flash changes."""

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes:
        """Empty where there is no such file."""
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except OSError:
            return b""

    def size(self, name: str) -> int:
        """-1 where there is no such file."""
        try:
            return os.stat(self.path(name))[6]
        except OSError:
            return -1

    def replace(self, name: str, data: bytes) -> None:
        """The old file or the new one, whatever happens in between."""
        self.step()
        with open(self.path(name + ".new"), "wb") as file:
            file.write(data)
        self.step()
        os.rename(self.path(name + ".new"), self.path(name))

    def append(self, name: str, data: bytes) -> None:
        self._make_folders(name)
        self.step()
        with open(self.path(name), "ab") as file:
            file.write(data)

    def remove(self, name: str) -> None:
        try:
            self.step()
            os.remove(self.path(name))
        except OSError:
            return  # it was not there

    def files(self, folder: str) -> list[str]:
        """All names below a folder, that of its head first."""
        found: list[str] = []
        try:
            names = sorted(os.listdir(self.path(folder)), key=lambda name: name != HEAD_NAME)
        except OSError:
            return found
        for name in names:
            full = f"{folder}/{name}"
            inner = self.files(full) if os.stat(self.path(full))[0] & 0x4000 else [full]
            found += inner
        return found

    def digest(self, name: str) -> "Generator[None, None, str]":
        """A generator that pauses after each piece that it reads; it returns the SHA-256 in hex."""
        total = hashlib.sha256()
        with open(self.path(name), "rb") as file:
            while True:
                piece = file.read(CHUNK)
                if not piece:
                    break
                total.update(piece)
                yield
        return hex_of(total.digest())

    def _make_folders(self, name: str) -> None:
        at = name.find("/")
        while at > 0:
            folder = self.path(name[:at])
            try:
                os.stat(folder)
            except OSError:
                self.step()
                os.mkdir(folder)
            at = name.find("/", at + 1)


def hex_of(data: bytes) -> str:
    return "".join([f"{byte:02x}" for byte in data])


def signed_part(head: bytes) -> bytes:
    return head[:SIGNATURE_AT] + head[HEAD_SIZE:]


def manifest_of(head: bytes) -> "dict[str, Any]":
    """The manifest of an image's head. Raises ValueError."""
    if not HEAD_SIZE < len(head) <= MAX_HEAD:
        raise ValueError("size of the head")
    magic, size, total, _ = struct.unpack(HEAD, head[:HEAD_SIZE])
    if magic != MAGIC or len(head) != HEAD_SIZE + size:
        raise ValueError("not a firmware image")
    try:
        manifest = json.loads(head[HEAD_SIZE:])
        for version in (manifest["version"], manifest["minimum"]):
            if type(version) is not list or len(version) != 3 or not all(map(_is_byte, version)):
                raise ValueError("version")
        schema, board = manifest["schema"], manifest["board"]
        if type(schema) is not int or not 0 <= schema <= 0xFFFFFFFF:
            raise ValueError("schema")
        if not 0 < len(board) <= 64 or not all(32 < ord(letter) < 127 for letter in board):
            raise ValueError("board")
        if not 0 < len(manifest["files"]) <= MAX_FILES or total > MAX_TOTAL:
            raise ValueError("too many files, or too long ones")
        if sum([_checked(*row) for row in manifest["files"]]) != total:
            raise ValueError("sizes")
    except (KeyError, TypeError, AttributeError, RuntimeError):
        raise ValueError("manifest") from None  # the last: nested deeper than can be read
    return manifest  # type: ignore[no-any-return]


def _is_byte(part: object) -> bool:
    return type(part) is int and 0 <= part <= 255


def _checked(name: str, size: int, digest: str) -> int:
    """The size of a file that may be written into a slot."""
    stem = name[:-3]
    sound = name.endswith(".py") and name.startswith("firmware_bridge/") and len(name) <= 64
    if not sound or any(letter not in LETTERS for letter in stem) or "//" in stem:
        raise ValueError("name of a file")
    if len(digest) != 64 or not 0 <= size <= MAX_TOTAL:
        raise ValueError("size or digest of a file")
    return size


class Slots:
    """Reads and writes the selector. `active` is the confirmed slot."""

    def __init__(self, flash: Flash) -> None:
        self.flash = flash
        self.active = "a"
        self.trial = ""
        self.tries = 0
        self.reverted = 0
        """Whether the last trial was not confirmed."""
        try:
            kept = json.loads(flash.read(SELECTOR))
            if kept["active"] not in SLOTS or kept["trial"] not in ("a", "b", ""):
                raise ValueError("slot")
            self.tries, self.reverted = int(kept["tries"]), int(kept["reverted"])
            self.active, self.trial = kept["active"], kept["trial"]
        except (ValueError, KeyError, TypeError):
            self.active = self._newest()

    def choose(self) -> tuple[str, int]:
        """The slot to run now, and how it was chosen."""
        how = CONFIRMED
        if self.trial and self.tries > 0 and self.manifest(self.trial):
            self.tries -= 1
            self._save()
            return self.trial, TRIAL
        if self.trial:
            self.trial, self.tries, self.reverted, how = "", 0, 1, REVERTED
            self._save()
        if not self.manifest(self.active) and self.manifest(other(self.active)):
            self.active = other(self.active)
            self._save()
        return self.active, how

    def try_out(self, slot: str) -> None:
        """From the next boot on, once."""
        self.trial, self.tries, self.reverted = slot, 1, 0
        self._save()

    def confirm(self, slot: str) -> None:
        self.active, self.trial, self.tries, self.reverted = slot, "", 0, 0
        self._save()

    def manifest(self, slot: str) -> "dict[str, Any] | None":
        """That of a slot whose files are all there, as they should be; else None."""
        try:
            manifest = manifest_of(self.flash.read(slot + "/" + HEAD_NAME))
            for name, size, digest in manifest["files"]:
                file = slot + "/" + name
                if self.flash.size(file) != size or outcome(self.flash.digest(file)) != digest:
                    return None
        except (ValueError, OSError):
            return None
        return manifest

    def _newest(self) -> str:
        """Without a selector that can be read: the whole slot with the higher version."""
        found = [(self.manifest(slot), slot) for slot in SLOTS]
        whole = [(list(m["version"]), slot) for m, slot in found if m]
        return max(whole)[1] if whole else "a"

    def _save(self) -> None:
        kept = {
            "active": self.active,
            "trial": self.trial,
            "tries": self.tries,
            "reverted": self.reverted,
        }
        self.flash.replace(SELECTOR, json.dumps(kept).encode())


def other(slot: str) -> str:
    return "b" if slot == "a" else "a"


def outcome(steps: "Generator[None, None, Any]") -> "Any":
    """What a generator returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def boot(root: str = "") -> None:
    """Run the firmware. Whatever ends it, the board boots anew."""
    _watch()
    try:
        slot, how = Slots(Flash(root)).choose()
        sys.path.insert(0, f"{root}/{slot}")
        from firmware_bridge.firmware.main import run

        if run(root, slot, how):
            return
    except Exception as error:  # of the slot's code: it may hold anything
        if sys.platform != "rp2":
            sys.stderr.write(f"the firmware failed: {error!r}\n")
    _reset()


def _watch() -> None:
    if sys.platform == "rp2":
        import machine

        machine.WDT(timeout=LOADER_WATCHDOG_MS)  # a slot that hangs while it is imported


def _reset() -> None:
    if sys.platform == "rp2":
        import machine

        machine.reset()
    sys.exit(RESET)
