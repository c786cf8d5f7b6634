"""The board's corrected channels beside those of tokens, for who looks at the control loop."""

import math

from appliance.board.snapshot import BoardSnapshot
from appliance.control.correction import ChannelState, Correction
from firmware_bridge.sensors import ChannelReading


def channels_of(board: BoardSnapshot) -> tuple[ChannelState, ...]:
    """Those that have references. Unlike those of tokens, what they are off by is taken off."""
    return tuple(_state(one, board.at or 0.0) for one in board.readings if one.residuals)


def _state(one: ChannelReading, at: float) -> ChannelState:
    known = [off for off in one.residuals if off is not None]
    mean = math.fsum(known) / len(known) if known else None
    return ChannelState(
        kind="sensor",
        channel=one.name,
        unit=one.unit,
        correction=Correction(
            channel=one.name,
            raw=mean,
            filtered=one.drift.bias,
            valid=one.drift.quality != "none",
            n=one.drift.references,
            std=_deviation(known, mean),
            at=at,
            sigma=one.sigma,
        ),
        window=one.residuals,
        quality=one.drift.quality,
    )


def _deviation(known: list[float], mean: float | None) -> float | None:
    if mean is None or len(known) < 2:
        return None
    return math.sqrt(math.fsum((off - mean) ** 2 for off in known) / (len(known) - 1))
