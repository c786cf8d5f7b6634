"""Every action of the console, at a real box with a simulated board: each is asked for with keys,
and is in the ledger afterwards with who asked. Cancel, drain, verify: test_console.py."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from appliance.forecast.bundle import Bundle
from appliance.forecast.versions import PACKAGED, Versions
from tests.box.asking import Asked, ask
from tests.box.operating import Operator, console
from tests.box.running import RunningBox
from tests.unit.update_parts import image_of, trust
from tui.boxes import AlarmsBox

WHO = "爱丽丝"
"""As operating.py names the operator."""
CALM = {"timeout_s": 60.0, "pretimeout_s": 50.0}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """With a board that it simulates, new firmware for that, and a second forecaster."""
    home = tmp_path_factory.mktemp("acted")
    firmware = home / "state/firmware"
    firmware.mkdir(parents=True)
    (firmware / "trusted_key").write_text(trust())
    (firmware / "new.fw").write_bytes(image_of("1.2.0").data)
    bundle = Bundle.read(next(PACKAGED.glob("*.forecaster")))
    Versions(home / "state", bundle.manifest.model_sha256).install(bundle)
    prompts = home / "prompts.jsonl"
    texts = [f"Count from {start} to a hundred, in words." for start in range(400)]
    prompts.write_text("\n".join(json.dumps({"prompt": text}) for text in texts))
    with RunningBox.start(
        home,
        arguments=["--simulate-board"],
        board=CALM,
        engine={"context": 4096},
        forecast={"calibrate_prompts": str(prompts)},
    ) as running:
        yield running


def done(box: RunningBox, action: str) -> list[dict[str, Any]]:
    """What the operator did of that kind, as the ledger has it, newest first."""
    rows = box.admin("GET", "/admin/actions?limit=200").json()["actions"]
    return [row for row in rows if row["action"] == action and row["operator"] == WHO]


@asynccontextmanager
async def at_console(box: RunningBox, key: str, folder: Path) -> AsyncIterator[Operator]:
    """Once the box has told of itself: before that no capital acts."""
    async with console(box, key, folder) as it:
        link = it.app.desk.link
        await it.until(lambda: link.live and link.state and link.rows, "the first frames")
        yield it


async def answered(it: Operator, *keys: str) -> None:
    """Dialogs one after the other, each once it can be seen."""
    for key in keys:
        await it.answers(key)


async def chained(it: Operator, box: RunningBox, action: str) -> dict[str, Any]:
    await it.until(lambda: done(box, action), f"{action} in the ledger")
    return done(box, action)[0]


def made(box: RunningBox, name: str, **fields: Any) -> str:
    """A key's secret."""
    answer = box.admin("POST", "/admin/keys", json={"name": name, "scopes": ["infer"], **fields})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["secret"])


def key_of(box: RunningBox, name: str) -> dict[str, Any]:
    keys = box.admin("GET", "/admin/keys").json()["keys"]
    found: dict[str, Any] = next(key for key in keys if key["name"] == name)
    return found


def asked(box: RunningBox, secret: str, tokens: int, **fields: Any) -> Asked:
    return ask(box, headers={"Authorization": f"Bearer {secret}"}, max_tokens=tokens, **fields)


# -- requests --------------------------------------------------------------------------------------


async def test_queue_is_held_a_request_is_moved_released_and_its_key_throttled(
    box: RunningBox, tmp_path: Path
) -> None:
    secret = made(box, "flood")
    async with at_console(box, box.admin_key, tmp_path) as it:
        await it.opens("H")
        await answered(it, "y")
        await it.sees("HOLDING")
        client = asked(box, secret, 64)
        box.wait_for_waiting(1)
        await it.type("2")
        await it.sees("wait 1")
        await it.opens("P")
        await answered(it, "down", "enter", "y")
        moved = await chained(it, box, "request.priority")
        assert moved["detail"]["pool"] == "b"
        await it.opens("H")
        await answered(it, "y")
        await it.until(lambda: "HOLDING" not in it.screen, "the release")
        await it.until(lambda: client.over, "the end of the request")
        assert client.wait().finished_properly

        await it.type("1", "slash")
        await it.type(*"flood", "enter")
        await it.sees(">flood")
        await it.opens("T")
        await answered(it, "enter", "y")
        await chained(it, box, "key.limits")
    assert {"queue.hold", "queue.release"} <= {row["action"] for row in every(box)}
    assert 0 < key_of(box, "flood")["limits"]["tokens_per_min"] < 64


def every(box: RunningBox) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = box.admin("GET", "/admin/actions?limit=200").json()["actions"]
    return [row for row in rows if row["operator"] == WHO]


async def test_an_ended_answer_is_replayed_and_written_to_a_file(
    box: RunningBox, tmp_path: Path
) -> None:
    asked(box, made(box, "replayed"), 8).wait()
    async with at_console(box, box.admin_key, tmp_path) as it:
        await it.type("2", "tab", "slash", *"replayed", "enter")
        await it.until(lambda: "replayed" in it.screen.splitlines()[4], "the request")
        await it.type("enter")
        await it.sees("max 8 tok")
        await it.type("w")
        await it.sees("Wrote ")
        await it.opens("N")
        await answered(it, "y")
        await it.until(lambda: it.app.desk.box is not None, "what came of it")
        assert any(word in it.screen for word in ("identical", "differ", "inconclusive"))
        await it.type("enter")
    assert len(list(tmp_path.glob("request-*.json"))) == 1


# -- accounts --------------------------------------------------------------------------------------


async def test_keys_are_limited_rotated_and_revoked_and_tenants_made(
    box: RunningBox, tmp_path: Path
) -> None:
    made(box, "shop")
    async with at_console(box, box.admin_key, tmp_path) as it:
        await it.type("4", "slash", *"shop", "enter")
        await it.sees(">shop")
        await it.type("E", *"77", "enter")
        await answered(it, "y")
        await it.until(
            lambda: key_of(box, "shop")["limits"].get("requests_per_min") == 77, "the limit"
        )
        await it.opens("O")
        await answered(it, "y")
        await it.sees("sk-steelyard-")
        await it.answers("enter")
        await chained(it, box, "key.rotate")
        await it.opens("X")
        await answered(it, "y")
        await chained(it, box, "key.revoke")
        assert key_of(box, "shop")["state"] == "revoked"

        await it.type("escape", "tab", "N", *"north", "tab", *"5", "enter")
        await answered(it, "y")
        await chained(it, box, "tenant.set")
        await it.until(
            lambda: any(row.startswith(" north ") for row in it.screen.splitlines()), "its row"
        )
        await it.type("slash", *"north", "enter", "E", "backspace", "9", "enter")
        await answered(it, "y")
        tenants = lambda: box.admin("GET", "/admin/tenants").json()["tenants"]  # noqa: E731
        await it.until(
            lambda: any(
                one["name"] == "north" and one["limits"].get("requests_per_min") == 9
                for one in tenants()
            ),
            "the tenant's limit",
        )


# -- alarms ----------------------------------------------------------------------------------------


async def test_an_alarm_is_snoozed_with_a_reason_and_marked_as_seen(
    box: RunningBox, tmp_path: Path
) -> None:
    made(box, "ending", expires=str(datetime.now(UTC).date() + timedelta(days=5)))
    async with at_console(box, box.admin_key, tmp_path) as it:
        await at_alarm(it, "KEY ending")
        await it.type("m")
        await chained(it, box, "alarm.seen")
        await it.type("z")
        await answered(it, "enter")
        await it.type(*"is known", "enter")
        snoozed = await chained(it, box, "alarm.snooze")
        assert snoozed["detail"]["reason"] == "is known"


async def at_alarm(it: Operator, text: str) -> None:
    """The list of alarms, with the cursor on that one: a busy box may have others."""
    desk = it.app.desk

    def known() -> bool:
        state = desk.view().state
        return state is not None and any(text in alarm.text for alarm in state.alarms)

    await it.until(known, text)
    await it.type("0")
    await it.until(lambda: isinstance(desk.box, AlarmsBox) and desk.armed, "the alarms")
    assert isinstance(desk.box, AlarmsBox)
    at = next(at for at, alarm in enumerate(desk.box.alarms) if text in alarm.text)
    await it.type(*["down"] * at)


# -- board -----------------------------------------------------------------------------------------


async def test_board_is_inhibited_driven_and_updated(box: RunningBox, tmp_path: Path) -> None:
    async with at_console(box, box.admin_key, tmp_path) as it:
        await it.type("6")
        await it.sees("watches over the box")
        await it.opens("H")
        await answered(it, "enter", "y")
        await chained(it, box, "board.inhibit")
        await it.sees("watchdog inhibited")
        await it.opens("H")
        await answered(it, "y")
        await it.until(lambda: len(done(box, "board.inhibit")) == 2, "the watchdog acts again")
        await it.sees("watches over the box")
        await it.opens("E")
        await answered(it, "enter", "enter", "enter", "y")
        await chained(it, box, "board.output")
        await it.until(lambda: it.app.desk.screen._images, "the images")  # type: ignore[attr-defined]
        await it.opens("U")
        await answered(it, "enter")
        await it.answers("1")
        await it.type(*".2.0", "enter")
        await chained(it, box, "board.update")
        await it.sees("firmware 1.2.0")


# -- calibration -----------------------------------------------------------------------------------


async def test_calibration_is_started_held_resumed_and_stopped_and_a_forecaster_put_back(
    box: RunningBox, tmp_path: Path
) -> None:
    async with at_console(box, box.admin_key, tmp_path) as it:
        await it.type("3")
        await it.sees(">v0001")
        await it.opens("B")
        await answered(it, "y")
        used = await chained(it, box, "forecaster.use")
        assert (used["target"], used["detail"]["before"]) == ("packaged", "v0001")
        await it.opens("N")
        await answered(it, "y")
        await chained(it, box, "calibration.start")
        await it.sees("JOB  ")
        await it.opens("H")
        await answered(it, "y")
        await it.sees("HELD")
        await it.opens("H")
        await answered(it, "y")
        await it.sees("idle only")
        await it.opens("X")
        await answered(it, "y")
        await it.sees("JOB  calibration stopped")
    names = {row["action"] for row in every(box)}
    assert {"calibration.hold", "calibration.resume", "calibration.stop"} <= names


# -- chat, set-up, the console's own ---------------------------------------------------------------


async def test_a_prompt_is_tried_a_long_answer_ended_and_its_forecast_judged(
    box: RunningBox, tmp_path: Path
) -> None:
    key = made(box, "tries", scopes=["infer", "admin"])
    async with at_console(box, key, tmp_path) as it:
        await it.type("8", "E")
        await it.until(lambda: it.app.desk.screen.typing, "the form")
        await it.type("0", "tab", *"32", "enter")
        await it.sees("temp 0  max 32")
        await it.type("enter", *"Name a colour.", "enter")
        await it.until(lambda: "matches" in it.screen, "the digest matches")
        await it.type("escape")
        await it.opens("H")
        await answered(it, "y")
        await it.sees("HOLDING")
        await it.type("enter", *"And another.", "enter")
        await it.until(lambda: box.requests(), "it waits")
        await it.type("escape", "X")
        await it.until(lambda: not box.requests(), "it has ended")
        await it.opens("H")
        await answered(it, "y")
        await it.until(lambda: "HOLDING" not in it.screen, "the release")
        await it.type("3")
        await it.sees(" over time ")
    past = box.admin("GET", "/admin/forecasters/past").json()
    assert past["windows"][0]["answers"] >= 1
    assert past["windows"][0]["pinball_tok"] > 0
    assert box.admin("GET", "/admin/forecasters/scatter").json()["points"]


async def test_setup_leads_to_what_is_left_and_checks_again(
    box: RunningBox, tmp_path: Path
) -> None:
    async with at_console(box, box.admin_key, tmp_path) as it:
        await it.type("9")
        await it.sees("of 9 done")
        await it.type("v")
        await it.sees("to do")
        await it.type("slash", *"ledger", "enter", "enter")
        await it.sees("5>Audit")


async def test_palette_finds_every_command_and_the_name_goes_into_the_ledger(
    box: RunningBox, tmp_path: Path
) -> None:
    async with at_console(box, box.admin_key, tmp_path) as it:
        for typed, seen in (("中文", "7>引擎"), ("English", "7>Engine")):
            await it.type("7", "ctrl+p", *typed, "enter")
            await it.sees(seen)
        await it.type("ctrl+p", *"ASCII", "enter")
        assert it.app.desk.settings.ascii
        await it.type("ctrl+p", *"theme mono", "enter")
        assert it.app.desk.settings.theme == "mono"
        await it.type("ctrl+p", *"operator", "enter")
        await it.type(*["backspace"] * len(WHO), *"bob", "enter")
        await it.type("ctrl+p", *"connect now", "enter")
        await it.type("ctrl+p", *"restart", "enter")
        await it.type(*"for a try", "enter")
        await answered(it, "y")
        await it.sees(" 1 restart")
    rows = box.admin("GET", "/admin/actions?action=engine.restart").json()["actions"]
    assert [(row["operator"], row["detail"]["reason"]) for row in rows] == [("bob", "for a try")]
