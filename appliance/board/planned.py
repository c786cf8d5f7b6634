"""The engine is away on purpose: the board waits for it, and watches again once it is back."""

from appliance.board.heartbeat import MOST_INHIBIT_S, REASONS
from firmware_bridge.commands import Inhibit


class Planned:
    """`ask` may be called by any thread, `due` by the one that keeps the board."""

    def __init__(self) -> None:
        self._asked: float | None = None
        self._ours = False
        """The board waits because of us, and for nobody else."""

    def ask(self, seconds: float) -> None:
        """Wait so long; 0: no longer."""
        self._asked = seconds

    def due(self, *, inhibited: bool) -> Inhibit | None:
        """What to tell the board now, if anything. `inhibited`: it waits already."""
        asked, self._asked = self._asked, None
        if asked is None:
            return None
        if asked:
            self._ours = not inhibited
            return Inhibit(min(MOST_INHIBIT_S, round(asked)), REASONS["operator"])
        ours, self._ours = self._ours, False
        return Inhibit(0, REASONS["operator"]) if ours else None
