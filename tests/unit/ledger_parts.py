"""Rows for tests of the ledger."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from appliance.ledger.database import connect
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Action, Admitted, ChoiceRow, Costs, Note, Payload, RequestRow
from appliance.ledger.verify import GENESIS, pack_tokens, row_hash, token_digest
from appliance.ledger.writer import Ledger

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
WALL = 20_000 * DAY
"""The first moment of a day (UTC)."""
SOON = 20.0
"""For what another thread does; it takes milliseconds on an idle machine."""
BULKY = Payload(prompt="x" * 50_000)
"""Fits into no page that the file already has."""


def admitted(number: int, **fields: Any) -> Admitted:
    """The admission of request `number`."""
    return Admitted(**{**_facts(number), **fields})


def request(number: int, **fields: Any) -> RequestRow:
    """The final row of request `number`: 10 prompt tokens, 4 of them cached, and 5 sampled."""
    return RequestRow(**{**_facts(number), **_ending(), **fields})


def note(event: str = "box.started", **fields: Any) -> Note:
    return Note(**{"wall_ns": WALL, "event": event, **fields})


def action(name: str = "key.create", **fields: Any) -> Action:
    return Action(**{"wall_ns": WALL, "action": name, **fields})


def payload(prompt: int = 10, completion: int = 5) -> Payload:
    return Payload(tokens=pack_tokens([range(prompt), range(completion)]))


def _facts(number: int) -> dict[str, Any]:
    return {
        "wall_ns": WALL + number * SECOND,
        "number": number,
        "id": f"chatcmpl-{number:08x}",
        "trace_id": f"{number:032x}",
        "request_id": f"req-{number}",
        "route": "/v1/chat/completions",
        "key_id": "k1",
        "key_name": "Büro",
        "tenant": "acme",
        "scenario": "",
        "model": "smol",
        "model_sha256": "ab" * 32,
        "template_sha256": "cd" * 32,
        "build": "steelyard 0.1 llama.cpp b1",
        "sampling": {"temperature": 0.7, "top_p": 0.95, "seed": number},
        "n": 1,
        "max_tokens": 64,
        "tier": "normal",
        "stream": True,
        "prompt_tokens": 10,
        "received_wall_ns": WALL + (number - 1) * SECOND,
        "received_ns": number * SECOND,
        "boot_id": "00000000-0000-4000-8000-000000000000",
    }


def _ending() -> dict[str, Any]:
    choice = ChoiceRow(
        outcome="stop",
        stop_type="eos",
        completion_tokens=5,
        hidden_tokens=1,
        digest=token_digest(range(10), range(5)),
    )
    return {
        "outcome": "stop",
        "status": 200,
        "cached_tokens": 4,
        "prefill_tokens": 6,
        "completion_tokens": 5,
        "hidden_tokens": 1,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
        "submitted_ns": 1,
        "started_ns": 2,
        "first_token_ns": 3,
        "ended_ns": 4,
        "prefill_ns": 600,
        "decode_ns": 500,
        "parallel": 1,
        "preemptions": 0,
        "exclusive": False,
        "energy_uj": 7,
        "costs": Costs(currency="EUR", prefill=6, decode=5, cached=1, idle=0),
        "choices": (choice,),
    }


def broken_links(path: Path) -> list[int]:
    """Entries that do not follow from those before them; the whole chain is computed again."""
    wrong = []
    with connect(path, read_only=True) as db:
        prev, expected = GENESIS, 1
        for seq, kind, body, stored in db.execute("SELECT seq, kind, body, hash FROM entries"):
            if seq != expected or row_hash(prev, seq, kind, body) != stored:
                wrong.append(seq)
            prev, expected = stored, seq + 1
    return wrong


def numbers(path: Path, kind: str = "request") -> list[int]:
    """The request numbers of all entries of a kind, in the order of the chain."""
    with connect(path, read_only=True) as db:
        rows = db.execute("SELECT number FROM entries WHERE kind = ? ORDER BY seq", (kind,))
        return [number for (number,) in rows]


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits for another thread."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def fails(future: Future[Any], match: str) -> None:
    """The future ends with a LedgerError that says this."""
    with pytest.raises(LedgerError, match=match):
        future.result(SOON)


class Disk:
    """A disk that can be full: SQLite itself refuses to let the file grow."""

    def __init__(self) -> None:
        self.full = False
        self.statements: list[str] = []

    def connect(self, path: Path) -> Database:
        db = connect(path)
        db.execute("PRAGMA busy_timeout = 20")
        if self.full:
            _stop_growth(db)
        db.conn.set_trace_callback(self.statements.append)
        return db

    def fill(self, ledger: Ledger) -> None:
        self.full = True
        ledger.run(_stop_growth).result(SOON)

    def free(self) -> None:
        self.full = False


def _stop_growth(db: Database) -> None:
    db.execute("PRAGMA max_page_count = 1")  # which means: as many as there are now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def ledger(path: Path, disk: Disk) -> Iterator[Ledger]:
    opened = Ledger.open(path, connect=disk.connect)
    yield opened
    opened.close()
