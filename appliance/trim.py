"""Memory that is given back, with what glibc offers; elsewhere nothing happens."""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8
_KEPT_BYTES = 64 * 1024
"""Free at the top of the heap, before it is given back. Left alone, glibc raises this by itself."""
_ARENAS = 2
"""Pools of memory for all threads: each keeps what it once needed."""


def be_frugal() -> None:
    """From now on. For processes that compute little: giving back and asking again takes time."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        tune(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        tune(_M_ARENA_MAX, _ARENAS)


def trim() -> None:
    """What was read to be checked and then turned into something smaller (a forecaster, a
    vocabulary) leaves holes that the C library keeps."""
    gc.collect()
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
