"""How fast the box is, and when a newcomer starts."""

import pytest

from appliance.accounts.pace import MEMORY_TOKENS, Pace
from appliance.eta import starts_in


def test_a_pace_is_device_time_over_tokens() -> None:
    pace = Pace()
    assert not pace.known
    pace.add(prefill_ns=1000, prefill_tokens=10, decode_ns=4000, completion_tokens=8)
    pace.add(prefill_ns=0, prefill_tokens=5, decode_ns=0, completion_tokens=5)
    assert pace.known
    assert (pace.prefill(3), pace.decode(2)) == (300, 1000)


def test_a_pace_forgets_how_the_box_once_was() -> None:
    pace = Pace()
    old = {"prefill_ns": MEMORY_TOKENS, "prefill_tokens": MEMORY_TOKENS, "decode_ns": 1}
    pace.add(**old, completion_tokens=1)
    for _ in range(20):
        new = {"prefill_ns": 3 * MEMORY_TOKENS, "prefill_tokens": MEMORY_TOKENS, "decode_ns": 1}
        pace.add(**new, completion_tokens=1)
    assert pace.prefill(100) == 300


@pytest.mark.parametrize(
    ("running_left", "ahead", "places", "wait"),
    [
        ((), (), 2, 0.0),
        ((5.0,), (), 2, 0.0),
        ((5.0, 3.0), (), 2, 3.0),
        ((5.0, 3.0), (1.0,), 2, 4.0),
        ((5.0, 3.0), (9.0, 9.0), 2, 12.0),
        ((5.0, 3.0, 1.0), (), 2, 3.0),
    ],
)
def test_a_newcomer_starts_when_those_ahead_have_their_places_and_one_is_left(
    running_left: tuple[float, ...], ahead: tuple[float, ...], places: int, wait: float
) -> None:
    assert starts_in(running_left, ahead, places) == wait
