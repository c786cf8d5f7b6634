"""What is true of every screen, and how one looks as text."""

from tui.cells import drawn, letter
from tui.lines import text_of, width_of
from tui.screen import Screen
from tui.view import View


def exact(screen: Screen, view: View) -> None:
    """The body has its height, each row its width, and no sign that a terminal may act on."""
    rows = screen.body(view)
    assert len(rows) == view.body_height
    assert {width_of(row) for row in rows} == {view.width}
    letters = view.words.lang == "en"
    for sign in "".join(map(text_of, rows)):
        assert drawn(sign) or (letters and letter(sign)), repr(sign)
    for key, word in screen.hints(view):
        assert key
        assert word


def printed(screen: Screen, view: View) -> str:
    """The body, trailing blanks cut."""
    return "".join(f"{text_of(row).rstrip()}\n" for row in screen.body(view))
