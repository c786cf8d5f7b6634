"""A real daemon on whatever machine this is: what it cannot measure it shows as unknown."""

from pathlib import Path

from appliance.frames import Live, State
from tests.box.asking import ask
from tests.box.conftest import Start
from tests.box.ledgered import Ledgered
from tests.box.test_events import Console


def test_a_box_tells_what_it_measures_and_of_the_rest_that_it_does_not(
    start_box: Start, tmp_path: Path
) -> None:
    box = start_box(sensors={"poll_s": 0.1})
    with Console.of(box) as console:
        ask(box, max_tokens=60).wait()
        live = console.wait(lambda live: live.running == 0)
        state = console.wait(lambda state: True, State)
    assert all((one.value is None) == (one.quality == "unknown") for one in state.sensors)
    assert all(one.why for one in state.sensors if one.quality == "unknown")
    (board,) = (step for step in state.setup if step.step == "board")
    row = Ledgered(tmp_path / "1" / "state").wait_for(1, outcome="length")[0]
    if live.power_w is None:
        assert board.detail.startswith("none; energy not measured")
        assert (row["energy_uj"], row["energy_source"]) == (None, "")
        lines = box.admin("GET", "/metrics").text.splitlines()
        assert not any(line.startswith("steelyard:power_watts") for line in lines)
    else:
        assert board.detail.startswith("none; energy from")
        assert row["energy_uj"] is None or row["energy_source"]
    assert box.stop() == 0


def test_a_box_with_its_sensors_switched_off_shows_none(start_box: Start) -> None:
    box = start_box(sensors={"enabled": False})
    with Console.of(box) as console:
        state = console.wait(lambda state: True, State)
        live = console.wait(lambda live: True, Live)
    assert state.sensors == ()
    assert (live.power_w, live.temp_c, live.j_per_tok) == (None, None, None)
    (board,) = (step for step in state.setup if step.step == "board")
    assert board.detail == "none"
