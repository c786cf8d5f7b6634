"""A bar for jobs that tell how far they are: phase, done, total."""

import sys
import time
from types import TracebackType
from typing import Self

import click

_WIDTH = 24
_REDRAW_S = 0.1
_PLAIN_S = 10.0
"""Between two lines where the output is no terminal."""
_ETA_AFTER_S = 1.0


class Working:
    """Draws on standard error: over one line of a terminal, else a line now and then. Nothing of a
    job that is done within the first moment."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._over = sys.stderr.isatty()
        self._phase = ""
        self._began = self._drawn_at = time.monotonic()
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._drawn and self._over:
            click.echo("\r\x1b[K", nl=False, err=True)

    def tell(self, phase: str, done: int, total: int) -> None:
        """The phase is at `done` of `total`."""
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began = phase, now
        if self._quiet or now - self._drawn_at < (_REDRAW_S if self._over else _PLAIN_S):
            return
        self._drawn_at, self._drawn = now, True
        line = line_of(phase, done, total, now - self._began)
        click.echo(f"\r\x1b[K{line}" if self._over else line, nl=not self._over, err=True)


def line_of(phase: str, done: int, total: int, took_s: float) -> str:
    """The bar as text."""
    share = min(1.0, done / total) if total > 0 else 1.0
    full = round(share * _WIDTH)
    eta = f"ETA {took_s / share - took_s:.0f} s" if share > 0 and took_s >= _ETA_AFTER_S else ""
    bar = f"{'#' * full}{'.' * (_WIDTH - full)}"
    return f"{phase:8} [{bar}] {100 * share:3.0f} %  {eta}".rstrip()
