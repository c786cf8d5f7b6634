"""The control loop of a real box: its beat, its windows, and a log that comes out again."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.box.conftest import Start
from tests.box.running import RunningBox
from tests.box.wire import CHAT, chat

ANSWERS = 10


def loop_of(box: RunningBox) -> dict[str, Any]:
    found = box.admin("GET", "/admin/control")
    assert found.status_code == 200
    return dict(found.json())


def replay(ledger: Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "control", "replay", str(ledger), "--json"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def ledger_of(start: Path) -> Path:
    (found,) = start.rglob("ledger.sqlite")
    return found


def test_answers_of_a_real_box_become_corrections_that_replay_bit_for_bit(
    start_box: Start, tmp_path: Path
) -> None:
    box = start_box()
    for at in range(ANSWERS):
        answered = box.http.post(CHAT, json=chat(max_tokens=12 + at))
        assert answered.status_code == 200
    box.wait_until(lambda: _seen(box) >= ANSWERS, what="the answers in the window")
    box.wait_until(lambda: loop_of(box)["logged"] >= ANSWERS, what="the corrections in the ledger")
    now = loop_of(box)
    assert now["ticker"]["mode"] in ("rr", "nice", "plain")
    assert "no number" not in now["degraded"]  # of late ticks a busy machine may tell
    assert box.stop() == 0
    ledger = ledger_of(tmp_path)
    status, verdict = replay(ledger)
    assert (status, verdict["ok"], verdict["gaps"]) == (0, True, 0)
    assert verdict["corrections"] >= ANSWERS
    with closing(sqlite3.connect(ledger)) as db, db:
        db.execute("UPDATE corrections SET body = json_set(body, '$.made.n', 99) WHERE seq = 5")
    status, verdict = replay(ledger)
    assert (status, verdict["ok"]) == (1, False)
    assert (verdict["first_difference"]["seq"], verdict["first_difference"]["what"]) == (5, "n")


def _seen(box: RunningBox) -> int:
    tokens = [one for one in loop_of(box)["channels"] if one["kind"] == "tokens"]
    return sum(one["n"] for one in tokens)


def test_ticker_beats_while_the_engine_computes(box: RunningBox) -> None:
    before = loop_of(box)["ticker"]["ticks"]
    answered = box.http.post(CHAT, json=chat(max_tokens=64))
    assert answered.status_code == 200
    box.wait_until(lambda: loop_of(box)["ticker"]["ticks"] > before + 100, what="a hundred ticks")
