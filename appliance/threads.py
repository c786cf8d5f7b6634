"""How many threads the engine should compute with: the physical cores this process may use.

Two hyper-threads of one core share its vector units, so a second one makes matrix products slower.
"""

import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cores(topology: Path = _TOPOLOGY) -> int:
    """Physical cores in this process's CPU set; where the kernel does not tell, logical ones."""
    cpus = os.sched_getaffinity(0)
    cores = {_siblings(topology, cpu) for cpu in cpus}
    return max(1, len(cores))


def _siblings(topology: Path, cpu: int) -> str:
    try:
        return (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
