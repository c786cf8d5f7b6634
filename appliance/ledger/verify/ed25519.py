"""Ed25519 as in RFC 8032, verification only, in extended coordinates (x, y, z, t)."""

from __future__ import annotations

import hashlib

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_Point = tuple[int, int, int, int]


def _add(a: _Point, b: _Point) -> _Point:
    s, p = (a[1] - a[0]) * (b[1] - b[0]) % _P, (a[1] + a[0]) * (b[1] + b[0]) % _P
    t, z = 2 * a[3] * b[3] * _D % _P, 2 * a[2] * b[2] % _P
    e, f, g, h = p - s, z - t, z + t, p + s
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _point(raw: bytes) -> _Point:
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    sign = raw[31] >> 7
    if y >= _P or (x * x - square) % _P or (not x and sign):
        raise ValueError("not a point of the curve")
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


_BASE = _point((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))


def signed_by(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is the Ed25519 signature of `message` under `public_key`."""
    if len(public_key) != 32 or len(signature) != 64:
        return False
    scalar = int.from_bytes(signature[32:], "little")
    try:
        x, y, z, t = _point(public_key)
    except ValueError:
        return False
    if scalar >= _L:
        return False
    digest = hashlib.sha512(signature[:32] + public_key + message).digest()
    times = int.from_bytes(digest, "little") % _L
    minus = (_P - x, y, z, _P - t)
    both = _add(_BASE, minus)
    total: _Point = (0, 1, 1, 0)
    for bit in range(252, -1, -1):
        total = _add(total, total)
        pick = (scalar >> bit & 1) + 2 * (times >> bit & 1)
        if pick:
            total = _add(total, (_BASE, minus, both)[pick - 1])
    inverse = pow(total[2], -1, _P)
    found = (total[1] * inverse % _P) | ((total[0] * inverse % _P & 1) << 255)
    return found.to_bytes(32, "little") == signature[:32]
