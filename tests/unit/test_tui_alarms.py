"""The list of alarms: at 80 cells most are longer than a row, and the end says what to do."""

from msgspec.structs import replace

from appliance.frames import Alarm
from tests.unit.console_views import AT_MS, view
from tui.boxes import AlarmsBox, Box
from tui.dialogs import over
from tui.frame import alarm_text
from tui.lines import blank, text_of, width_of
from tui.screens.overview import Overview
from tui.view import View

MINUTE_MS = 60_000
LONG = Alarm(
    id="degraded:board", code="degraded", screen=6, prio=2, since_ms=AT_MS - 12 * MINUTE_MS,
    text="BOARD: no device at /dev/serial/by-id/usb-Raspberry_Pi_Pico_E6614C311B: check the cable "
    "and board.device. 6 shows it",
    args=("board", "no device at /dev/serial/by-id/usb-Raspberry_Pi_Pico_E6614C311B: check it"),
)  # fmt: skip
SHORT = Alarm(
    id="a", code="new", screen=5, prio=3, since_ms=AT_MS - 26 * 60 * MINUTE_MS, text="NEVER. 5",
    seen=True, snooze_ms=AT_MS + 30 * MINUTE_MS,
)  # fmt: skip


def box(*alarms: Alarm) -> Box:
    keys = (("Enter", "go"), ("Esc", "close"))
    return AlarmsBox("Alarms", alarms, keys, "No alarm.", *[lambda _: None] * 3)


def drawn(view: View, over_it: Box) -> list[str]:
    under = [blank(view.width)] * view.body_height
    lines = over(under, over_it.draw(view, Overview()), view.width)
    assert {width_of(row) for row in lines} == {view.width}
    assert len(lines) == view.body_height
    return [text_of(row).strip(" |") for row in lines]


def test_the_one_under_the_cursor_is_told_whole_with_when_it_began() -> None:
    rows = drawn(view(), box(LONG, SHORT))
    told = " ".join(rows)
    assert "check the cable and board.device. 6 shows it" in told
    assert "since 10:41:20, 12 min ago" in told
    assert any(row.startswith(">[!2] BOARD: no device at") and "6 shows it" in row for row in rows)


def test_the_cursor_takes_what_is_told_with_it() -> None:
    rows = drawn(view(), box(LONG, SHORT).press("j").box or box())
    assert "since 11-29 08:53, 26 h ago; snoozed until 11:23:20" in rows


def test_many_alarms_leave_room_for_what_is_told() -> None:
    many = [replace(LONG, id=str(number)) for number in range(40)]
    rows = drawn(view(height=16), box(*many).press("end").box or box())
    assert "since 10:41:20, 12 min ago" in rows
    assert sum("[!2]" in row for row in rows) > 2
    drawn(view(height=5), box(*many))


def test_a_lost_line_is_told_whole_there_too() -> None:
    problem = "The key is not accepted: wrong, expired or revoked. " + "Set another. " * 9
    for alarms in ((), (LONG,)):
        told = " ".join(drawn(view("lost", problem=problem), box(*alarms)))
        assert told.count("Set another.") == 9


def test_an_older_box_tells_less_and_no_brace_shows() -> None:
    overload = replace(SHORT, id="overload", code="overload", args=("41", "48", "crm-bot", "90"))
    told = alarm_text(view(lang="zh"), overload)
    assert (
        told == "过载：41 / 48 个请求在排队，每分钟拒绝 ? 个，crm-bot 占 90 %。按 2 查看，T 限速。"
    )
    away = replace(overload, args=("0", "48", "", "0", "3"))
    assert alarm_text(view(lang="zh"), away) == (
        "过载：0 / 48 个请求在排队，每分钟拒绝 3 个。按 2 查看，T 限速。"
    )


def test_in_chinese_it_is_told_in_chinese() -> None:
    told = "".join(drawn(view(lang="zh"), box(LONG)))
    assert "自 10:41:20 起，已 12 min" in told
    assert "按 6 查看" in told
