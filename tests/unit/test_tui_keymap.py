"""Keys of the operator's own."""

from pathlib import Path

import pytest

from tests.unit.console_box import make_live, make_rows
from tests.unit.console_shop import open_shop
from tests.unit.console_views import STATE
from tui.dialogs import GLOBAL
from tui.keymap import KNOWN, Keymap, KeymapError, default_file, load
from tui.screens.all import every_screen
from tui.view import View


def keymap(tmp_path: Path, text: str) -> Keymap:
    file = tmp_path / "console.toml"
    file.write_text(text, encoding="utf-8")
    return load(file)


def test_a_moved_key_works_where_it_was_put_and_nowhere_else(tmp_path: Path) -> None:
    keys = keymap(tmp_path, '[keys]\nX = "F8"\n"^P" = "F2"\nq = "Q"\n')
    assert [keys.meaning(key) for key in ("f8", "X", "f2", "ctrl+p", "Q", "q", "j", "escape")] == [
        "X", "", "ctrl+p", "", "q", "", "j", "escape",
    ]  # fmt: skip
    assert [keys.shown(hint) for hint in ("X", "^P", "D")] == ["F8", "F2", "D"]


def test_two_keys_may_be_exchanged(tmp_path: Path) -> None:
    keys = keymap(tmp_path, '[keys]\nj = "k"\nk = "j"\n')
    assert [keys.meaning(key) for key in "jk"] == ["k", "j"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[key]\n", "no section `key`"),
        ("keys = 3\n", "write \\[keys\\]"),
        ('[keys]\nZ = "F5"\n', "has no key `Z`"),
        ('[keys]\nX = "F13"\n', "'F13' is no key"),
        ('[keys]\nX = "你"\n', "is no key"),
        ("[keys]\nX = 5\n", "5 is no key"),
        ('[keys]\nX = "^S"\n', "terminals stop at it"),
        ('[keys]\nX = "D"\n', "X and D would both be on D"),
        ('[keys]\nX = "F5"\nD = "F5"\n', "would both be on F5"),
        ("[keys\n", "not valid TOML"),
        ("[keys]\n" + "#" * 70_000, "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(KeymapError, match=what) as raised:
        keymap(tmp_path, text)
    assert str(tmp_path) in str(raised.value)


def test_only_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    assert load(tmp_path / "none.toml", must=False) == Keymap()
    with pytest.raises(KeymapError, match="no such file"):
        load(tmp_path / "none.toml")
    assert default_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/steelyard/console.toml")
    assert default_file({"HOME": "/h"}) == Path("/h/.config/steelyard/console.toml")


def test_every_key_that_the_console_shows_can_be_moved() -> None:
    view = View(
        width=200, live=make_live(), rows=make_rows(3), state=STATE, link="ok", operator="alice"
    )
    shown = {key for screen in every_screen() for key, _ in screen.hints(view)}
    shown |= {key for key, _ in GLOBAL} - {"1-9"}
    assert shown <= KNOWN


async def test_the_console_takes_and_shows_the_moved_keys(tmp_path: Path) -> None:
    keys = keymap(tmp_path, '[keys]\n"2" = "F7"\n"?" = "F3"\nD = "F9"\n')
    async with open_shop(tmp_path, every_screen(), keymap=keys) as it:
        assert "F3 help" in it.text[-1]
        assert "F9 " in it.text[-1]
        await it.press("2")
        assert "1>Overview" in it.text[0]
        await it.press("f7")
        assert "2>Requests" in it.text[0]
        await it.press("f3")
        assert "Help" in it.screen
        await it.press("escape")
        # A dialog takes `y`, and what is typed into a field is text.
        await it.press("slash", "2", "D")
        assert it.desk.screen.found == "2D"


async def test_a_text_field_keeps_its_keys_and_the_palette_its_moved_one(tmp_path: Path) -> None:
    keys = keymap(tmp_path, '[keys]\n"^P" = "F2"\nq = "Q"\n')
    async with open_shop(tmp_path, every_screen(), keymap=keys) as it:
        await it.press("8", "N")
        it.desk.go(8)
        if not it.desk.screen.typing:
            await it.press("enter")
        assert it.desk.screen.typing
        await it.press("q", "Q")
        assert "qQ" in it.screen
        await it.press("f2")
        assert it.desk.box is not None
