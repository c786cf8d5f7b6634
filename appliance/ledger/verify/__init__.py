"""Verify a Steelyard ledger without Steelyard: this directory, copied whole, and Python from 3.9.

    python3 -B verify LEDGER.sqlite     a ledger, or a copy of one
    python3 -B verify BUNDLE            a directory made by `steelyard audit export`

Only the standard library, and nothing is ever written.
"""

from .canon import (
    FORMAT,
    GENESIS,
    USAGE_KEY,
    USAGE_SUMS,
    Standing,
    pack_tokens,
    row_hash,
    seal_hash,
    token_digest,
    unpack_tokens,
    usage_of,
)
from .check import verify
from .ed25519 import signed_by
from .verdict import Fault, Verdict

__all__ = [
    "FORMAT",
    "GENESIS",
    "USAGE_KEY",
    "USAGE_SUMS",
    "Fault",
    "Standing",
    "Verdict",
    "pack_tokens",
    "row_hash",
    "seal_hash",
    "signed_by",
    "token_digest",
    "unpack_tokens",
    "usage_of",
    "verify",
]
