"""The board's sensors among the machine's own. Pure."""

from collections.abc import Callable

from appliance.board.heat import CPU
from appliance.board.snapshot import BoardSnapshot
from appliance.observe.readings import BOARD, EnergyCounter, Found, Reading
from firmware_bridge.sensors import ChannelReading

UNITS = {"°C": "C", "V": "V", "A": "A", "1/min": "rpm"}
"""What is shown as a sensor; duties, relay and button are outputs and inputs."""
ACTS_AT_C = 95.0
"""Where the board itself acts."""


class BoardReader:
    """Reads the newest snapshot; belongs to the sensors' thread."""

    def __init__(self, snapshot: Callable[[], BoardSnapshot]) -> None:
        self._snapshot = snapshot

    def read(self, now: float) -> Found:
        """Nothing while there is no board."""
        board = self._snapshot()
        shown = [one for one in board.readings if one.unit in UNITS]
        return Found(
            readings=tuple(_reading(one, board, now) for one in shown),
            counters=tuple(
                EnergyCounter(name=one.name, source=BOARD, uj=one.uj, at=one.at)
                for one in board.energies
                if board.present
            ),
        )


def _reading(one: ChannelReading, board: BoardSnapshot, now: float) -> Reading:
    here = board.present
    quality = one.quality if here else "unknown"
    return Reading(
        name=one.name,
        unit=UNITS[one.unit],
        source=BOARD,
        quality=quality,
        at=now,
        value=one.value if quality != "unknown" else None,
        sigma=one.sigma or None,
        crit=ACTS_AT_C if one.name == CPU else None,
        chip=one.name == CPU,
        why=one.why if here else board.problem,
    )
