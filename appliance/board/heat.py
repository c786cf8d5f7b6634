"""When the engine is to compute less, so that the board need not act. Pure."""

CPU = "cpu_temperature"
"""The board's channel that counts."""
COOLER_C = 5.0
"""Below the limit before it is fast again: else it would change every second."""


class Hot:
    """`limit_c`: from which on it is hot."""

    def __init__(self, limit_c: float) -> None:
        self.on = False
        self._limit_c = limit_c

    def look(self, celsius: float | None) -> bool | None:
        """The change, if this temperature makes one. What is unknown changes nothing: the board
        itself runs its fans at full speed then."""
        if celsius is None:
            return None
        hot = celsius >= self._limit_c - (COOLER_C if self.on else 0.0)
        if hot == self.on:
            return None
        self.on = hot
        return hot
