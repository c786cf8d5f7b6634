"""Budgets and order on screens 1 to 3: pools, windows, ticks, another place for a request."""

import math
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from appliance.frames import Pool
from tests.unit.console_box import make_rows
from tests.unit.console_draws import anything, views
from tests.unit.console_shop import Shop, open_shop
from tests.unit.console_views import LIVE, STATE, view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.screen import Ask, Call, Choose, Tell
from tui.screens.all import every_screen
from tui.screens.calibration import CONTROL, SCATTER, VERSIONS, Calibration
from tui.screens.calibration_channels import signed
from tui.screens.overview import Overview
from tui.screens.requests import Requests
from tui.view import View


def window(name: str, n: int = 64, **more: Any) -> dict[str, Any]:
    told = {
        "channel": name, "kind": "tokens", "unit": "log", "n": n, "raw": 0.08, "filtered": 0.06,
        "valid": True, "sd_ratio": 0.71, "window": [math.sin(at / 5) / 2 for at in range(n)],
    }  # fmt: skip
    return told | more


CHAT = window("smollm2/chat")
JSON = window("smollm2/json", 22, raw=-0.02, filtered=0.0, valid=False, sd_ratio=0.66)
VOLT = window("board/12V", kind="sensor", unit="mV", raw=-3.3, filtered=-3.2, sd_ratio=None)
FAN = window("board/fan 2", 0, kind="sensor", valid=False, raw=None, sd_ratio=None, window=[None])


def steered(order: str = "expected-cost", fallback: str = "", **given: Any) -> View:
    state = "uncalibrated" if fallback == "uncalibrated" else "ok"
    live = replace(
        LIVE, forecaster="v0007 CPU INT8", forecast_state=state, coverage_pct=89.6,
        queue_order=order, queue_fallback=fallback, tick_late_p99_ms=0.4, tick_overrun_pct=0.01,
    )  # fmt: skip
    bands = {"coverage": (85.0, 95.0), "tick_late_p99": (None, 2.0), "tick_overrun": (None, 0.1)}
    state_of = replace(STATE, bands={**STATE.bands, **bands})
    return changed(view(**given), live=live, state=state_of)


def controlled(*channels: dict[str, Any], tau: float | None = 0.62) -> Calibration:
    screen = Calibration()
    screen.receive(VERSIONS, {"in_use": "", "forecasters": [{"version": "v1"}]}, None)
    screen.receive(SCATTER, {"points": [[60, 70, 0]]}, None)
    screen.receive(CONTROL, {"tau": tau, "channels": list(channels)}, None)
    return screen


def row_of(text: str, label: str) -> str:
    return next(row for row in text.splitlines() if row.strip().startswith(label))


# -- screen 1 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_overview_tells_the_forecast_and_what_the_queue_goes_by(lang: str) -> None:
    agree(f"overview-steered-{lang}", printed(Overview(), steered(lang=lang)))


def test_overview_says_why_the_queue_goes_by_arrival() -> None:
    text = printed(Overview(), steered("fcfs", "uncalibrated"))
    assert "queue: FCFS (bounds do not hold)" in row_of(text, "forecast OFF")


def test_what_pool_b_holds_of_a_is_told() -> None:
    shown = steered()
    assert shown.live is not None
    b = Pool(cap_tok=2048, used_tok=2500, reserved_tok=10, borrowed_tok=452)
    live = replace(shown.live, pool_b=b, kv_b_pct=100.0)
    text = printed(Overview(), changed(shown, live=live))
    assert "2500/2048 tok, 452 borrowed of A" in row_of(text, "KV pool B")


def test_pool_b_without_cells_and_requests_is_none() -> None:
    shown = steered()
    assert shown.live is not None
    live = replace(shown.live, pool_b=Pool(cap_tok=0, used_tok=0, borrowed_tok=0), kv_b_pct=None)
    text = printed(Overview(), changed(shown, live=live))
    assert row_of(text, "KV pool B").endswith("no batch request: A has every cell")


# -- screen 2 --------------------------------------------------------------------------------------


def moving(pool: str = "A") -> tuple[Requests, View]:
    rows = make_rows(1)
    rows = replace(rows, requests=(replace(rows.requests[0], pool=pool),))
    screen, shown = Requests(), changed(view(), rows=rows)
    screen.body(shown)
    return screen, shown


def test_p_offers_places_and_asks_before_it_moves() -> None:
    screen, shown = moving()
    found = screen.press("P", shown)
    assert isinstance(found, Choose)
    assert found.options[found.chosen][1].startswith("A, in its turn")
    assert len(found.options) == 4
    ask = found.then("3")
    assert isinstance(ask, Ask)
    assert "B, batch (like tier flex)" in ask.lines
    assert "key key-0, tenant sales, decode, 0 tok generated" in ask.lines
    assert isinstance(ask.effect, Call)
    assert (ask.effect.method, ask.effect.path) == ("POST", "/admin/requests/8f00/priority")
    assert ask.effect.body == {"priority": 1, "pool": "b"}


def test_list_opens_at_the_pool_that_the_request_is_in() -> None:
    screen, shown = moving("B")
    found = screen.press("P", shown)
    assert isinstance(found, Choose)
    assert found.options[found.chosen][1].startswith("B, batch")


def test_p_without_a_request_says_so() -> None:
    assert isinstance(Requests().press("P", view()), Tell)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_p_is_among_the_keys_of_screen_2(lang: str) -> None:
    screen, _ = moving()
    assert "P" in dict(screen.hints(view(lang=lang)))


async def test_five_keys_move_a_request_to_the_batch_pool(tmp_path: Path) -> None:
    async with open_shop(tmp_path, every_screen()) as it:
        await keys(it, "2", "P", "down", "down", "enter", "y")
        await it.until(lambda: it.link.acted)
        method, path, body = it.link.acted[0]
        assert (method, path) == ("POST", "/admin/requests/8f00/priority")
        assert body == {"priority": 1, "pool": "b"}


async def keys(it: Shop, *pressed: str) -> None:
    for key in pressed:
        if key == "y":
            await it.armed()
        await it.press(key)


# -- screen 3 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 140])
def test_windows_stand_above_the_versions(lang: str, width: int) -> None:
    shown = steered(lang=lang, width=width, height=24 if width == 80 else 45)
    text = printed(controlled(CHAT, JSON, VOLT, FAN), shown)
    agree(f"calibration-windows-{width}-{lang}", text)


def test_correction_in_force_is_a_factor_on_lengths_and_what_is_taken_off_a_sensor() -> None:
    text = printed(controlled(CHAT, JSON, VOLT), steered())
    assert row_of(text, "smollm2/chat").split()[1:7] == [
        "64/64", "+.08", "+.06", "yes", "0.71", "x1.06",
    ]  # fmt: skip
    assert row_of(text, "smollm2/json").split()[4:7] == ["few", "0.66", "-"]
    assert row_of(text, "board/12V").split()[4:7] == ["yes", "?", "+3.20"]


def test_more_channels_than_there_is_room_for_are_counted() -> None:
    many = [window(f"board/{at:02}", kind="sensor") for at in range(16)]
    text = printed(controlled(*many), steered())
    assert "+" in row_of(text, "+")
    assert row_of(text, "+").strip().endswith("channels")
    assert "board/00" in text


def test_ticks_are_told_with_their_bounds() -> None:
    text = printed(controlled(CHAT), steered())
    assert row_of(text, "ticks").endswith("late p99 0.40 ms (<2), over 0.010 % (<0.10)")


def test_without_channels_nothing_stands_in_their_place() -> None:
    assert "CHANNEL" not in printed(controlled(tau=None), steered())


def test_answer_that_is_none_leaves_what_was_known() -> None:
    screen = controlled(CHAT)
    screen.body(steered())
    screen.receive(CONTROL, {"channels": [{"channel": 1}]}, None)
    assert "smollm2/chat" in printed(screen, steered())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.08, "+.08"), (-0.2, "-.20"), (0.0, ".00"), (-0.004, ".00"), (1.5, "+1.50"),
     (-42.4, "-42"), (1e9, "?"), (None, "?"), (math.nan, "?")],
)  # fmt: skip
def test_signed_numbers_have_five_cells_at_most(value: float | None, text: str) -> None:
    assert signed(value) == text


numbers = st.none() | st.floats()


@given(
    views(),
    st.lists(
        st.builds(
            window, anything, st.integers(0, 999), raw=numbers, sd_ratio=numbers,
            valid=st.booleans(), filtered=st.floats(), kind=st.sampled_from(["tokens", "sensor"]),
            window=st.lists(numbers, max_size=64),
        ),
        max_size=16,
    ),
    numbers,
)  # fmt: skip
def test_every_row_is_exact_whatever_the_windows_hold(
    shown: View, channels: list[dict[str, Any]], tau: float | None
) -> None:
    exact(controlled(*channels, tau=tau), shown)
