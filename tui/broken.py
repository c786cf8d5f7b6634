"""What stands in for a screen that could not be drawn."""

from tui.lines import Line, fill, line, wrap
from tui.screen import Screen
from tui.view import View


class Broken(Screen):
    """Says where the report is. Enter puts the screen itself back."""

    def __init__(self, screen: Screen, file: str) -> None:
        self.screen: Screen = screen.screen if isinstance(screen, Broken) else screen
        self.number = self.screen.number  # type: ignore[misc]
        self.name = self.screen.name  # type: ignore[misc]
        self._file = file

    def body(self, view: View) -> list[Line]:
        text = view.words("desk.broke", view.foreign(self._file))
        rows = [line(row) for row in ("", *wrap(text, view.width))]
        return fill(rows, view.width, view.body_height)
