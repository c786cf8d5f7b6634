"""What an operator does most, with the keys that CONSOLE counts: text that is typed is free."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from appliance.frames import Alarm
from tests.unit.console_box import make_live, make_rows
from tests.unit.console_shop import SECRET, Shop, open_shop
from tests.unit.console_views import STATE
from tui.link import Answer
from tui.screens.all import every_screen

KEY = {
    "id": "k_1", "name": "crm-bot", "tenant": "sales", "scopes": ["infer"], "state": "valid",
    "created": "2026-11-01T00:00:00Z", "created_by": "alice", "created_from": "10.0.4.12",
    "expires": None, "revoked": None, "limits": {"requests_per_min": 60, "tokens_per_min": None},
}  # fmt: skip


@asynccontextmanager
async def console(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, every_screen()) as it:
        it.link.answers["/admin/keys"] = Answer({"keys": [KEY]})
        it.link.asked.clear()
        it.desk.errands._due.clear()
        await it.until(lambda: "/admin/keys" in it.link.asked and not it.desk.errands._asking)
        it.link.asked.clear()
        yield it


async def do(it: Shop, *keys: str) -> None:
    """Press the keys one by one, each after what the one before it brought is on the screen."""
    for key in keys:
        await it.armed()
        await it.press(key)
        await it.until(lambda: not it.desk.errands._asking)


def paths(it: Shop) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in it.link.acted]


async def test_no_key_tells_whether_the_box_is_well(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        assert "SERVING" in it.text[0]
        assert it.text[22] == ""


async def test_three_keys_throttle_the_flooder(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        await do(it, "T", "enter", "y")
        await it.until(lambda: it.link.acted)
        (method, path, body), *_ = it.link.acted
        assert (method, path) == ("POST", "/admin/keys/crm-bot/limits")
        assert body == {"requests_per_min": 60, "tokens_per_min": 4250}


async def test_four_keys_cancel_the_longest_run(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        rows = make_rows(3).requests
        rows = (rows[0], replace(rows[1], run_ms=90_000), rows[2])
        it.link.rows = replace(make_rows(3), requests=rows)
        await do(it, "2", "s", "X", "y")
        await it.until(lambda: it.link.acted)
        assert paths(it) == [("DELETE", "/admin/requests/8f01")]


async def test_three_keys_see_the_worst_alarm_and_go_to_its_screen(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        alarm = Alarm(id="a1", code="engine_down", screen=7, prio=1, text="Down.", since_ms=1)
        it.link.state = replace(STATE, alarms=(alarm,))
        await do(it, "0", "m", "enter")
        assert "7>Engine" in it.text[0]


async def test_four_keys_drain_and_resume(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        await do(it, "D", "y")
        it.link.live = make_live(state="DRAINING")
        await do(it, "D", "y")
        await it.until(lambda: len(it.link.acted) == 2)
        assert paths(it) == [("POST", "/admin/drain"), ("POST", "/admin/resume")]


async def test_four_keys_tell_why_a_request_was_slow(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        await do(it, "2", "slash", *"8f01", "enter", "enter")
        assert it.text[1] == "id 8f01"
        assert "queue 200 ms > prefill ? > DECODE" in it.screen


async def test_two_keys_verify_the_chain(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        await do(it, "5", "v")
        await it.until(lambda: it.link.acted)
        assert paths(it) == [("POST", "/admin/audit/ledger/verify")]


async def test_five_keys_make_a_key_for_an_app(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        await do(it, "4", "N", *"app", "enter", "y")
        await it.until(lambda: SECRET in it.screen)
        await do(it, "enter")
        assert SECRET not in it.screen


async def test_four_keys_restart_a_hung_engine(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        await do(it, "7", "R", "enter", "y")  # Enter: without a reason
        await it.until(lambda: it.link.acted)
        assert paths(it) == [("POST", "/admin/engine/restart")]


async def test_six_keys_rotate_a_key(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        await do(it, "4", "slash", *"crm", "enter", "O", "y")
        await it.until(lambda: it.link.acted)
        assert paths(it)[0][1].endswith("/rotate")


async def test_three_keys_try_a_prompt(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        await do(it, "8", "enter", *"Hello", "enter")
        await it.until(lambda: it.link.streamed)
        assert it.link.streamed[0][0] == "/v1/chat/completions"


async def test_five_keys_go_back_to_an_older_forecaster(tmp_path: Path) -> None:
    async with console(tmp_path) as it:
        told = [{"version": "v0007", "in_use": True}, {"version": "v0006"}]
        it.link.answers["/admin/forecasters"] = Answer({"in_use": "v0007", "forecasters": told})
        await do(it, "3", "tab", "down", "B", "y")
        await it.until(lambda: it.link.acted)
        assert paths(it) == [("POST", "/admin/forecasters/v0006/use")]
