"""Coverage and pinball loss over time: counted as answers end, read from the ledger at a start."""

import dataclasses
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.accounts.keys import FILE_NAME
from appliance.api.app import create_app
from appliance.api.calibration_shapes import ForecasterPast, Scatter
from appliance.api.forecastpast import MOST_OF_AN_HOUR, read_judged
from appliance.forecast.telling import pinball
from appliance.ledger.rows import ChoiceRow, RequestRow
from appliance.ledger.writer import Ledger
from appliance.observe.forecasthistory import (
    DAY_S,
    ENOUGH,
    KEPT_S,
    MOST_STEPS,
    STEP_S,
    ForecastHistory,
    Judged,
    judged,
)
from appliance.outlook import Outlook
from tests.unit.api_box import client_of, make_box
from tests.unit.forecast_parts import told
from tests.unit.ledger_parts import request

NOW_S = 1_800_000_000.0
MODEL = "ab" * 32
FORECAST = Outlook(told()).row()
"""p10 20, p50 100, p90 300, p99 450, as the ledger gets it."""


def answered(
    length: int, stop_type: str = "eos", *, ago_s: float = 0.0, number: int = 1, **fields: Any
) -> RequestRow:
    choice = ChoiceRow(
        outcome="stop",
        stop_type=stop_type,
        completion_tokens=length,
        hidden_tokens=1,
        digest="",
    )
    given = {
        "wall_ns": int((NOW_S - ago_s) * 1e9),
        "max_tokens": 512,
        "forecast": FORECAST,
        "choices": (choice,),
    }
    return request(number, **given | fields)


def history_of(*rows: RequestRow) -> ForecastHistory:
    history = ForecastHistory()
    history.serves(MODEL, 0)
    for row in rows:
        history.ended(row)
    return history


def one(held: bool = True, ago_s: float = 0.0, *, made: bool = True, loss: float = 1.0) -> Judged:
    return Judged(NOW_S - ago_s, made, held, loss)


# -- one answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "held"), [(300, True), (301, False), (1, True)])
def test_answer_is_judged_by_what_the_ledger_says_was_told_before_it_ran(
    length: int, held: bool
) -> None:
    found = judged(answered(length))
    assert found == Judged(NOW_S, True, held, pinball((20, 100, 300, 450), length))


def test_a_bound_at_the_limit_is_not_counted_but_its_loss_is() -> None:
    found = judged(answered(300, "limit", max_tokens=300))
    assert found is not None
    assert (found.held, found.loss) == (None, pinball((20, 100, 300, 450), 300))


def test_an_answer_cut_at_a_limit_above_its_bound_was_longer_than_it() -> None:
    found = judged(answered(400, "limit", max_tokens=400))
    assert found is not None
    assert found.held is False


@pytest.mark.parametrize(
    "row",
    [
        answered(50, "word"),
        answered(50, "none"),
        answered(0),
        answered(50, n=2),
        answered(50, exact=False),
        answered(50, recovered=True),
        answered(50, sampling={"ignore_eos": True}),
        answered(50, sampling={"budget": {"tokens": 50}}),
        answered(50, route="/admin/audit/replay"),
        answered(50, forecast=None),
        answered(50, forecast={**FORECAST, "p90_tok": "300"}),
        answered(50, forecast={"version": "v7"}),
    ],
)
def test_what_says_nothing_of_a_forecast_is_passed_over(row: RequestRow) -> None:
    assert judged(row) is None


def test_answers_of_another_model_do_not_count() -> None:
    history = history_of(answered(50, model_sha256="cd" * 32))
    assert history.told(NOW_S).windows[0][1].answers == 0


# -- over time -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ago_s", "step_s", "steps"),
    [
        (0.0, 600, 36),
        (5 * 3600.0, 600, 36),
        (7 * 3600.0, 600, 144),
        (2.0 * DAY_S, 3600, 168),
        (20.0 * DAY_S, 21_600, 120),
    ],
)
def test_as_much_time_is_told_as_is_known(ago_s: float, step_s: int, steps: int) -> None:
    history = history_of(answered(50, ago_s=ago_s), answered(50))
    found = history.told(NOW_S)
    assert (found.step_s, len(found.steps)) == (step_s, steps)
    assert found.until_s - step_s <= NOW_S < found.until_s + STEP_S
    assert sum(step.answers for step in found.steps) == 2
    assert found.steps[-1].answers >= 1, "the newest is at the end"


def test_nothing_that_is_known_lies_outside_of_what_is_told() -> None:
    for ago_s in range(0, KEPT_S - 6 * 3600, 7919):
        history = ForecastHistory()
        history.add(one(ago_s=float(ago_s)))
        history.add(one())
        found = history.told(NOW_S)
        places = [at for at, step in enumerate(found.steps) for _ in range(step.answers)]
        last = len(found.steps) - 1
        assert sum(step.answers for step in found.steps) == 2
        assert places[-1] >= last - (found.until_s - NOW_S) // found.step_s
        assert abs((places[-1] - places[0]) * found.step_s - ago_s) <= found.step_s


def test_windows_have_what_lies_in_them_and_what_is_too_old_is_in_none() -> None:
    ages = (0.0, 2.0 * DAY_S, 8.0 * DAY_S, KEPT_S + 2.0 * STEP_S)
    history = history_of(*(answered(50, ago_s=age) for age in ages))
    assert [sums.answers for _, sums in history.told(NOW_S).windows] == [1, 2, 3]


def test_coverage_is_told_once_there_are_enough_bounds() -> None:
    history = ForecastHistory()
    for at in range(ENOUGH - 1):
        history.add(one(held=at % 10 != 0))
    assert history.told(NOW_S).windows[0][1].coverage is None
    history.add(one())
    assert history.told(NOW_S).windows[0][1].coverage == 0.9


def test_what_is_told_when_a_forecaster_fails_does_not_count_as_its_own() -> None:
    history = ForecastHistory()
    history.add(one(loss=50.0, made=False))
    assert history.told(NOW_S).windows[0][1].mean_loss == 50.0, "there is no other"
    history.add(one(loss=2.0))
    assert history.told(NOW_S).windows[0][1].mean_loss == 2.0


def test_another_model_begins_anew_and_the_same_one_goes_on() -> None:
    history = history_of(answered(50))
    history.serves(MODEL, 7)
    assert (history.since_ns, history.told(NOW_S).windows[0][1].answers) == (0, 1)
    history.serves("cd" * 32, 7)
    assert (history.since_ns, history.told(NOW_S).windows[0][1].answers) == (7, 0)


def test_memory_is_bounded_whatever_the_clock_does() -> None:
    history = ForecastHistory()
    for at in range(MOST_STEPS + 50):
        history.add(Judged(float(at * STEP_S), True, True, 1.0))
    assert len(history._steps) == MOST_STEPS
    assert history.told(0.0).windows[2][1].answers == 0, "what is yet to come is not told"


# -- from the ledger -----------------------------------------------------------------------------


def ledger_with(folder: Path, rows: list[RequestRow]) -> Ledger:
    ledger = Ledger.open(folder / FILE_NAME)
    for row in rows:
        ledger.record(row, None)
    assert ledger.flush(20)
    return ledger


def test_a_box_that_starts_anew_knows_what_it_knew(tmp_path: Path) -> None:
    rows = [
        answered(10 + 7 * at, ago_s=at * 40_000.0, number=at, sampling={"ignore_eos": at % 5 == 0})
        for at in range(1, 80)
    ]
    ledger_with(tmp_path, [*rows, answered(9, number=90, model_sha256="cd" * 32)]).close()
    before_ns = int((NOW_S + 1) * 1e9)
    again = ForecastHistory()
    for found in read_judged(tmp_path / FILE_NAME, MODEL, before_ns):
        again.add(found)
    assert again.told(NOW_S) == history_of(*rows).told(NOW_S)
    assert again.told(NOW_S).windows[2][1].answers > 40


def test_what_ended_since_the_start_is_not_read_a_second_time(tmp_path: Path) -> None:
    rows = [answered(50, ago_s=20.0, number=1), answered(60, ago_s=10.0, number=2)]
    ledger_with(tmp_path, rows).close()
    found = read_judged(tmp_path / FILE_NAME, MODEL, int((NOW_S - 10.0) * 1e9))
    assert [one.wall_s for one in found] == [NOW_S - 20.0]


def test_of_a_busy_hour_a_sample_is_read_from_its_whole_length(tmp_path: Path) -> None:
    count = 5 * MOST_OF_AN_HOUR
    rows = [answered(50, ago_s=3000.0 - at, number=at + 1) for at in range(count)]
    ledger_with(tmp_path, rows).close()
    found = read_judged(tmp_path / FILE_NAME, MODEL, int(NOW_S * 1e9))
    hours = {int(row.wall_ns // 3_600_000_000_000) for row in rows}
    assert len(found) == MOST_OF_AN_HOUR * len(hours)
    ages = [NOW_S - one.wall_s for one in found]
    assert max(ages) > 3000 - 10
    assert min(ages) == 3000 - count + 1


def test_a_row_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    ledger_with(tmp_path, [answered(50, number=1), answered(60, number=2)]).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("UPDATE entries SET body = '{}' WHERE seq = 1")
    db.close()
    found = read_judged(tmp_path / FILE_NAME, MODEL, int((NOW_S + 1) * 1e9))
    assert [one.loss for one in found] == [pinball((20, 100, 300, 450), 60)]


class Standing:
    """A box with four answers of before its start in the ledger."""

    def __init__(self, folder: Path) -> None:
        self.box = make_box(folder)
        self.app = create_app(self.box)
        self.watch = self.app.state.feed.watch
        self.history = self.box.metrics.pulse.forecasts
        since, model = self.history.since_ns, self.box.model.sha256
        self.ledger = ledger_with(
            folder,
            [
                answered(50 + at, number=at, wall_ns=since - at * 10**9, model_sha256=model)
                for at in range(1, 5)
            ],
        )
        object.__setattr__(self.box, "ledger", self.ledger)
        self.headers = {"X-Api-Key": self.box.keys.create("alice", ["admin"])}

    @property
    def answers(self) -> int:
        """As they are told now."""
        return self.history.told(time.time()).windows[2][1].answers

    async def get(self, path: str) -> bytes:
        answer = await client_of(self.box, self.app).get(path, headers=self.headers)
        assert answer.status_code == 200
        return answer.content


@pytest.fixture
async def standing(tmp_path: Path) -> AsyncIterator[Standing]:
    made = Standing(tmp_path)
    try:
        yield made
    finally:
        await made.app.state.feed.close()
        made.ledger.close()


async def test_console_gets_the_past_of_before_the_start_and_the_scatter_too(
    standing: Standing,
) -> None:
    for _ in range(2):  # a second look adds nothing
        await standing.watch.read()
    past = msgspec.json.decode(await standing.get("/admin/forecasters/past"), type=ForecasterPast)
    assert [window.answers for window in past.windows] == [4, 4, 4]
    assert past.windows[0].pinball_tok is not None
    assert past.windows[0].coverage_pct is None
    assert sum(step.answers for step in past.steps) == 4
    assert sum(step.held for step in past.steps) == 4
    points = msgspec.json.decode(
        await standing.get("/admin/forecasters/scatter"), type=Scatter
    ).points
    assert sorted((point.forecast, point.actual) for point in points) == [
        (100, 51), (100, 52), (100, 53), (100, 54),
    ]  # fmt: skip


async def test_a_model_that_comes_back_finds_its_own_past_again(standing: Standing) -> None:
    await standing.watch.read()
    assert standing.answers == 4
    box = standing.box
    other = dataclasses.replace(box, model=dataclasses.replace(box.model, sha256="cd" * 32))
    for served, answers in ((other, 0), (box, 4), (other, 0)):
        standing.watch.serves(served)
        await standing.watch.read()
        assert standing.answers == answers
    standing.watch.serves(box)  # and at once, before anybody read
    standing.watch.serves(other)
    standing.watch.serves(box)
    await standing.watch.read()
    assert standing.answers == 4
