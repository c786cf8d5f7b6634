"""The control loop's windows while the box serves: fed by outcomes, published, logged."""

import math
import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

import pytest

from appliance.board.channels import channels_of
from appliance.board.snapshot import BoardSnapshot
from appliance.compensation import MOST_CHANNELS, SHARED, Compensation
from appliance.control.correction import (
    FIRST,
    ChannelState,
    ControlSnapshot,
    TickerSnapshot,
)
from appliance.control.replay import Entry, replayed
from appliance.forecast.conformal import TAUS, Group, Table, correct
from appliance.forecast.told import Forecast, ForecasterSnapshot
from appliance.ledger.errors import LedgerError
from firmware_bridge.drift import Drift
from firmware_bridge.sensors import ChannelReading
from tests.unit.bundle_parts import lognormal

VERSION = "v0001"
SIGMA = 0.7


def forecast(median: float = 100.0, route: str = "chat", version: str = VERSION) -> Forecast:
    raw = lognormal(median, SIGMA)
    told = correct(raw, (0.0,) * len(TAUS))
    return Forecast(version, "ok", raw, 1, 2, 3, 4, 2, 512, route, corrected=told)


class Shop:
    """A compensation with everything around it scripted."""

    def __init__(self, *, writes: bool = True) -> None:
        self.version, self.calibration = VERSION, Table()
        self.written: list[Entry] = []
        self.futures: list[Future[int]] = []
        self.now = 100.0
        self.sensors: tuple[ChannelState, ...] = ()
        self.compensation = Compensation(
            "m",
            forecaster=lambda: ForecasterSnapshot(
                version=self.version, calibration=self.calibration
            ),
            write=self._write if writes else None,
            sensors=lambda: self.sensors,
            run=1,
        )

    def _write(self, entries: Sequence[Entry]) -> "Future[int]":
        self.written += entries
        future: Future[int] = Future()
        self.futures.append(future)
        return future

    def settle(self) -> None:
        """All that was handed over is written."""
        for future in self.futures:
            if not future.done():
                future.set_result(1)

    def ticks(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += 0.01
            self.compensation.tick(self.now)

    def answers(self, count: int, factor: float = 1.0, route: str = "chat", seed: int = 1) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            length = max(1, round(100 * factor * math.exp(SIGMA * rng.gauss(0, 1))))
            self.compensation.observe(forecast(route=route), length, False)
            self.ticks()

    @property
    def snapshot(self) -> ControlSnapshot:
        return self.compensation.snapshot(TickerSnapshot(mode="rr"), self.now)


def test_outcomes_become_a_correction_that_the_forecaster_is_given() -> None:
    shop = Shop()
    shop.answers(64, factor=2.0)
    found = shop.compensation.correction(VERSION, "chat")
    assert found.valid
    assert 0.35 < found.filtered < 0.7
    (channel,) = shop.snapshot.channels
    assert channel.channel == "m/chat"
    assert len(channel.window) == 64
    assert channel.correction == found
    assert shop.snapshot.correction("m/chat") == found


def test_residuals_are_of_the_median_as_calibrated() -> None:
    shop = Shop()
    offsets = (0.5,) * len(TAUS)
    shop.calibration = Table((Group("", 100, 0, offsets, (True,) * len(TAUS)),))
    shop.answers(64, factor=math.exp(0.5))
    found = shop.compensation.correction(VERSION, "chat")
    assert found.raw == pytest.approx(0.0, abs=0.25)
    assert found.filtered == pytest.approx(0.0, abs=0.1)


def test_routes_are_corrected_apart() -> None:
    shop = Shop()
    shop.answers(64, factor=2.0, route="a")
    shop.answers(64, factor=0.5, route="b")
    assert shop.compensation.correction(VERSION, "a").filtered > 0.3
    assert shop.compensation.correction(VERSION, "b").filtered < -0.3
    assert not shop.compensation.correction(VERSION, "never seen").valid


def test_another_version_starts_from_nothing() -> None:
    shop = Shop()
    shop.answers(64, factor=2.0)
    shop.version = "v0002"
    shop.ticks()
    assert shop.snapshot.channels == ()
    assert not shop.compensation.correction(VERSION, "chat").valid
    assert not shop.compensation.correction("v0002", "chat").valid
    shop.answers(3)  # told by a version no longer in use
    assert shop.snapshot.channels == ()


def test_global_forecasts_have_no_channel() -> None:
    shop = Shop()
    shop.compensation.observe(forecast(version=""), 50, False)
    shop.ticks(3)
    assert shop.snapshot.channels == ()


def test_what_runs_is_looked_at_and_forgotten_when_it_has_ended() -> None:
    shop = Shop()
    shop.answers(30, factor=1.0)
    shop.compensation.running([(forecast(), 900)] * 60)
    shop.ticks(300)
    raised = shop.compensation.correction(VERSION, "chat").filtered
    assert shop.snapshot.channels[0].running == 60
    shop.compensation.running([])
    shop.ticks(300)
    assert shop.snapshot.channels[0].running == 0
    assert shop.compensation.correction(VERSION, "chat").filtered < raised


def test_one_tick_takes_one_answer() -> None:
    shop = Shop()
    for _ in range(10):
        shop.compensation.observe(forecast(), 100, False)
    shop.ticks(4)
    assert shop.snapshot.channels[0].correction.n == 4


def test_routes_without_end_share_a_channel() -> None:
    shop = Shop()
    for at in range(MOST_CHANNELS + 20):
        shop.answers(1, route=f"r{at}")
    names = [one.channel for one in shop.snapshot.channels]
    assert len(names) == MOST_CHANNELS + 1
    assert f"m/{SHARED}" in names
    assert shop.compensation.correction(VERSION, "r75").n == 20


def test_forecast_that_is_no_number_degrades_and_corrects_nothing() -> None:
    shop = Shop()
    shop.answers(64, factor=2.0)
    before = shop.compensation.correction(VERSION, "chat").filtered
    told = forecast()
    assert told.corrected is not None
    bad = replace(told, corrected=replace(told.corrected, logs=told.corrected.logs * math.nan))
    shop.compensation.observe(bad, 100, False)
    shop.ticks()
    assert "no number" in shop.snapshot.degraded
    after = shop.compensation.correction(VERSION, "chat")
    assert (after.filtered, after.rejected) == (before, 1)
    shop.now += 61
    assert shop.snapshot.degraded == ""


def test_every_correction_is_logged_once_a_second_and_comes_out_again() -> None:
    shop = Shop()
    for at in range(12):
        shop.answers(20, factor=1.5, seed=at)
        shop.compensation.running([(forecast(), 40 * at + 1)] * 3)
        shop.ticks(90)
        shop.settle()
    shop.ticks(200)
    assert len(shop.futures) <= 16
    assert len(shop.written) >= 240
    replay, different = replayed(enumerate(shop.written))
    assert different is None
    assert replay.entries == len(shop.written)


def test_ledger_that_cannot_be_written_costs_the_log_and_no_correction() -> None:
    shop = Shop()
    shop.answers(40, factor=2.0)
    shop.ticks(150)
    lost = len(shop.written)
    shop.futures[0].set_exception(LedgerError("the disk is full"))
    shop.answers(40, factor=2.0, seed=2)
    shop.ticks(150)
    shop.settle()
    shop.ticks(150)
    shop.settle()
    shop.ticks()
    assert shop.compensation.correction(VERSION, "chat").filtered > 0.3
    assert shop.snapshot.unlogged >= lost
    assert shop.snapshot.logged == len(shop.written) - lost
    kept = shop.written[lost:]
    replay, different = replayed(enumerate(kept))
    assert different is None
    assert replay.entries == len(kept) > 0


def test_without_a_ledger_nothing_is_kept_for_it() -> None:
    shop = Shop(writes=False)
    shop.answers(64, factor=2.0)
    assert shop.compensation.correction(VERSION, "chat").filtered > 0.3
    assert (shop.snapshot.logged, shop.snapshot.unlogged) == (0, 0)


def test_corrected_sensors_stand_beside_the_token_channels() -> None:
    reading = ChannelReading(
        name="reference", unit="V", quality="ok", value=1.0, raw=1.002, sigma=0.00035,
        drift=Drift(0.002, "ok", 2), residuals=(None, 0.001, 0.003),
    )  # fmt: skip
    plain = ChannelReading(name="cpu", unit="°C", quality="ok", value=40.0, sigma=0.1)
    (found,) = channels_of(BoardSnapshot(readings=(reading, plain), at=5.0))
    assert (found.kind, found.channel, found.unit, found.quality) == (
        "sensor", "reference", "V", "ok",
    )  # fmt: skip
    assert found.correction.raw == pytest.approx(0.002)
    assert (found.correction.filtered, found.correction.valid) == (0.002, True)
    assert found.window == (None, 0.001, 0.003)


def test_forecast_made_with_the_first_token_is_corrected_by_itself() -> None:
    shop = Shop()
    rng = random.Random(3)
    for _ in range(64):
        length = round(200 * math.exp(SIGMA * rng.gauss(0, 1)))
        first = forecast(median=100.0)
        sharper = replace(forecast(median=200.0), before=first)
        shop.compensation.observe(sharper, length, False)
        shop.ticks(2)
    assert shop.compensation.correction(VERSION, "chat").filtered > 0.3
    assert abs(shop.compensation.correction(VERSION, f"chat{FIRST}").filtered) < 0.15
    names = {one.channel for one in shop.snapshot.channels}
    assert names == {"m/chat", f"m/chat{FIRST}"}
