"""The rows around a screen: exact in width, whatever the box sends, on any terminal."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.console_draws import views
from tests.unit.console_views import view
from tui.cells import drawn, letter
from tui.dialogs import Dialog, asked, choosing, help_of, prompt, shown
from tui.frame import alarm_text, header, key_row, shortened, whole
from tui.lines import Line, fill, line, text_of, width_of
from tui.screen import Ask, Call, Choose, Hint, Screen, Show
from tui.view import View, link_of

NAMES = (
    "overview", "requests", "calibration", "accounts", "audit", "board", "engine", "chat", "setup",
)  # fmt: skip
CALL = Call("POST", "/admin/drain")


class Plain(Screen):
    """A screen that fills its body with dots."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number  # type: ignore[misc]
        self.name = name  # type: ignore[misc]

    def body(self, view: View) -> list[Line]:
        return fill([line("." * view.width)] * view.body_height, view.width, view.body_height)

    def hints(self, view: View) -> list[Hint]:
        return [("T", "throttle"), ("D", "drain"), ("s", "sort")]


SCREENS = tuple(Plain(at + 1, name) for at, name in enumerate(NAMES))


def texts(view: View, dialog: Dialog | None = None) -> list[str]:
    return [text_of(row) for row in whole(view, SCREENS[1], SCREENS, dialog)]


def dialogs(view: View) -> tuple[Dialog | None, ...]:
    return (
        None,
        asked(Ask("Drain?", ("New requests get 503. " * 9, "中文 " * 50), CALL), view),
        asked(Ask("Update?", ("It restarts.",), CALL, typed="box7"), view, "box"),
        choosing(
            Choose("Rate", tuple((str(n), f"{n} 个") for n in range(40)), lambda _: CALL), view, 33
        ),
        shown(Show("Secret", ("sk-steelyard-" + "x" * 80,)), view),
        help_of(view, SCREENS[1]),
        prompt("/", "key:crm", view, (("Enter", "filter"),)),
    )


@settings(max_examples=75, suppress_health_check=list(HealthCheck), deadline=None)
@given(views(least=1, heights=(1, 60)), st.integers(0, 6))
def test_every_line_has_the_terminals_width(view: View, which: int) -> None:
    rows = whole(view, SCREENS[1], SCREENS, dialogs(view)[which])
    assert len(rows) == view.height
    assert {width_of(row) for row in rows} == {view.width}
    loose = view.words.lang != "zh" and not view.ascii
    assert all(drawn(sign) or (loose and letter(sign)) for row in rows for sign in text_of(row))


def test_the_header_says_age_then_place_then_screens_then_who() -> None:
    row = texts(view())[0]
    assert row == (
        "age 0.1s  box7 SERVING  1Ov 2>Requests 3Ca 4Ac 5Au 6Bo 7En 8Ch 9Se         alice"
    )


def test_a_wide_header_has_the_whole_names() -> None:
    assert "1 Overview 2>Requests 3 Calibration 4 Accounts" in texts(view(width=140))[0]


def test_a_narrow_header_keeps_age_and_state_longest() -> None:
    assert texts(view(width=44))[0].rstrip() == "age 0.1s  box7 SERVING  2>Requests     alice"
    assert texts(view(width=36))[0].rstrip() == "age 0.1s  box7 SERVING  2>Requests"


def test_the_header_names_parts_that_are_not_ok() -> None:
    assert "box7 DEGRADED gpu,board  " in texts(view("degraded"))[0]
    assert "box7 降级 GPU,控制板  " in texts(view("degraded", lang="zh"))[0]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"link": "late", "age_s": 2.3}, "LATE 2.3s"),
        ({"link": "lost", "lost_s": 42.0, "retry_s": 3.0}, "LOST 42s, retry 3 s"),
        ({"link": "frozen", "age_s": 60.0}, "FROZEN 60s"),
        ({"link": "connecting", "live": None}, "connecting  http://127.0.0.1:8421"),
    ],
)
def test_age_comes_first(given: dict[str, Any], wanted: str) -> None:
    assert texts(view(**given))[0].startswith(wanted)


@pytest.mark.parametrize(
    ("age_s", "link"), [(None, "connecting"), (0.9, "ok"), (1.1, "late"), (5.1, "lost")]
)
def test_a_link_is_late_after_one_second_and_lost_after_five(
    age_s: float | None, link: str
) -> None:
    assert link_of(age_s) == link


def test_a_healthy_box_has_an_empty_alarm_row() -> None:
    assert texts(view())[-2].strip() == ""


def test_the_worst_alarm_stands_in_row_23_with_the_number_of_others() -> None:
    row = whole(view("overload", width=100), SCREENS[1], SCREENS)[-2]
    assert text_of(row).rstrip() == (
        "[!2] OVERLOAD: 41 of 48 waiting, crm-bot holds 90 %. 2 shows them, T throttles  +2, key 0"
    )
    assert row[0].role == "alarm2"


def test_a_cut_alarm_keeps_what_it_is_and_what_to_do() -> None:
    assert texts(view("overload"))[-2].rstrip() == (
        "[!2] OVERLOAD: 41 of 48 waiting.. 2 shows them, T throttles  +2, key 0"
    )
    assert texts(view("overload", width=60))[-2].rstrip() == (
        "[!2] OVERLOAD: 41 of.. 2 shows them, T throttles  +2, key 0"
    )


@pytest.mark.parametrize(
    ("text", "width", "wanted"),
    [
        ("Down: it died; next in 4 s. R restarts", 38, "Down: it died; next in 4 s. R restarts"),
        ("Down: it died; next in 4 s. R restarts", 37, "Down: it died.. R restarts"),
        ("One sentence of many words only.", 20, "One sentence of.."),
        ("A, b. A remedy that is longer than there is room.", 20, "A, b. A remedy.."),
        ("Is it on? Are you? See --url.", 28, "Is it on.. See --url."),
        (
            "节拍超时：1.8 % 迟到。空出一个核心。按 3 查看。",
            40,
            "节拍超时：1.8 % 迟到.. 按 3 查看。",
        ),
        ("word" * 9, 10, "wordword.."),
        ("Wrote /home/alice/exports/a.json.", 20, "Wrote /home/alice/.."),
        ("It was ended by SIGKILL (most likely so). R", 35, "It was ended by SIGKILL.. R"),
    ],
)
def test_what_is_cut_shows_that_it_was(text: str, width: int, wanted: str) -> None:
    assert shortened(text, width) == wanted


def test_alarms_are_told_in_chinese_by_their_code() -> None:
    zh = view("overload", lang="zh")
    assert zh.live is not None
    assert zh.live.worst is not None
    assert alarm_text(zh, zh.live.worst) == (
        "过载：41 / 48 个请求在排队，每分钟拒绝 ? 个，crm-bot 占 90 %。按 2 查看，T 限速。"
    )


def test_a_note_and_a_lost_link_go_before_alarms() -> None:
    assert texts(view("overload", note="Draining."))[-2].rstrip() == "Draining."
    lost = view("overload", link="lost", problem="Nothing listens at http://box7.")
    assert texts(lost)[-2].rstrip() == "Nothing listens at http://box7."


def test_without_a_frame_the_body_says_why_and_what_to_do() -> None:
    rows = texts(view(live=None, link="connecting", problem="Nothing listens there: is it on?"))
    assert rows[2].rstrip() == "Nothing listens there: is it on?"


def test_capitals_are_offered_only_where_they_act() -> None:
    assert texts(view())[-1].rstrip() == "T throttle  D drain  s sort  ? help"
    for state in ({"link": "lost"}, {"link": "frozen"}, {"read_only": True}):
        assert texts(view(**state))[-1].rstrip() == "s sort  ? help"


def test_help_is_offered_under_a_key_that_opens_it() -> None:
    class Typed(Plain):
        typing = True

    assert text_of(key_row(view(), Typed(8, "chat"))).rstrip().endswith("F1 help")


def test_help_is_the_last_key_to_go() -> None:
    row = text_of(key_row(view(width=24, height=24), SCREENS[1], choosing_nothing()))
    assert row.rstrip() == "Esc leave it"
    many = view(width=60)
    assert text_of(key_row(many, SCREENS[1])).rstrip().endswith("? help")


def choosing_nothing() -> Dialog:
    return Dialog("x", ("y",), (("Esc", "leave it"),))


def test_a_small_terminal_keeps_rows_1_23_and_24() -> None:
    rows = texts(view("overload", width=40, height=10))
    assert rows[0].startswith("age 0.1s  box7 OVERLOAD")
    assert all(not row.strip() for row in rows[1:-2])
    assert rows[-2].startswith("[!2] OVERLOAD")


def test_a_dialog_is_seen_on_a_small_terminal_too() -> None:
    small = view(width=40, height=10)
    rows = texts(small, asked(Ask("Drain box7?", ("New requests get 503.",), CALL), small))
    assert any("New requests get 503." in row for row in rows)
    assert any("y do it  Esc leave it" in row for row in rows)


def test_a_dialog_says_what_whom_and_who() -> None:
    ask = Ask("Drain box7?", ("New requests get 503.", "6 running ones finish."), CALL)
    rows = texts(view(), asked(ask, view()))
    box = [row[3:-3].strip() for row in rows if row.startswith(".") and "|" in row]
    assert any("New requests get 503." in row for row in box)
    assert any("asked by alice on box7" in row for row in box)
    assert rows[-1].rstrip() == "y do it  Esc leave it"


def test_a_name_must_be_typed_before_the_dialog_offers_to_go_on() -> None:
    ask = Ask("Revoke alice?", ("The last admin key.",), CALL, typed="alice")
    assert asked(ask, view(), "alic").keys == (("Esc", "leave it"),)
    assert asked(ask, view(), "alice").keys[0] == ("Enter", "do it")


def test_the_chosen_row_of_a_long_list_is_seen() -> None:
    choose = Choose("Rate", tuple((str(n), f"rate {n}") for n in range(40)), lambda _: CALL)
    assert any(
        "|>rate 33" in row.replace("| >", "|>")
        for row in texts(view(), choosing(choose, view(), 33))
    )


def test_help_shows_the_screens_keys_and_the_consoles() -> None:
    rows = "\n".join(texts(view(), help_of(view(), SCREENS[1])))
    for text in ("Help: Requests", "T     throttle", "^P    all commands", "? unknown"):
        assert text in rows


def test_header_of_a_hostile_host_stays_one_line() -> None:
    from msgspec.structs import replace

    from tests.unit.console_views import LIVE

    row = header(view(live=replace(LIVE, host="a\n\x1b[2J")), SCREENS[1], SCREENS)
    assert "a\\x0a\\x1b[2J" in text_of(row)
