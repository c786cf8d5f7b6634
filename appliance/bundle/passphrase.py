"""The seal of a minisign secret key that has a passphrase.

    2 bytes "Sc" | 2 "B2" | salt (32) | opslimit (8, little-endian) | memlimit (8) | body (104)

The body is XORed with what scrypt makes of the passphrase; how hard scrypt works follows from the
two limits, as libsodium's `crypto_pwhash_scryptsalsa208sha256` has it.
"""

import hashlib
import struct

from appliance.bundle.errors import BundleError

KDF = b"Sc"
MOST_MEMORY = 1 << 30
"""Bytes that scrypt may take; minisign's own keys take as many, or fewer."""
MOST_WORK = 1 << 20
"""Of N times p: some seconds."""
_LIMITS = struct.Struct("<QQ")
_BLOCK = 8
_FEWEST_OPS = 32768
_SALT = slice(6, 38)
_LIMITS_AT = 38


def unsealed(data: bytes, body_at: int, passphrase: bytes) -> bytes:
    """The whole key with its body in clear; garbage for another passphrase. Takes seconds and a GiB
    of memory, as is meant. Raises BundleError."""
    cost, parallel = work(*_LIMITS.unpack_from(data, _LIMITS_AT))
    need = 128 * _BLOCK * (cost + parallel + 2)
    if need > MOST_MEMORY + (1 << 20) or cost * parallel > MOST_WORK:
        raise BundleError(
            "to check the secret key's passphrase would take more than any key of minisign's does: "
            "the file is damaged, take your copy of it"
        )
    try:
        stream = hashlib.scrypt(
            passphrase,
            salt=data[_SALT],
            n=cost,
            r=_BLOCK,
            p=parallel,
            maxmem=need + (1 << 20),
            dklen=len(data) - body_at,
        )
    except (MemoryError, ValueError):
        raise BundleError(
            f"checking the passphrase takes {need >> 20} MiB of memory, which are not free here: "
            "make room, or sign on another machine"
        ) from None
    return data[:body_at] + bytes(
        one ^ other for one, other in zip(data[body_at:], stream, strict=True)
    )


def work(ops: int, memory: int) -> tuple[int, int]:
    """scrypt's N and p for libsodium's limits; r is always 8."""
    ops = max(ops, _FEWEST_OPS)
    if ops < memory // 32:
        return _power(ops // (_BLOCK * 4)), 1
    cost = _power(memory // (_BLOCK * 128))
    return cost, max(1, min(ops // 4 // cost, 0x3FFFFFFF) // _BLOCK)


def _power(most: int) -> int:
    """The smallest power of two, from 2, that is more than half of `most`."""
    exponent = 1
    while exponent < 63 and 1 << exponent <= most // 2:
        exponent += 1
    return 1 << exponent
