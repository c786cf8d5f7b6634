"""The box's own signing key (Ed25519), made when it is first needed.

The public half lies beside it, to be given to whoever checks the ledger. A key that changed shows:
each key that signed is itself named in the chain.
"""

import contextlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from appliance import durable
from appliance.ledger.errors import LedgerError
from appliance.ledger.verify.seals import key_id

KEY_FILE = "ledger-key.pem"
PUBLIC_FILE = "ledger-key.pub"


class Signer:
    """Signs seals and bundles."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = key.public_key().public_bytes_raw()
        self.id = key_id(self.public_key)
        """Its short name: hex of the first 8 bytes of the public key's SHA-256."""

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def public_pem(self) -> bytes:
        """As `openssl pkey -pubin` reads it."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def open_signer(state_dir: Path) -> Signer:
    """The box's key, made if it is missing. Raises LedgerError."""
    path = state_dir / KEY_FILE
    try:
        if not path.exists():
            _make(path)
        signer = Signer(_read(path))
        _publish(state_dir / PUBLIC_FILE, signer.public_pem())
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be read or made ({error.strerror}): check the owner, permissions and "
            "free space of its directory, or set ledger.sign = false"
        ) from error
    return signer


def _read(path: Path) -> Ed25519PrivateKey:
    if path.stat().st_mode & 0o077:
        raise LedgerError(f"{path} can be read by others, who could sign with it: chmod 600 {path}")
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _unfit(path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unfit(path)
    return key


def _unfit(path: Path) -> LedgerError:
    return LedgerError(
        f"{path} is no Ed25519 private key in PEM without a password: restore it from a backup, or "
        "move it away and a new one is made"
    )


def _make(path: Path) -> None:
    """Whole or not at all, and never in place of one that another process made just now."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        durable.create(path, pem, 0o600)


def _publish(path: Path, pem: bytes) -> None:
    if not path.is_file() or path.read_bytes() != pem:
        durable.replace(path, pem, 0o644)
