"""A bundle on a disk or stick, held against its manifest. Standard library only."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.bundle import ed25519, manifest, minisign
from appliance.bundle.errors import BundleError
from appliance.bundle.manifest import Entry, Manifest
from appliance.bundle.minisign import PublicKey, Verify

BLOCK = 1 << 20

Tell = Callable[[int, int], None]
"""Bytes done, bytes in all."""
Say = Callable[[str], None]
"""One line for whoever watches."""


def silent(done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A bundle whose manifest was signed by a trusted key."""

    folder: Path
    manifest: Manifest
    digest: str
    """SHA-256 of the manifest: names the bundle."""
    key: PublicKey
    comment: str
    """The signer's, and signed too."""

    def path_of(self, entry: Entry) -> Path:
        return self.folder / entry.path


def open_bundle(folder: Path, keys: Iterable[PublicKey], verify: Verify = ed25519.verify) -> Opened:
    """Checks the signature; the files are not looked at yet. Raises BundleError."""
    if not folder.is_dir():
        raise BundleError(f"{folder} is no folder: give the one that holds {manifest.NAME}")
    data = _read(folder / manifest.NAME)
    signature = minisign.parse_signature(minisign.read_small(folder / manifest.SIGNATURE_NAME))
    key = minisign.check(data, signature, keys, verify)
    digest = hashlib.sha256(data).hexdigest()
    return Opened(folder, manifest.parse(data), digest, key, signature.comment)


def check_files(opened: Opened, tell: Tell = silent) -> None:
    """Every file is there, of its size and SHA-256, and there are no others. Raises BundleError."""
    expected = {entry.path for entry in opened.manifest.files}
    for path in _found(opened.folder):
        if path not in expected | {manifest.NAME, manifest.SIGNATURE_NAME}:
            raise BundleError(
                f"{opened.folder / path} is no part of the bundle: take it out, or get the bundle "
                "again"
            )
    done, total = 0, opened.manifest.size
    for entry in opened.manifest.files:
        for read in hashed(opened.path_of(entry), entry):
            done += len(read)
            tell(done, total)


def hashed(path: Path, entry: Entry) -> Iterator[bytes]:
    """The file's blocks; raises BundleError at the end of one that is not what the entry says, so
    use nothing of it before that."""
    digest, left = hashlib.sha256(), entry.size
    try:
        # Never wait on a pipe, never follow a link out of the bundle.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BundleError(f"{path} is no file: get the bundle again")
            while left >= 0 and (block := file.read(BLOCK)):
                digest.update(block)
                left -= len(block)
                yield block
    except OSError as error:
        raise BundleError(
            f"{path} cannot be read: {error.strerror}. Get the bundle again, or try another stick"
        ) from None
    if left > 0:
        raise BundleError(
            f"{path} is cut off: {entry.size - left} of {entry.size} bytes are there. Copy the "
            "bundle again"
        )
    if left < 0 or digest.hexdigest() != entry.sha256:
        raise BundleError(
            f"{path} is not what was signed: it was changed or damaged. Get the bundle again"
        )


def copy(path: Path, entry: Entry, target: Path, mode: int = 0o644) -> None:
    """Copies a file that is still what the entry says, or nothing. Raises BundleError, OSError."""
    part = target.with_name(f".{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    part.unlink(missing_ok=True)  # of a copy that was cut off
    try:
        # A file of our own: what lies there may be a link, put there by who owns the folder.
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            for block in hashed(path, entry):
                out.write(block)
            os.fchmod(out.fileno(), mode)
            out.flush()
            os.fsync(out.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _found(folder: Path) -> Iterator[str]:
    """Every file, link or other thing below, with `/` between the parts."""
    for at, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        for name in sorted((*files, *links)):
            yield Path(at, name).relative_to(folder).as_posix()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(manifest.MOST + 1)
    except OSError as error:
        raise BundleError(
            f"{path} cannot be read: {error.strerror}. Give the folder of a bundle"
        ) from None
    if len(data) > manifest.MOST:
        raise BundleError(f"{path} is too large to be a manifest")
    return data
