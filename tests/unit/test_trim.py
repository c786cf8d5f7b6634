"""Memory that is not needed any more goes back to the machine."""

import subprocess
import sys

PROGRAM = """
from appliance.trim import be_frugal, trim
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
be_frugal()
kept = [bytes(50_000) for _ in range(2000)]
full = resident()
del kept[:-1]
trim()
print(full - resident())
"""


def test_what_was_freed_is_given_back_though_something_lies_above_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) > 80_000_000
