"""Who gives way when cells or places run out."""

from math import ceil

from appliance.engine.sequence import Sequence


def victim(running: list[Sequence]) -> Sequence:
    """Which of the running sequences, in their order, gives up its cells: one of pool B if there is
    one, and of those one that never had to before. In the last third of the order that is left, the
    one that generated least; so the first of all always gets on."""
    batch = [sequence for sequence in running if sequence.batch]
    lane = batch or running
    spared = [sequence for sequence in lane if sequence.evictions == 0] or lane
    last = spared[-ceil(len(spared) / 3) :]
    return min(reversed(last), key=lambda sequence: sequence.generated)
