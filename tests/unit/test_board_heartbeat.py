"""The board is fed by proof alone."""

import itertools

from appliance.board.heartbeat import Beat, Rule, Wait
from appliance.board.heat import Hot
from appliance.snapshot import EngineSnapshot


def engine(progress: float, state: str = "ready") -> EngineSnapshot:
    return EngineSnapshot(state=state, last_progress=progress)  # type: ignore[arg-type]


def test_progress_feeds() -> None:
    rule = Rule(timeout_s=30, restart_s=300)
    assert rule.due(100.0, engine(99.9)) == Beat()


def test_the_same_proof_feeds_only_once_however_much_time_passes() -> None:
    rule = Rule(timeout_s=30, restart_s=300)
    assert rule.due(100.0, engine(99.9)) == Beat()
    for now in (106.0, 120.0, 1000.0):
        assert rule.due(now, engine(99.9)) is None
    assert rule.due(1000.0, engine(999.9)) == Beat()


def test_heartbeats_are_spaced_so_that_five_may_be_lost() -> None:
    rule = Rule(timeout_s=30, restart_s=300)
    times = [now / 10 for now in range(1000, 1600)]
    beats = [now for now in times if rule.due(now, engine(now)) == Beat()]
    gaps = {round(b - a, 1) for a, b in itertools.pairwise(beats)}
    assert gaps == {5.0}


def test_an_engine_that_is_replaced_gets_the_time_of_its_start_once() -> None:
    rule = Rule(timeout_s=30, restart_s=300)
    assert rule.due(100.0, engine(99.0)) == Beat()
    assert rule.due(101.0, engine(99.0, "backoff")) == Wait(300, "restart")
    assert rule.due(102.0, engine(99.0, "starting")) is None
    assert rule.due(500.0, engine(99.0, "starting")) is None, "not asked for again without proof"
    assert rule.due(501.0, engine(500.9)) == Beat()
    assert rule.due(502.0, engine(500.9, "backoff")) == Wait(300, "restart")


def test_no_more_time_is_asked_for_than_the_board_grants() -> None:
    assert Rule(30, 5000).due(1.0, engine(0.5, "starting")) == Wait(900, "restart")


def test_a_box_that_stops_or_has_given_up_is_not_proven() -> None:
    rule = Rule(timeout_s=30, restart_s=300)
    assert rule.due(100.0, engine(99.9, "stopping")) is None
    assert rule.due(100.0, engine(99.9, "failed")) is None


def test_heat_slows_the_engine_till_it_is_five_degrees_cooler() -> None:
    hot = Hot(85.0)
    assert [hot.look(value) for value in (84.0, 85.0, 86.0, 81.0, 80.5, 79.9, 84.9, 85.0)] == [
        None, True, None, None, None, False, None, True,
    ]  # fmt: skip


def test_an_unknown_temperature_changes_nothing() -> None:
    hot = Hot(85.0)
    assert hot.look(None) is None
    hot.look(90.0)
    assert hot.look(None) is None
    assert hot.on
