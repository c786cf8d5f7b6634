"""RSA-2048 with SHA-256 (PKCS #1 v1.5): only checked here, one multiplication at a time.

Seventeen multiplications of 2048 bits are all it takes, with integers that MicroPython has; so the
board's loop goes on in between, and no curve needs to be written. The padding is built and
compared whole: there is nothing to parse, and nothing to parse wrongly.
"""

import hashlib

try:  # noqa: SIM105 - MicroPython does not know contextlib
    from collections.abc import Generator
except ImportError:  # nor this
    pass

BITS = 2048
EXPONENT_SQUARINGS = 16
"""The exponent is 65537."""
DIGEST_INFO = bytes(
    [0x30, 0x31, 0x30, 0x0D, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01,
     0x05, 0x00, 0x04, 0x20]
)  # fmt: skip


def padded(digest: bytes) -> bytes:
    """What the signature of a SHA-256 digest must be the root of."""
    tail = b"\0" + DIGEST_INFO + digest
    return b"\0\x01" + b"\xff" * (BITS // 8 - 2 - len(tail)) + tail


def check(text: bytes, signature: bytes, modulus: int) -> "Generator[None, None, bool]":
    """A generator that pauses after each multiplication; it returns whether `signature` is that of
    `text` by the key with this modulus."""
    value = int.from_bytes(signature, "big")
    if len(signature) != BITS // 8 or modulus >> (BITS - 1) != 1 or value >= modulus:
        return False
    wanted = int.from_bytes(padded(hashlib.sha256(text).digest()), "big")
    power: int = value
    for _ in range(EXPONENT_SQUARINGS):
        power = power * power % modulus
        yield
    return power * value % modulus == wanted


def moduli(text: bytes, most: int) -> list[int]:
    """The keys of the file that the board trusts, one in hex a line; lines that are none are left
    out."""
    found = []
    for line in text.split(b"\n")[:most]:
        try:
            value = int(line.strip().decode(), 16)
        except ValueError:
            continue
        if value >> (BITS - 1) == 1:
            found.append(value)
    return found
