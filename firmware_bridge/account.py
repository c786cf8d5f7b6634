"""Which samples arrived, by their absolute index: what is lost is counted exactly."""

HALF = 1 << 31
MASK = (1 << 32) - 1

MAX_GAPS = 64
"""Gaps that late frames can still fill. Older ones are final; the count of lost ones keeps them."""


class IndexAccount:
    """Samples between the first one seen and the newest are either arrived or lost."""

    def __init__(self) -> None:
        self.next: int | None = None
        self.arrived = 0
        self.lost = 0
        self.duplicates = 0
        self._gaps: list[tuple[int, int]] = []

    def restart(self) -> None:
        """The index begins anew (the board booted). The totals stay."""
        self.next = None
        self._gaps.clear()

    def extend(self, index32: int) -> int:
        """The full index of which the wire carries the lower 32 bits."""
        if self.next is None:
            return index32
        return self.next + ((index32 - self.next + HALF) & MASK) - HALF

    def take(self, first: int, count: int) -> tuple[bool, int]:
        """Account for `count` samples from `first` on. Says whether they are new, and how many
        before them turned out to be missing."""
        missing = 0
        if self.next is None or first >= self.next:
            missing = self._advance(first, count)
        elif not self._fill(first, first + count):
            self.duplicates += count
            return False, 0
        self.arrived += count
        return True, missing

    def _advance(self, first: int, count: int) -> int:
        missing = 0 if self.next is None else first - self.next
        if missing:
            self.lost += missing
            self._gaps.append((first - missing, first))
            del self._gaps[:-MAX_GAPS]
        self.next = first + count
        return missing

    def _fill(self, first: int, end: int) -> bool:
        for at, (low, high) in enumerate(self._gaps):
            if low <= first and end <= high:
                parts = [(low, first), (end, high)]
                self._gaps[at : at + 1] = [part for part in parts if part[0] < part[1]]
                del self._gaps[:-MAX_GAPS]
                self.lost -= end - first
                return True
        return False
