"""The windows of the control loop on screen 3: raw, filtered, valid, and the newest 64 samples."""

import math
from collections.abc import Sequence

import msgspec

from tui.cells import cells, clip
from tui.figures import NONE, UNKNOWN, centred, number
from tui.grid import Column, Grid
from tui.lines import Line, line
from tui.view import View

FULL = 64
"""Samples of a window."""
_NAME = 22
_NARROW, _WIDE = 18, 32
"""Cells of the newest samples: Braille has two in one."""


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """One of GET /admin/control."""

    channel: str
    kind: str = "tokens"
    unit: str = ""
    n: int = 0
    raw: float | None = None
    filtered: float = 0.0
    valid: bool = False
    sd_ratio: float | None = None
    quality: str = ""
    window: tuple[float | None, ...] = ()


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """What screen 3 reads of GET /admin/control."""

    tau: float | None = None
    channels: tuple[Channel, ...] = ()


def signed(value: float | None) -> str:
    """`+.08`, `-1.2`, `.00`: five cells at most."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= 9.995:
        return f"{value:+.0f}" if abs(value) < 9999 else UNKNOWN
    text = f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text


def _named(row: Channel, view: View) -> str:
    """`MODEL/ROUTE` with the model cut where both are too long."""
    channel = view.foreign(row.channel)
    model, slash, route = channel.rpartition("/")
    room = max(1, _NAME - cells(route) - 1)
    return f"{clip(model, room)}{slash}{route}" if slash else channel


def _valid(row: Channel, view: View) -> str:
    if row.valid:
        return view.words("calibration.valid.yes")
    return view.words("calibration.valid.few" if row.n < FULL // 2 else "calibration.valid.no")


def _force(row: Channel, view: View) -> str:
    """What is applied: a factor on lengths, or what is taken off a sensor."""
    if not row.valid:
        return NONE
    if row.kind != "tokens":
        return signed(-row.filtered)
    factor = math.exp(min(9.0, max(-9.0, row.filtered))) if math.isfinite(row.filtered) else None
    return UNKNOWN if factor is None else f"x{number(factor)}"


def columns_of(view: View, wide: bool) -> Sequence[Column[Channel]]:
    size = _WIDE if wide else _NARROW
    return (
        Column("calibration.col.channel", 13, _named, most=_NAME),
        Column("calibration.col.n", 5, lambda row, _: f"{min(row.n, 999)}/{FULL}", right=True),
        Column("calibration.col.raw", 5, lambda row, _: signed(row.raw), right=True),
        Column("calibration.col.filtered", 5, lambda row, _: signed(row.filtered), right=True),
        Column("calibration.col.valid", 5, _valid, right=True),
        Column("calibration.col.sd", 6, lambda row, _: number(row.sd_ratio), right=True),
        Column("calibration.col.force", 5, _force, right=True),
        Column(
            "calibration.col.window",
            size,
            lambda row, v: centred(row.window, size, v.ascii),
            rank=1,
        ),
    )


def channels(view: View, control: Control, room: int, *, wide: bool) -> list[Line]:
    """Head, and as many channels as there is room for; nothing while there are none. Where a head
    would stand alone, only how many there are."""
    rows = control.channels
    if not rows or room < 1:
        return []
    if room < min(3, len(rows) + 1):
        return [line(f" {view.words('calibration.channels', len(rows))}")]
    grid: Grid[Channel] = Grid(columns_of(view, wide), view.width - 3)
    shown = rows if len(rows) <= room - 1 else rows[: max(0, room - 2)]
    lines = [grid.head(view), *(_indented(grid.row(row, view)) for row in shown)]
    if len(shown) < len(rows):
        lines.append(line(f" {view.words('calibration.more', len(rows) - len(shown))}"))
    return lines


def _indented(row: Line) -> Line:
    return (*line(" "), *row)
