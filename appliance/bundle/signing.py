"""Making keys and signatures of bundles, and checking them with `cryptography`."""

import base64
import hashlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from appliance.bundle.errors import BundleError
from appliance.bundle.minisign import (
    ALGORITHM,
    UNTRUSTED,
    PublicKey,
    Signature,
    is_file,
    parse_key,
    read_small,
)
from appliance.bundle.passphrase import KDF, unsealed

_KDF_NONE = b"\0\0"
_CHECKSUM = b"B2"
_SECRET_BYTES = 2 + 2 + 2 + 32 + 8 + 8 + 8 + 64 + 32
_BODY = 54
"""Where key id, key and checksum begin."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """Signs bundles. Keep it away from the boxes, and off any network."""

    key_id: bytes
    seed: bytes

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.key_id, self._key().public_key().public_bytes_raw())

    def sign(self, data: bytes, comment: str) -> Signature:
        """What goes beside a file of this content. Raises BundleError for more than one line."""
        if not comment.isprintable():
            raise BundleError("a signature's comment is one line of text")
        own = self._key().sign(hashlib.blake2b(data).digest())
        return Signature(self.key_id, own, comment, self._key().sign(own + comment.encode()))

    def text(self) -> str:
        """A minisign secret key file without a passphrase (`minisign -W` makes such ones)."""
        public = self.public
        checksum = hashlib.blake2b(
            ALGORITHM + self.key_id + self.seed + public.key, digest_size=32
        ).digest()
        head = ALGORITHM + _KDF_NONE + _CHECKSUM + bytes(32 + 8 + 8)
        body = head + self.key_id + self.seed + public.key + checksum
        return f"{UNTRUSTED}minisign secret key {public.name}\n{base64.b64encode(body).decode()}\n"

    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """As `ed25519.verify`, by a library that others have reviewed."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def make_key() -> SecretKey:
    return SecretKey(secrets.token_bytes(8), secrets.token_bytes(32))


def parse_secret(text: str, ask: Callable[[], bytes] | None = None) -> SecretKey:
    """`ask` gives the passphrase of a key that has one. Raises BundleError."""
    lines = text.splitlines()
    try:
        data = base64.b64decode(lines[1], validate=True)
    except (ValueError, IndexError):
        data = b""
    if len(data) != _SECRET_BYTES or data[:2] != ALGORITHM:
        raise BundleError("it is no minisign secret key")
    sealed = data[2:4] == KDF
    if not sealed and data[2:4] != _KDF_NONE:
        raise BundleError(
            "the secret key is sealed in a way that is not known here: sign the manifest with "
            "`minisign -Sm manifest.json`, or make a key with `steelyard bundle keygen`"
        )
    if sealed:
        if ask is None:
            raise BundleError("the secret key has a passphrase, and none was given")
        data = unsealed(data, _BODY, ask())
    found = SecretKey(data[_BODY : _BODY + 8], data[_BODY + 8 : _BODY + 40])
    if _body_of(found) != data[_BODY:]:
        what = "the passphrase is another, or the secret key is" if sealed else "the secret key is"
        raise BundleError(f"{what} damaged: take your copy of it")
    return found


def _body_of(key: SecretKey) -> bytes:
    """What follows the head in the file of this key."""
    return base64.b64decode(key.text().splitlines()[1])[_BODY:]


def read_secret(path: Path, ask: Callable[[], bytes] | None = None) -> SecretKey:
    """As `parse_secret`. Raises BundleError."""
    return parse_secret(read_small(path), ask)


def write_pair(key: SecretKey, secret: Path) -> Path:
    """Writes the secret key, mode 0600, and the public one beside it, whose path it returns.
    Raises BundleError where either is there already, as a lost key cannot be had again, or cannot
    be written; then neither is left behind."""
    public = secret.with_suffix(".pub")
    if public == secret:
        raise BundleError(f"{public} is the public key's name: give one such as steelyard.key")
    for path in (secret, public):
        if os.path.lexists(path):
            raise BundleError(f"{path} is there already, and is not replaced: give another name")
    made: list[Path] = []
    try:
        for path, text, mode in ((secret, key.text(), 0o600), (public, key.public.text(), 0o644)):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                made.append(path)
                file.write(text.encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        for half in made:
            half.unlink(missing_ok=True)
        raise BundleError(
            f"{path} cannot be made: {error.strerror}. Name a place with room where you may write"
        ) from None
    return public


def key_given(given: str) -> PublicKey:
    """A public key by its file or its one line. Raises BundleError."""
    return parse_key(read_small(Path(given)) if is_file(given) else given)
