"""Ed25519 signatures, verified only (RFC 8032 §5.1.7), in integers. Standard library only.

An installer must judge a signature before anything from the bundle's wheels may run, on a machine
that has Python and nothing else. Verifying handles no secret, so that slow and plain arithmetic
gives nothing away. Points are (X, Y, Z, T) with x = X/Z, y = Y/Z, x·y = T/Z.
"""

import hashlib

KEY_BYTES = 32
SIGNATURE_BYTES = 64

Point = tuple[int, int, int, int]

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
"""A square root of -1."""
_ZERO: Point = (0, 1, 1, 0)


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `key` made this signature of `message`. False too for what is no key or signature,
    for encodings that are not the shortest, and for keys of small order, which sign anything."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    a, r = _point(key), _point(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= _ORDER or _is_zero(_times(8, a)):
        return False
    digest = hashlib.sha512(signature[:32] + key + message).digest()
    h = int.from_bytes(digest, "little") % _ORDER
    return _same(_times(s, _BASE), _sum(r, _times(h, a)))


def _point(data: bytes) -> Point | None:
    """What 32 bytes encode: y, and in the highest bit whether x is odd. None when nothing."""
    number = int.from_bytes(data, "little")
    y, odd = number & (2**255 - 1), number >> 255
    x = _x_of(y, odd) if y < _P else None
    return None if x is None else (x, y, 1, x * y % _P)


def _x_of(y: int, odd: int) -> int | None:
    """The x of a point with this y: a square root of (y²-1) / (d·y²+1)."""
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and odd):
        return None
    return x if x & 1 == odd else _P - x


def _sum(a: Point, b: Point) -> Point:
    """Complete: it holds for every two points of the curve."""
    left = (a[1] - a[0]) * (b[1] - b[0])
    right = (a[1] + a[0]) * (b[1] + b[0])
    cross = 2 * _D * a[3] * b[3]
    double = 2 * a[2] * b[2]
    e, f, g, h = right - left, double - cross, double + cross, right + left
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(number: int, point: Point) -> Point:
    total = _ZERO
    while number:
        if number & 1:
            total = _sum(total, point)
        point, number = _sum(point, point), number >> 1
    return total


def _same(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % _P == 0 and (a[1] * b[2] - b[1] * a[2]) % _P == 0


def _is_zero(point: Point) -> bool:
    return _same(point, _ZERO)


def _base() -> Point:
    y = 4 * pow(5, -1, _P) % _P
    x = _x_of(y, 0)
    assert x is not None
    return x, y, 1, x * y % _P


_BASE = _base()
