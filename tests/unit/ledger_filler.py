"""A process of its own: fills the disk under a ledger, frees it, and tells what remained.

    python -m tests.unit.ledger_filler DIRECTORY [--limit]

DIRECTORY lies on a small file system; with --limit on any, and this process may only write short
files (a real refusal by the kernel, too).
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Payload
from appliance.ledger.writer import Ledger
from tests.unit.ledger_parts import admitted, broken_links, numbers, request

LIMIT_BYTES = 350_000
BALLAST_BYTES = 1_500_000
FULL_FOR_S = 1.1
"""A checkpoint may make room once more: several attempts have to fail."""
WAIT_S = 60.0


class Room:
    """What is left on the disk."""

    def __init__(self, directory: Path, limited: bool) -> None:
        self._limited = limited
        self._ballast = directory / "ballast"
        if limited:
            self._set(LIMIT_BYTES)
        else:
            self._ballast.write_bytes(bytes(BALLAST_BYTES))

    def free(self) -> None:
        if self._limited:
            self._set(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        else:
            self._ballast.unlink()

    def _set(self, limit: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))


class Load:
    """Requests that are admitted, and end."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.recorded = 0

    def until_full(self) -> None:
        while self._recovers():
            try:
                self.ledger.admit(admitted(self.recorded + 1)).result(WAIT_S)
            except LedgerError:
                continue
            self.finish()

    def finish(self) -> None:
        self.recorded += 1
        payload = Payload(prompt=os.urandom(8000).hex())
        self.ledger.record(request(self.recorded), payload)

    def _recovers(self) -> bool:
        deadline = time.monotonic() + FULL_FOR_S
        while not self.ledger.snapshot.ok and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.ledger.snapshot.ok


def main(directory: Path, limited: bool) -> dict[str, object]:
    room = Room(directory, limited)
    path = directory / "ledger.sqlite"
    load = Load(Ledger.open(path))
    load.until_full()
    for _ in range(30):  # they were in flight
        load.finish()
    ledger = load.ledger
    refused = ledger.admit(admitted(10**6)).exception(WAIT_S)
    full, in_time = ledger.snapshot, ledger.flush(1.0)
    room.free()
    ok = ledger.flush(WAIT_S) and ledger.admit(admitted(10**6)).result(WAIT_S) > 0
    not_written = ledger.close()
    return {
        "problem": full.problem,
        "admission_while_full": str(refused),
        "waiting_while_full": 0 if in_time else ledger.snapshot.waiting + 30,
        "ok_after": ok,
        "not_written": not_written,
        "recorded": load.recorded,
        "final_rows": numbers(path),
        "broken_links": broken_links(path),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), "--limit" in sys.argv)))
