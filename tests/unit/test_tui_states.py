"""Every screen in every state and both sizes, as it is drawn: texts, and what each part means, from
which a theme makes colours. And every screen as a picture, in colours and without."""

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from tests.unit.console_picture import StillLink, still_console
from tests.unit.console_views import STATES, past, view
from tests.unit.golden import agree
from tui.cells import cells
from tui.frame import whole
from tui.lines import Line, text_of, width_of
from tui.screens.all import every_screen
from tui.theme import THEMES

NAMES = [screen.name for screen in every_screen()]
SIZES = {"80x24": (80, 24), "140x45": (140, 45)}


def drawn(name: str, state: str, size: str) -> list[Line]:
    screens = every_screen()
    screen = next(one for one in screens if one.name == name)
    width, height = SIZES[size]
    history = past(900) if width > 100 else {}
    return whole(view(state, width=width, height=height, history=history), screen, screens)


def marked(lines: list[Line]) -> str:
    """The text, and below each row that has any the cells that are not plain."""
    out: list[str] = []
    for line in lines:
        out.append(text_of(line).rstrip())
        at, marks = 0, []
        for span in line:
            end = at + cells(span.text)
            if span.role != "plain" and span.text.strip():
                marks.append(f"{at}-{end} {span.role}")
            at = end
        if marks:
            out.append(f"    ^ {', '.join(marks)}")
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", NAMES)
def test_every_screen_in_every_state(name: str, state: str, size: str) -> None:
    lines = drawn(name, state, size)
    width, height = SIZES[size]
    assert len(lines) == height
    assert {width_of(line) for line in lines} == {width}
    agree(f"states/{name}-{state}-{size}", marked(lines))


def test_without_colour_alarms_differ_from_plain_text_and_from_each_other() -> None:
    mono = THEMES["mono"]
    assert all(style.color is None and style.bgcolor is None for style in mono.values())
    loud = {str(mono[role]) for role in ("alarm1", "select", "bold", "plain", "dim")}
    assert len(loud) >= 4


@pytest.mark.parametrize("theme", ["dark", "mono"])
@pytest.mark.parametrize("number", range(1, 10))
def test_every_screen_as_a_picture(
    number: int, theme: str, snap_compare: Callable[..., bool]
) -> None:
    assert pictured(number, theme, (80, 24), snap_compare)


@pytest.mark.parametrize("theme", ["dark", "mono"])
@pytest.mark.parametrize("number", range(1, 10))
def test_every_screen_as_a_large_picture(
    number: int, theme: str, snap_compare: Callable[..., bool]
) -> None:
    assert pictured(number, theme, (140, 45), snap_compare)


def pictured(
    number: int, theme: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> bool:
    link = StillLink()
    console = still_console(link, theme=theme)

    async def opened(pilot: Pilot[None]) -> None:
        await pilot.press(str(number))
        await link.told(console)
        console._paint()
        await pilot.pause()

    return snap_compare(console, run_before=opened, terminal_size=size)
