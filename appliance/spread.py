"""How far values lie apart."""

from collections.abc import Iterable


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """The median, the 99th percentile and the largest; zeros of none.

    A percentile is one of the values, by its rank; of two middle ones the larger.
    """
    ordered = sorted(values)
    if not ordered:
        return 0.0, 0.0, 0.0
    count = len(ordered)
    return ordered[count // 2], ordered[count * 99 // 100], ordered[-1]
