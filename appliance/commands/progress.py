"""How far a long job is, on standard error: one line that is drawn over itself on a terminal, else
a line now and then."""

import shutil
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


def bar_of(share: float) -> str:
    """The bar and the percentage, of a share from 0 to 1."""
    full = round(share * _WIDTH)
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {100 * share:3.0f} %"


class Line:
    """The line. Nothing of a job that is done within the first moment."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._over = sys.stderr.isatty()
        self._said_at = time.monotonic()
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Leaves the terminal's line empty."""
        if self._drawn:
            click.echo("\r\x1b[K", nl=False, err=True)

    def say(self, line: str, *, news: bool = False) -> None:
        """Shows the line, unless one was shown a moment ago; `news` are shown in any case."""
        now = time.monotonic()
        due = now - self._said_at >= (_REDRAW_S if self._over else _PLAIN_S)
        if self._quiet or not (news or due):
            return
        self._said_at = now
        if self._over:
            self._drawn = True
            # A line that wraps could not be drawn over.
            line = f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}"
        click.echo(line, nl=not self._over, err=True)


class Working(Line):
    """For jobs that tell phase, done and total."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._phase = ""
        self._began = time.monotonic()

    def tell(self, phase: str, done: int, total: int) -> None:
        """The phase is at `done` of `total`."""
        if phase != self._phase:
            self._phase, self._began = phase, time.monotonic()
        self.say(line_of(phase, done, total, time.monotonic() - self._began))


def line_of(phase: str, done: int, total: int, took_s: float) -> str:
    """The bar as text, with the time left once that can be told."""
    share = min(1.0, done / total) if total > 0 else 1.0
    eta = f"ETA {took_s / share - took_s:.0f} s" if share > 0 and took_s >= _ETA_AFTER_S else ""
    return f"{phase:8} {bar_of(share)}  {eta}".rstrip()
