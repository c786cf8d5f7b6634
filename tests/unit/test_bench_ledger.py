"""What the benchmark of the ledger generates is a sound ledger, and its queries find something."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from appliance.ledger.database import connect
from appliance.ledger.verify.check import verify
from bench.filling import DAYS, fill
from bench.ledger import parse, queries_on

REQUESTS = 8000
EMPTY = {"actions", "requests that cannot be"}


def test_generated_ledgers_verify_with_all_their_tokens(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    told: list[int] = []
    fill(path, 50, seed=1, admissions=True, tokens=True, progress=told.append)
    verdict = verify(path)
    assert verdict.ok, str(verdict)
    assert (verdict.rows, verdict.requests, verdict.in_flight) == (100, 50, [])
    assert told == [100]


def test_every_query_that_is_timed_finds_what_it_is_to_find(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    fill(path, REQUESTS, seed=1, admissions=False, tokens=False, progress=lambda done: None)
    found = {}
    with closing(connect(path, read_only=True)) as db:
        for name, query in queries_on(path, REQUESTS).items():
            answer = query(db)
            found[name] = getattr(answer, "entries", answer)
        (days,) = db.execute("SELECT count(DISTINCT day) FROM usage_daily").fetchone()
    assert {name for name, rows in found.items() if not rows} <= {
        *EMPTY,
        "requests of the last hour that failed",
        "requests of a key in a scenario that were cancelled",
    }
    assert days >= DAYS
    assert found["usage, all"][0].requests == REQUESTS


def test_parts_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["--parts", "verify,queries"]).parts == ["verify", "queries"]
    with pytest.raises(SystemExit):
        parse(["--parts", "verify,dance"])
    assert "no part dance" in capsys.readouterr().err
    assert "STEELYARD_LEDGER" not in os.environ
