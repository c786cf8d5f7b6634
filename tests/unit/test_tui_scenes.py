"""What an operator sees when something is wrong, or nothing is there yet: pictures of the screens
on which that shows. After a change that is meant: `--snapshot-update`, and look at each."""

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from tests.unit.console_picture import still_console
from tests.unit.console_states import SCENES
from tui.lines import text_of

SMALL, LARGE = (80, 24), (140, 45)
PICTURES = (
    *(("empty", number, SMALL, "dark", "en") for number in (1, 3, 4, 6, 9)),
    *(("overload", number, SMALL, "dark", "en") for number in (1, 2)),
    *(("degraded", number, SMALL, "dark", "en") for number in (1, 3, 6, 7, 9)),
    *(("down", number, SMALL, "dark", "en") for number in (1, 7)),
    *(("lost", number, SMALL, "dark", "en") for number in (1, 4)),
    # Without colour.
    ("overload", 1, SMALL, "mono", "en"),
    ("degraded", 6, SMALL, "mono", "en"),
    ("down", 7, SMALL, "mono", "en"),
    ("lost", 2, SMALL, "mono", "en"),
    # With room.
    ("overload", 2, LARGE, "dark", "en"),
    ("degraded", 1, LARGE, "dark", "en"),
    ("down", 7, LARGE, "mono", "en"),
    ("lost", 1, LARGE, "dark", "en"),
    # In Chinese.
    ("overload", 1, SMALL, "dark", "zh"),
    ("degraded", 6, SMALL, "mono", "zh"),
    ("down", 7, SMALL, "dark", "zh"),
)


@pytest.mark.parametrize(
    ("scene", "number", "size", "theme", "lang"),
    PICTURES,
    ids=[f"{scene}-{at}-{size[0]}-{theme}-{lang}" for scene, at, size, theme, lang in PICTURES],
)
def test_a_picture(
    scene: str,
    number: int,
    size: tuple[int, int],
    theme: str,
    lang: str,
    snap_compare: Callable[..., bool],
) -> None:
    shown = SCENES[scene]
    link = shown.link()
    console = still_console(link, theme=theme, lang=lang)

    async def opened(pilot: Pilot[None]) -> None:
        await pilot.press(str(number))
        await shown.shown(console, link, pilot)

    assert snap_compare(console, run_before=opened, terminal_size=size)


@pytest.mark.parametrize("scene", SCENES)
async def test_what_is_wrong_and_what_to_do_stand_on_every_screen(scene: str) -> None:
    """Row 1 says it, row 23 why and which key; the alarms' own list tells them whole."""
    word, remedy = {
        "empty": ("SERVING", ""),
        "overload": ("OVERLOAD", "2 shows them, T throttles"),
        "degraded": ("DEGRADED gpu,board,forecast", "7 shows it"),
        "down": ("DOWN", "7 shows it, R restarts"),
        "lost": ("LOST 42s, retry 3 s", "is the daemon up, is --url right?"),
    }[scene]
    shown = SCENES[scene]
    link = shown.link()
    console = still_console(link)
    async with console.run_test(size=SMALL) as pilot:
        for number in range(1, 10):
            await pilot.press(str(number))
            await shown.shown(console, link, pilot)
            rows = [text_of(row).rstrip() for row in console.desk.lines()]
            assert word in rows[0]
            assert remedy in rows[-2]
            assert bool(rows[-2]) is bool(remedy)
        await pilot.press("0")
        told = " ".join(text_of(row).strip(" |") for row in console.desk.lines())
        for alarm in shown.state.alarms:
            assert alarm.text.rpartition(". ")[2] in told
        assert ("No alarm." in told) is not bool(shown.state.alarms)
