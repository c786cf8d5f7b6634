"""The board's service brings new firmware onto the real one, under MicroPython; and what operators
have it do meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from appliance.board.service import BoardService
from appliance.board.snapshot import BoardSnapshot, Told
from appliance.config import BoardConfig
from appliance.snapshot import EngineSnapshot
from bench.plug import Plug
from firmware_bridge.commands import Inhibit
from firmware_bridge.events import Done, Failed
from firmware_bridge.simulation import Simulation
from firmware_bridge.update import Progress
from tests.unit.update_parts import image_of, trust

PATIENCE_S = 60.0
CALM = BoardConfig(timeout_s=20, pretimeout_s=15)


class Bench:
    """A board with slots, and its service; `cable`: between them, to be pulled."""

    def __init__(self, stack: ExitStack, flash: Path, cable: Path | None = None) -> None:
        self.told: list[Told] = []
        self.over: list[Progress] = []
        self.board = stack.enter_context(Simulation({}, flash, trust()))
        device = self.board.path
        if cable is not None:
            self.plug = stack.enter_context(Plug(device, cable))
            device = str(cable)
        self.service = BoardService(CALM, device=device, engine=self._engine)
        self.service.start(self.told.append, self.over.append)
        stack.callback(self.service.stop)
        self.until(lambda one: one.state == "armed" and bool(one.slots))

    def _engine(self) -> EngineSnapshot:
        return EngineSnapshot(state="ready", last_progress=time.monotonic())

    def until(self, seen: Callable[[BoardSnapshot], bool]) -> BoardSnapshot:
        end = time.monotonic() + PATIENCE_S
        while not seen(self.service.snapshot):
            assert time.monotonic() < end, self.service.snapshot
            time.sleep(0.02)
        return self.service.snapshot


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack, tmp_path / "flash")


def slots(board: BoardSnapshot) -> list[tuple[str, str, str]]:
    return [(one.slot, one.version, one.state) for one in board.slots]


def test_new_firmware_is_brought_tried_confirmed_and_told_of(bench: Bench) -> None:
    assert slots(bench.service.snapshot) == [("a", "1.1.0", "confirmed"), ("b", "", "empty")]
    assert bench.service.update(image_of("1.2.0")) is None
    assert bench.service.update(image_of("1.2.0")) is not None, "one at a time"
    bench.until(lambda one: one.update is not None and one.update.over)
    assert [one.phase for one in bench.over] == ["done"]
    board = bench.until(lambda one: one.firmware == "1.2.0" and one.slots[0].state == "confirmed")
    assert slots(board) == [("b", "1.2.0", "confirmed"), ("a", "1.1.0", "kept")]
    bench.until(lambda one: one.state == "armed")
    bench.until(lambda one: any(told.code == "updated" for told in one.events))
    assert "power_cycle" not in [one.code for one in bench.told]


def test_a_board_that_is_pulled_in_the_middle_gets_the_rest_later(bench: Bench) -> None:
    bench.service.update(image_of("1.2.0"))
    bench.until(lambda one: one.update is not None and one.update.done > 20_000)
    bench.board.cut_power()
    bench.until(lambda one: one.update is not None and one.update.over)
    assert [one.phase for one in bench.over] == ["done"]
    assert bench.board.boots >= 3


def test_firmware_on_trial_that_an_earlier_daemon_brought_is_confirmed(bench: Bench) -> None:
    bench.service.update(image_of("1.2.0"))
    bench.until(lambda one: one.update is not None and one.update.phase in ("trying", "done"))
    bench.service.stop()
    second = BoardService(CALM, device=bench.board.path, engine=bench._engine)
    second.start(bench.told.append)
    bench.service = second
    try:
        board = bench.until(lambda one: slots(one)[:1] == [("b", "1.2.0", "confirmed")])
        assert board.firmware == "1.2.0"
    finally:
        second.stop()


def test_the_watchdog_is_inhibited_and_watches_again(bench: Bench) -> None:
    assert isinstance(bench.service.ask(Inhibit(600, 3)).result(PATIENCE_S), Done)
    board = bench.until(lambda one: one.state == "inhibited")
    assert board.inhibited_until is not None
    assert board.inhibited_until - board.at == pytest.approx(600, abs=5)
    left = board.left_ms(board.at)
    assert left is not None
    assert left > 590_000
    assert isinstance(bench.service.ask(Inhibit(0, 3)).result(PATIENCE_S), Done)
    board = bench.until(lambda one: one.state == "armed")
    assert board.inhibited_until is None


def test_an_output_is_driven_for_its_time_and_goes_back(bench: Bench) -> None:
    future = bench.service.drive("fan0", 0.95, 3.0)
    assert future is not None
    assert isinstance(future.result(PATIENCE_S), Done)
    bench.until(lambda one: one.outputs[0].now == pytest.approx(0.95))
    board = bench.until(lambda one: one.outputs[0].now == pytest.approx(0.7))
    assert board.outputs[0].until is None
    assert "deadman" in [one.code for one in bench.told]
    back = bench.service.drive("fan0", None, 0.0)
    assert back is not None
    assert isinstance(back.result(PATIENCE_S), Done)
    assert bench.service.drive("heater", 1.0, 1.0) is None
    with pytest.raises(ValueError, match="0 to 1"):
        bench.service.drive("fan0", 1.5, 1.0)


def test_orders_of_a_board_that_is_gone_fail(bench: Bench) -> None:
    bench.board.stop()
    bench.until(lambda one: not one.present)
    outcome = bench.service.ask(Inhibit(60, 3)).result(PATIENCE_S)
    assert not isinstance(outcome, Done)
    bench.service.stop()
    assert not isinstance(bench.service.ask(Inhibit(60, 3)).result(1), Done | Failed)


def test_a_cable_that_is_pulled_in_the_middle_costs_nothing_but_time(tmp_path: Path) -> None:
    with ExitStack() as stack:
        bench = Bench(stack, tmp_path / "flash", tmp_path / "line")
        bench.service.update(image_of("1.2.0"))
        bench.until(lambda one: one.update is not None and one.update.done > 20_000)
        bench.plug.pull()
        bench.until(lambda one: one.state == "lost")
        bench.plug.plug()
        bench.until(lambda one: one.update is not None and one.update.over)
        assert [one.phase for one in bench.over] == ["done"]
        assert bench.board.boots == 2, "the board itself was never reset but for the trial"
