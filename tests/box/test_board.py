"""A real daemon with the board's real firmware on a pseudo-terminal."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from firmware_bridge.simulation import Simulation
from tests.box.asking import ask
from tests.box.ledgered import Ledgered
from tests.box.running import RunningBox

Boarded = Callable[..., RunningBox]
CALM = {"timeout_s": 20.0, "pretimeout_s": 15.0}


@pytest.fixture
def boarded(tmp_path: Path) -> Iterator[Boarded]:
    """Starts a daemon whose board is simulated by the test, with `script` and `board` settings."""
    with ExitStack() as stack:

        def start(script: dict[str, str] | None = None, **board: object) -> RunningBox:
            firmware = stack.enter_context(Simulation(script))
            settings = {**CALM, **board, "device": firmware.path}
            return stack.enter_context(RunningBox.start(tmp_path, board=settings))

        yield start


def board_of(box: RunningBox) -> dict[str, Any]:
    found: dict[str, Any] = box.admin("GET", "/admin/board").json()
    return found


def wait_for(box: RunningBox, state: str) -> dict[str, Any]:
    box.wait_until(lambda: board_of(box)["state"] == state, 60, f"the board is {state}")
    return board_of(box)


def actions(box: RunningBox) -> list[str]:
    return [row["action"] for row in box.admin("GET", "/admin/actions").json()["actions"]]


def test_the_simulated_board_measures_and_watches_the_box(tmp_path: Path) -> None:
    with RunningBox.start(
        tmp_path, arguments=["--simulate-board"], board=CALM, sensors={"poll_s": 0.1}
    ) as box:
        board = wait_for(box, "armed")
        assert board["simulated"] is True
        assert board["firmware"] == "1.0.0"
        assert 0 < board["left_ms"] <= 20_000
        box.wait_until(lambda: known(box, "rail_12v"), 30, "samples come")
        sensors = {one["name"]: one for one in board_of(box)["sensors"]}
        assert sensors["rail_12v"]["value"] == pytest.approx(12.0, abs=0.3)
        assert {sensors[name]["source"] for name in ("rail_12v", "cpu_temperature")} == {"board"}
        assert box.http.get("/readyz").json()["board"] == {"state": "armed", "problem": ""}
        metered = lambda: 'source="board"' in box.admin("GET", "/metrics").text  # noqa: E731
        box.wait_until(metered, 30, "energy is measured")
        ask(box, max_tokens=200).wait()
        row = Ledgered(tmp_path / "state").wait_for(1, outcome="length")[0]
        assert row["energy_source"] == "board"
        assert row["energy_uj"] > 0
        assert box.stop() == 0


def known(box: RunningBox, name: str) -> bool:
    return any(one["name"] == name and one["quality"] == "ok" for one in board_of(box)["sensors"])


def test_a_daemon_that_hangs_is_cut_and_the_event_is_chained(boarded: Boarded) -> None:
    script = {"STEELYARD_SIMULATED_OFF_MS": "500"}
    box = boarded(script, timeout_s=3.0, pretimeout_s=2.0)
    wait_for(box, "armed")
    box.process.send_signal(signal.SIGSTOP)
    time.sleep(5.0)
    box.process.send_signal(signal.SIGCONT)
    box.wait_until(lambda: "board.power_cycle" in actions(box), 30, "the cut is in the ledger")
    assert "board.pretimeout" in actions(box)
    assert board_of(box)["link"]["power_cycles"] >= 1


def test_the_button_drains_the_box_and_lets_it_serve_again(boarded: Boarded) -> None:
    box = boarded({"STEELYARD_SIMULATED_BUTTON": "12:0.2,18:0.2"})
    wait_for(box, "armed")
    draining = lambda: box.http.get("/readyz").json()["draining"]  # noqa: E731
    box.wait_until(draining, 60, "the box drains")
    box.wait_until(lambda: not draining(), 60, "the box serves again")
    assert actions(box).count("board.button") == 2


def test_the_button_held_stops_the_box(boarded: Boarded) -> None:
    box = boarded({"STEELYARD_SIMULATED_BUTTON": "10:6"})
    wait_for(box, "armed")
    assert box.process.wait(60) == 0


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
            assert not known(box, "rail_12v")
            assert box.stop() == 0


def test_heat_slows_the_engine_and_coolness_makes_it_fast_again(boarded: Boarded) -> None:
    box = boarded({"STEELYARD_SIMULATED_TEMPERATURE": "0:60,9:60,10:90,30:90,31:60"})
    box.wait_until(lambda: board_of(box)["slowed"], 60, "the engine is slowed")
    assert any("hot" in one for one in box.http.get("/readyz").json()["degraded"])
    ask(box, max_tokens=8).wait()
    box.wait_until(lambda: not board_of(box)["slowed"], 60, "the engine is fast again")
    assert "is fast again" in box.log
