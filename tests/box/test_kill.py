"""SIGKILL to daemon and engine at random instants: whatever a client received, and whatever the
engine had written down, is in the ledger afterwards, once. `bench.kill` does it for longer.
"""

import random
from pathlib import Path

from bench.kill import Ordeal

KILLS = 8


def test_kills_at_random_instants_lose_and_double_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown when it fails
    toll = Ordeal(tmp_path, seed).run(KILLS)
    assert toll.sound, f"seed {seed}: {toll}"
    assert toll.kills >= KILLS
    assert toll.received > 0
    assert toll.journalled > 0
