"""Public keys and signatures as minisign writes them, so that its own program can check a bundle
too: `minisign -Vm manifest.json -P KEY`. Standard library only.

    key        base64 of  "Ed" | key id (8) | Ed25519 public key (32)
    signature  base64 of  "ED" | key id (8) | Ed25519 signature of BLAKE2b-512 of the file (64)
    comment    base64 of  Ed25519 signature of the signature's 64 bytes and the trusted comment
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from appliance.bundle import ed25519
from appliance.bundle.errors import BundleError

ALGORITHM = b"Ed"
HASHED = b"ED"
UNTRUSTED = "untrusted comment: "
TRUSTED = "trusted comment: "
MOST = 4096
"""Bytes of a key or signature file; a real one has a few hundred."""

Verify = Callable[[bytes, bytes, bytes], bool]
"""Public key, signature, message."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Whom a bundle must come from."""

    key_id: bytes
    key: bytes

    @property
    def name(self) -> str:
        """The key's id as minisign prints it."""
        return self.key_id[::-1].hex().upper()

    def line(self) -> str:
        """One line of base64, to type, print or compare."""
        return base64.b64encode(ALGORITHM + self.key_id + self.key).decode()

    def text(self) -> str:
        """A minisign public key file."""
        return f"{UNTRUSTED}minisign public key {self.name}\n{self.line()}\n"


@dataclass(frozen=True, slots=True)
class Signature:
    """The four lines of a `.minisig` file."""

    key_id: bytes
    signature: bytes
    comment: str
    comment_signature: bytes

    def text(self) -> str:
        own = base64.b64encode(HASHED + self.key_id + self.signature).decode()
        outer = base64.b64encode(self.comment_signature).decode()
        return f"{UNTRUSTED}signature of a bundle\n{own}\n{TRUSTED}{self.comment}\n{outer}\n"


def parse_key(text: str) -> PublicKey:
    """From a key file or its one line of base64. Raises BundleError."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(UNTRUSTED.strip())]
    data = _decoded(lines[0]) if len(lines) == 1 else b""
    if len(data) != 42 or data[:2] != ALGORITHM:
        raise BundleError("this is no minisign public key: it is one line that begins with RW")
    return PublicKey(data[2:10], data[10:])


def parse_keys(text: str) -> tuple[PublicKey, ...]:
    """All keys of a file, one a line; lines that begin with # or `untrusted` say what they are.
    Raises BundleError, also for a file without a key."""
    lines = (line.strip() for line in text.splitlines())
    keys = tuple(parse_key(ln) for ln in lines if ln and not ln.startswith(("#", "untrusted")))
    if not keys:
        raise BundleError("there is no public key in it: put one on a line of its own")
    return keys


def parse_signature(text: str) -> Signature:
    """Raises BundleError."""
    lines = text.splitlines()
    if len(lines) != 4 or not lines[2].startswith(TRUSTED):
        raise BundleError("the signature file is damaged: get the bundle again")
    own, outer = _decoded(lines[1]), _decoded(lines[3])
    if len(own) != 74 or own[:2] != HASHED or len(outer) != 64:
        raise BundleError("the signature file is damaged: get the bundle again")
    return Signature(own[2:10], own[10:], lines[2].removeprefix(TRUSTED), outer)


def check(
    data: bytes,
    signature: Signature,
    keys: Iterable[PublicKey],
    verify: Verify = ed25519.verify,
) -> PublicKey:
    """The key that signed `data` and the trusted comment. Raises BundleError."""
    known = tuple(keys)
    key = next((key for key in known if key.key_id == signature.key_id), None)
    if key is None:
        trusted = ", ".join(key.name for key in known) or "none"
        signer = PublicKey(signature.key_id, b"").name
        raise BundleError(
            f"the bundle is signed with key {signer}, which is not trusted here (trusted: "
            f"{trusted}). Get the bundle from whom you trust, or check that key and add it"
        )
    digest = hashlib.blake2b(data).digest()
    outer = signature.signature + signature.comment.encode()
    if not verify(key.key, signature.signature, digest):
        raise BundleError(
            "the manifest is not what was signed: the bundle was changed or damaged after it was "
            "made. Get it again, and use none of it"
        )
    if not verify(key.key, signature.comment_signature, outer):
        raise BundleError("the signature's trusted comment was changed: get the bundle again")
    return key


def read_small(path: Path) -> str:
    """A key or signature file. Raises BundleError."""
    try:
        with path.open("rb") as file:
            return file.read(MOST).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise BundleError(f"{path} cannot be read: {reason}") from None


def is_file(given: str) -> bool:
    """Whether a key was given by its file; what is too long for a name is none."""
    try:
        return Path(given).exists()
    except (OSError, ValueError):
        return False


def _decoded(line: str) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        return b""
