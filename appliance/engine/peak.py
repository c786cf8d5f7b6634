"""The most cells that running sequences will hold together before they end.

Sequences grow by a cell a step and give back, when they end, what they alone hold. So the most is
held when one of them ends: then it and all that end later have grown by what it had left. (The idea
of Past-Future, arXiv 2507.10150.) Quantiles of single requests must not be added up: they do not
all grow long, and not all at the same time.
"""

from collections.abc import Iterable


def predicted_peak(growing: Iterable[tuple[int, int]], shared: int) -> int:
    """Cells. `growing`: of each sequence, tokens still to come and cells that it alone holds;
    `shared`: the cells that more than one of them holds, counted once."""
    peak = held = 0
    for count, (remaining, own) in enumerate(sorted(growing, reverse=True), 1):
        held += own
        peak = max(peak, held + remaining * count)
    return shared + peak
