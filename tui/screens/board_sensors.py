"""The sensors on screen 6: what they read, how good that is, and how far they were off."""

from collections.abc import Sequence

from appliance.frames import Sensor
from tui import figures
from tui.cells import clip
from tui.filters import Field
from tui.grid import Column, Grid
from tui.lines import Line, line, paint
from tui.screen import Table
from tui.view import View

AROUND = 3
"""Rows beside those of sensors: a blank one, the head, what is said of the one at the cursor."""
_NARROW, _WIDE, _ROOMY = 8, 32, 120
"""Cells of the residuals, and of a screen from which they are wide."""


def table() -> Table[Sensor]:
    return Table(lambda sensor: f"{sensor.source} {sensor.name}", fields)


def fields(sensor: Sensor) -> dict[str, Field]:
    """For `/`."""
    return {
        "name": sensor.name,
        "source": sensor.source,
        "quality": _quality(sensor),
        "unit": sensor.unit,
        "value": _value(sensor),
    }


def ordered(sensors: Sequence[Sensor]) -> list[Sensor]:
    """Those that tell something first."""
    return sorted(sensors, key=lambda sensor: sensor.quality != "ok")


def lines(sensors: Table[Sensor], view: View, height: int) -> list[Line]:
    """In `height` rows, as many as there are or fit; the cursor's own words below them."""
    grid = Grid(_columns(view.width), view.width - 3)
    if not sensors.rows:
        return [(), grid.head(view), line(f" {view.words('board.no_match')}")]
    rows = sensors.draw(
        view.width,
        min(len(sensors.rows), max(1, height - AROUND)),
        lambda sensor: _row(sensor, grid, view),
    )
    current = sensors.current
    about = _about(current, view) if current is not None else ""
    return [(), grid.head(view), *rows, line(clip(f" {about}", view.width))]


def _row(sensor: Sensor, grid: Grid[Sensor], view: View) -> Line:
    row = grid.row(sensor, view)
    out = figures.outside(_value(sensor), sensor.lo, sensor.hi)
    return paint(row, "bold") if out else row


def _value(sensor: Sensor) -> float | None:
    return sensor.value if sensor.quality == "ok" else None


def _quality(sensor: Sensor) -> str:
    """ok, sparse, holdover, stale, unknown: the worse of what it is and what its references say."""
    return sensor.quality if sensor.quality != "ok" else sensor.drift or "ok"


def _about(sensor: Sensor, view: View) -> str:
    """Why it is not known; else what was taken off, and how sure it is."""
    name, unit = view.foreign(sensor.name), view.foreign(sensor.unit)
    if sensor.why:
        return f"{name}: {view.foreign(sensor.why)}"
    parts = [name]
    if sensor.off is not None:
        parts.append(view.words("board.off_by", figures.with_unit(sensor.off, unit)))
    if sensor.sigma is not None:
        parts.append(view.words("board.sigma", figures.with_unit(sensor.sigma, unit)))
    return "  ".join(parts) if len(parts) > 1 else ""


def _quality_word(sensor: Sensor, view: View) -> str:
    quality = _quality(sensor)
    return view.words.or_else(f"board.quality_{quality}", view.foreign(quality))


def _residuals(sensor: Sensor, view: View, width: int) -> str:
    """The newest 64, zero half way up; nothing without references."""
    return figures.centred(sensor.resid, width, view.ascii) if sensor.resid else ""


def _columns(width: int) -> tuple[Column[Sensor], ...]:
    """Residuals get as many cells as they have samples, where there is room: Braille has two in
    one."""
    size = _WIDE if width >= _ROOMY else _NARROW
    return (
        Column("board.sensor", 21, lambda sensor, view: view.foreign(sensor.name), most=34),
        Column("board.reading", 10, _reading, right=True),
        Column("board.band", 9, lambda sensor, _: figures.bounds(sensor.lo, sensor.hi)),
        Column("board.place", 10, lambda sensor, _: _place(sensor)),
        Column("board.quality", 8, _quality_word),
        Column("board.source", 5, lambda sensor, view: view.foreign(sensor.source), most=8),
        Column(
            "board.residuals", size, lambda sensor, view: _residuals(sensor, view, size), rank=1
        ),
    )


def _reading(sensor: Sensor, view: View) -> str:
    return figures.with_unit(_value(sensor), view.foreign(sensor.unit))


def _place(sensor: Sensor) -> str:
    return figures.band(_value(sensor), sensor.lo, sensor.hi)
