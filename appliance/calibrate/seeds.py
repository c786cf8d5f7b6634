"""Seeds that depend on what they are for alone, so that a calibration can be repeated."""

import hashlib


def seed_of(prompt: str, sample: int) -> int:
    """0 to 2^31 - 1, of a prompt's name and the number of its sample."""
    digest = hashlib.sha256(f"{prompt}/{sample}".encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:4], "little") % (1 << 31)
