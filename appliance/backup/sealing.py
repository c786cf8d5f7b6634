"""A stream that only its passphrase opens: AES-256-GCM in pieces, the key from scrypt.

Each piece is sealed under a nonce of prefix, count and a mark on the last one, and with the header
as associated data: nothing can be changed, left out, moved or cut off unnoticed. The key is of one
file alone, as its salt is.
"""

import io
import os
import struct
from typing import IO

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from appliance.backup.errors import BackupError

MAGIC = b"STEELYARD-SEALED-1\n"
LEAST_PASSPHRASE = 8
"""Bytes."""
_PIECE = 1 << 20
_TAG = 16
N, R, P = 1 << 17, 8, 1
"""128 MiB and some tenths of a second, for us as for who guesses."""
_MOST_N, _MOST_HEADER = 1 << 20, 4096
_LENGTH = struct.Struct(">H")


class Header(msgspec.Struct, frozen=True):
    """How the key is made; not secret."""

    salt: bytes
    prefix: bytes
    n: int
    r: int
    p: int


def check_passphrase(passphrase: bytes) -> bytes:
    """Raises BackupError for one that is too short to protect anything."""
    if len(passphrase) < LEAST_PASSPHRASE:
        raise BackupError(
            f"a passphrase needs at least {LEAST_PASSPHRASE} bytes: take a longer one"
        )
    return passphrase


class SealedWriter(io.RawIOBase):
    """Seals what is written to it. `close` seals the last piece, and leaves `out` open."""

    def __init__(self, out: IO[bytes], passphrase: bytes) -> None:
        self._out = out
        header = Header(os.urandom(16), os.urandom(7), N, R, P)
        self._about = msgspec.json.encode(header)
        self._seal = _Nonces(header, self._about, passphrase)
        self._held = bytearray()
        out.write(MAGIC + _LENGTH.pack(len(self._about)) + self._about)

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        added = bytes(data)  # type: ignore[call-overload]
        self._held += added
        while len(self._held) > _PIECE:  # the last piece is not sealed before the end is known
            piece = bytes(self._held[:_PIECE])
            del self._held[:_PIECE]
            self._out.write(self._seal.seal(piece, last=False))
        return len(added)

    def close(self) -> None:
        if not self.closed:
            self._out.write(self._seal.seal(bytes(self._held), last=True))
        super().close()


class SealedReader(io.RawIOBase):
    """Opens what a SealedWriter sealed, from behind MAGIC on. Raises BackupError."""

    def __init__(self, source: IO[bytes], passphrase: bytes) -> None:
        self._source = source
        about = _exactly(source, _LENGTH.unpack(_exactly(source, _LENGTH.size))[0])
        self._seal = _Nonces(_header(about), about, passphrase)
        self._next = source.read(_PIECE + _TAG)
        self._piece = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        while not self._piece and not self._ended:
            self._open_next()
        view = memoryview(buffer)  # type: ignore[arg-type]
        count = min(len(view), len(self._piece))
        view[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def _open_next(self) -> None:
        sealed, self._next = self._next, self._source.read(_PIECE + _TAG)
        self._ended = not self._next
        self._piece = memoryview(self._seal.open(sealed, last=self._ended))


class _Nonces:
    """Seals or opens one piece after the other."""

    def __init__(self, header: Header, about: bytes, passphrase: bytes) -> None:
        self._cipher = AESGCM(derive(header, passphrase))
        self._prefix, self._about = header.prefix, about
        self._count = 0

    def seal(self, piece: bytes, *, last: bool) -> bytes:
        return self._cipher.encrypt(self._nonce(last), piece, self._about)

    def open(self, sealed: bytes, *, last: bool) -> bytes:
        try:
            return self._cipher.decrypt(self._nonce(last), sealed, self._about)
        except (InvalidTag, ValueError):
            if self._count == 1:
                raise BackupError("the passphrase is not the one, or it is damaged") from None
            raise BackupError("it is cut short or damaged: take another copy of it") from None

    def _nonce(self, last: bool) -> bytes:
        nonce = self._prefix + self._count.to_bytes(4, "big") + bytes([last])
        self._count += 1
        return nonce


def derive(header: Header, passphrase: bytes) -> bytes:
    """The key. Slow, and takes 1 KiB × n × r / 8 of memory: by intent."""
    kdf = Scrypt(salt=header.salt, length=32, n=header.n, r=header.r, p=header.p)
    return kdf.derive(passphrase)


def _header(about: bytes) -> Header:
    try:
        header = msgspec.json.decode(about, type=Header)
    except msgspec.MsgspecError:
        raise BackupError("it is damaged: how it was sealed cannot be read") from None
    power = header.n > 1 and header.n & (header.n - 1) == 0
    small = header.n <= _MOST_N and 1 <= header.r <= 16 and 1 <= header.p <= 4
    if not (power and small and len(header.prefix) == 7 and len(header.salt) == 16):
        raise BackupError("it is damaged: it was sealed as no Steelyard does")
    return header


def _exactly(source: IO[bytes], count: int) -> bytes:
    data = source.read(count)
    if len(data) != count or count > _MOST_HEADER:
        raise BackupError("it is cut short or damaged: take another copy of it")
    return data
