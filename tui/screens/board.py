"""Screen 6: what measures the box. A table once something does; till then, why there is none."""

from dataclasses import dataclass
from typing import Any, ClassVar

from appliance.frames import Board as Told
from appliance.frames import Live, Sensor
from tui import figures
from tui.lines import Line, columns, fill, line, paint, wrap
from tui.screen import Effect, Go, Hint, Query, Screen, Table, Tell
from tui.screens import board_acts, board_sensors
from tui.screens.board_lines import EVENTS, told
from tui.view import View

_WIDTHS = (16, 10, 10, 10)
_SPARK = 30
"""Cells of a curve at most."""
_ROOMY = 30
"""Rows of a body that has room for events and sensors."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A number of `live` that a sensor gives."""

    name: str
    """Its word is `board.<name>`."""
    band: str
    field: str
    unit: str
    scale: float = 1.0
    """From the field's unit to the one shown."""


READINGS = (
    Reading("temperature", "temp", "temp_c", "C"),
    Reading("power", "power", "power_w", "W"),
    Reading("energy", "j_per_tok", "j_per_tok", "J/tok"),
    Reading("watchdog", "dog_left", "dog_left_ms", "s", 1e-3),
)


class Board(Screen):
    number: ClassVar[int] = 6
    name: ClassVar[str] = "board"

    def __init__(self) -> None:
        self._images: board_acts.Images = ()
        self.sensors = board_sensors.table()
        self.table: Table[Any] | None = self.sensors

    def body(self, view: View) -> list[Line]:
        live = view.live
        if live is None:
            lines = [line(f" {view.words('frame.no_data', view.foreign(view.url))}")]
        elif _measured(live) or _sensors(view):
            lines = self._table(view, live)
        else:
            lines = _empty(view, live)
        lines = fill([(), *lines], view.width, view.body_height)
        return [paint(row, "dim") for row in lines] if view.stale else lines

    def _table(self, view: View, live: Live) -> list[Line]:
        """Readings, the board, then the sensors in what is left; where that is little, only the
        board's last event is told."""
        board = view.state.board if view.state is not None else Told(state=live.board_state)
        sensors = _sensors(view)
        self.sensors.show(board_sensors.ordered(sensors))
        few = bool(sensors) and view.body_height < _ROOMY
        lines = [*_readings(view, live), (), *told(view, board, 1 if few else EVENTS)]
        room = view.body_height - 1 - len(lines)
        return [*lines, *(board_sensors.lines(self.sensors, view, room) if sensors else [])]

    def hints(self, view: View) -> list[Hint]:
        words = view.words
        acts = [
            ("E", words("board.hint_output")),
            ("H", words("board.hint_inhibit")),
            ("U", words("board.hint_update")),
        ]
        return [*(acts if board_acts.there(view) else []), ("Enter", words("board.hint_setup"))]

    def press(self, key: str, view: View) -> Effect | None:
        if key == "enter":
            return Go(9)
        if key in ("escape", "backspace"):
            self.sensors.find("")
        if view.state is None or key not in ("E", "H", "U"):
            return super().press(key, view)
        board = view.state.board
        if not board_acts.there(view):
            return Tell(view.words("board.not_there"))
        if key == "E":
            return board_acts.drive(view, board)
        if key == "H":
            return board_acts.inhibit(view, board)
        return board_acts.update(view, board, self._images)

    def wants(self, view: View) -> tuple[Query, ...]:
        """Images, where there is a board to bring them onto and somebody who may."""
        return (board_acts.IMAGES,) if board_acts.there(view) and not view.read_only else ()

    def receive(self, query: Query, data: Any, error: str | None) -> None:
        if error is None:
            self._images = board_acts.images_of(data)


def _measured(live: Live) -> bool:
    """Whether anything on this screen is known."""
    known = (getattr(live, reading.field) is not None for reading in READINGS)
    return live.board_state != "none" or any(known)


def _empty(view: View, live: Live) -> list[Line]:
    """One sentence, what the box says of it, and the key that leads on."""
    texts = [view.words("board.empty")]
    if detail := _said(view):
        texts.append(view.words("board.says", view.foreign(detail)))
    texts.append(view.words("board.leads"))
    return [line(f" {row}") for text in texts for row in wrap(text, view.width - 2)]


def _said(view: View) -> str:
    steps = view.state.setup if view.state is not None else ()
    said = next((step.detail for step in steps if step.step == "board"), "")
    return "" if said == "none" else said  # the sentence above says that already


def _readings(view: View, live: Live) -> list[Line]:
    words = view.words
    titles = (words("board.measured"), words("board.reading"), words("board.band"), "")
    head = (*paint(columns(titles, _WIDTHS, "<><<"), "bold"), *line(f" {words('board.past')}"))
    return [head, *(_row(view, live, reading) for reading in READINGS)]


def _sensors(view: View) -> tuple[Sensor, ...]:
    return view.state.sensors if view.state is not None else ()


def _row(view: View, live: Live, reading: Reading) -> Line:
    """Name, number with its unit, band, place in it, and the last minute where it is kept."""
    value = _scaled(getattr(live, reading.field), reading)
    lo, hi = (_scaled(bound, reading) for bound in view.band(reading.band))
    shown = figures.with_unit(value, reading.unit)
    spark = figures.spark(
        view.past.get(reading.field, ()), min(_SPARK, view.width - 51), view.ascii
    )
    name = view.words(f"board.{reading.name}")
    texts = (name, shown, figures.bounds(lo, hi), figures.band(value, lo, hi))
    row = (*columns(texts, _WIDTHS, "<><<"), *line(f" {spark}"))
    return paint(row, "bold") if figures.outside(value, lo, hi) else row


def _scaled(value: float | None, reading: Reading) -> float | None:
    return None if value is None else value * reading.scale
