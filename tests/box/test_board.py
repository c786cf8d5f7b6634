"""A real daemon with the board's real firmware on a pseudo-terminal."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from firmware_bridge.simulation import Simulation
from tests.box.asking import ask
from tests.box.ledgered import Ledgered
from tests.box.running import RunningBox
from tests.unit.update_parts import image_of, trust

Boarded = Callable[..., RunningBox]
CALM = {"timeout_s": 20.0, "pretimeout_s": 15.0}


@pytest.fixture
def boarded(tmp_path: Path) -> Iterator[Boarded]:
    """Starts a daemon whose board is simulated by the test, with `script` and `board` settings.
    The board is plugged in once the daemon serves: the times of a script count from then."""
    with ExitStack() as stack:

        def start(script: dict[str, str] | None = None, **board: object) -> RunningBox:
            settings = {**CALM, **board, "device": str(tmp_path / "board")}
            box = stack.enter_context(RunningBox.start(tmp_path, board=settings))
            stack.enter_context(plugged(tmp_path / "board", script))
            return box

        yield start


@contextmanager
def plugged(device: Path, script: dict[str, str] | None) -> Iterator[None]:
    """A simulated board at that path."""
    with Simulation(script) as firmware:
        device.symlink_to(firmware.path)
        try:
            yield
        finally:
            device.unlink()


def board_of(box: RunningBox) -> dict[str, Any]:
    found: dict[str, Any] = box.admin("GET", "/admin/board").json()
    return found


def wait_for(box: RunningBox, state: str) -> dict[str, Any]:
    box.wait_until(lambda: board_of(box)["state"] == state, 60, f"the board is {state}")
    return board_of(box)


def actions(box: RunningBox) -> list[str]:
    return [row["action"] for row in box.admin("GET", "/admin/actions").json()["actions"]]


@pytest.fixture(scope="module")
def simulating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """A box that runs a board's firmware itself, and has a newer one."""
    home = tmp_path_factory.mktemp("simulating")
    firmware = home / "state/firmware"
    firmware.mkdir(parents=True)
    (firmware / "trusted_key").write_text(trust())
    (firmware / "new.fw").write_bytes(image_of("1.2.0").data)
    with RunningBox.start(
        home, arguments=["--simulate-board"], board=CALM, sensors={"poll_s": 0.1}
    ) as running:
        yield running


def test_the_simulated_board_measures_and_watches_the_box(simulating: RunningBox) -> None:
    box = simulating
    board = wait_for(box, "armed")
    assert board["simulated"] is True
    assert board["firmware"] == "1.1.0"
    assert board["slots"][0] == {"slot": "a", "version": "1.1.0", "state": "confirmed"}
    assert 0 < board["left_ms"] <= 20_000
    box.wait_until(lambda: known(box, "rail_12v"), 30, "samples come")
    sensors = {one["name"]: one for one in board_of(box)["sensors"]}
    assert sensors["rail_12v"]["value"] == pytest.approx(12.0, abs=0.3)
    assert {sensors[name]["source"] for name in ("rail_12v", "cpu_temperature")} == {"board"}
    assert box.http.get("/readyz").json()["board"] == {"state": "armed", "problem": ""}
    metered = lambda: 'source="board"' in box.admin("GET", "/metrics").text  # noqa: E731
    box.wait_until(metered, 30, "energy is measured")
    ask(box, max_tokens=200).wait()
    row = Ledgered(box.state).wait_for(1, outcome="length")[0]
    assert row["energy_source"] == "board"
    assert row["energy_uj"] > 0


def known(box: RunningBox, name: str) -> bool:
    return any(one["name"] == name and one["quality"] == "ok" for one in board_of(box)["sensors"])


def test_a_daemon_that_hangs_is_cut_and_the_event_is_chained(
    boarded: Boarded, tmp_path: Path
) -> None:
    flash = tmp_path / "flash"
    script = {"STEELYARD_SIMULATED_OFF_MS": "500", "STEELYARD_SIMULATED_STATE": str(flash)}
    box = boarded(script, timeout_s=3.0, pretimeout_s=2.0)
    wait_for(box, "armed")
    before = cycles_in(flash)
    box.process.send_signal(signal.SIGSTOP)
    box.wait_until(lambda: cycles_in(flash) > before, 120, "the board cuts the power")
    box.process.send_signal(signal.SIGCONT)
    box.wait_until(lambda: "board.power_cycle" in actions(box), 30, "the cut is in the ledger")
    box.wait_until(lambda: board_of(box)["link"]["power_cycles"] >= 1, 30, "it is counted")
    assert_acted_in_time(box, timeout_ms=3000)


def cycles_in(flash: Path) -> int:
    """What a board that stands for itself has kept of its power cycles."""
    return int(json.loads(flash.read_text())["power_cycles"]) if flash.exists() else 0


def details(box: RunningBox, action: str) -> dict[str, int]:
    rows = box.admin("GET", "/admin/actions").json()["actions"]
    found: dict[str, int] = next(row["detail"] for row in rows if row["action"] == action)
    return found


def assert_acted_in_time(box: RunningBox, timeout_ms: int) -> None:
    """By the board's own clock: never early. Late it is by as much as a busy machine held its
    process up; to 50 ms: bench/bridge.py."""
    warned, cut = details(box, "board.pretimeout"), details(box, "board.power_cycle")
    left = warned["argument"]
    assert 0 < left <= 1000
    acted = timeout_ms - left + (cut["ticks"] - warned["ticks"]) / 1000
    assert timeout_ms - 1 <= acted < timeout_ms + 60_000


def test_an_engine_that_hangs_is_replaced_and_the_board_waits_for_that(boarded: Boarded) -> None:
    """The daemon heals before the board acts; one that cannot be healed: test_board_service.py."""
    box = boarded(timeout_s=8.0, pretimeout_s=6.0)
    wait_for(box, "armed")
    first = box.engine()
    first.send_signal(signal.SIGSTOP)
    box.wait_until(lambda: not first.is_running(), 60, "the engine is given up")
    wait_for(box, "inhibited")
    box.wait_until(lambda: box.http.get("/readyz").status_code == 200, 120, "another one serves")
    assert "board.power_cycle" not in actions(box)


def test_an_operator_inhibits_drives_and_updates(simulating: RunningBox) -> None:
    box = simulating
    wait_for(box, "armed")
    acts = {
        "inhibit": {"minutes": 5, "reason": "new fans"},
        "outputs/fan0": {"value": 0.9, "seconds": 60},
        "update": {"name": "new.fw"},
    }
    for path, body in acts.items():
        answer = box.admin("POST", f"/admin/board/{path}", json=body)
        assert answer.json()["recorded"] is True, answer.text
    box.wait_until(lambda: board_of(box)["firmware"] == "1.2.0", 120, "the update is there")
    box.wait_until(lambda: "board.update_done" in actions(box), 60, "it is confirmed")
    assert board_of(box)["slots"][0]["version"] == "1.2.0"
    assert {"board.inhibit", "board.output", "board.update"} <= set(actions(box))
    assert "board.power_cycle" not in actions(box)
    assert box.stop() == 0


def test_the_button_drains_the_box_and_lets_it_serve_again(boarded: Boarded) -> None:
    """What was pressed before the box listened is told when it does."""
    box = boarded({"STEELYARD_SIMULATED_BUTTON": "1:1.5,4:1.5,7:1.5"})
    box.wait_until(lambda: len(presses(box)) == 3, 60, "it is told of all three")
    assert presses(box) == ["drain", "resume", "drain"]
    assert box.http.get("/readyz").json()["draining"] is True


def presses(box: RunningBox) -> list[str]:
    """What the box did at each press of the button, in order."""
    rows = box.admin("GET", "/admin/actions").json()["actions"]
    found = [row["detail"]["done"] for row in rows if row["action"] == "board.button"]
    return found[::-1]


def test_the_button_held_stops_the_box(boarded: Boarded) -> None:
    box = boarded({"STEELYARD_SIMULATED_BUTTON": "1:6"})
    assert box.process.wait(60) == 0
    assert "stop, as the board's button says" in box.log


def test_a_board_that_is_unplugged_is_a_visible_state_and_serving_goes_on(tmp_path: Path) -> None:
    with Simulation() as firmware:
        settings = {**CALM, "device": firmware.path}
        with RunningBox.start(tmp_path, board=settings) as box:
            wait_for(box, "armed")
            firmware.stop()
            board = wait_for(box, "lost")
            assert "board.device" in board["problem"]
            ready = box.http.get("/readyz")
            assert ready.status_code == 200
            assert any(one.startswith("board: ") for one in ready.json()["degraded"])
            ask(box, max_tokens=4).wait()
            # Its last sample counts till it is too old.
            box.wait_until(lambda: not known(box, "rail_12v"), what="an old sample is unknown")
            assert box.stop() == 0


def test_heat_slows_the_engine_and_coolness_makes_it_fast_again(tmp_path: Path) -> None:
    device = tmp_path / "board"
    with RunningBox.start(tmp_path, board={**CALM, "device": str(device)}) as box:
        with plugged(device, {"STEELYARD_SIMULATED_TEMPERATURE": "0:90"}):
            box.wait_until(lambda: board_of(box)["slowed"], 60, "the engine is slowed")
            assert any("hot" in one for one in box.http.get("/readyz").json()["degraded"])
            ask(box, max_tokens=8).wait()
        wait_for(box, "lost")
        assert board_of(box)["slowed"], "what is unknown changes nothing"
        with plugged(device, {"STEELYARD_SIMULATED_TEMPERATURE": "0:60"}):
            box.wait_until(lambda: not board_of(box)["slowed"], 60, "the engine is fast again")
        assert "is fast again" in box.log
