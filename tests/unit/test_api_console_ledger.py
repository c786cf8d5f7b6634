"""What the console asks of the ledger: the tokens of one request, and whether the chain holds."""

import asyncio
import io
import sqlite3
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.api.console_shapes import (
    RequestTokens,
    Verification,
)
from appliance.api.verifying import Verifying
from appliance.ledger.books import Books, Identity, Texts
from appliance.ledger.verify.command import progress_lines
from appliance.ledger.writer import Ledger
from tests.unit.api_box import chat, client_of, make_box, saying
from tests.unit.console_desk import VERIFY, Desk, actions, frames_in

CHAIN_ROWS = 3
"""Entries of one answered request and one key."""


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(make_box(tmp_path))
    yield made
    await made.app.state.feed.close()


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Desk]:
    """With a real ledger, in which one request has ended."""
    ledger = Ledger.open(tmp_path / FILE_NAME)
    identity = Identity("tiny", "ab" * 32, "cd" * 32, "test", "boot")
    box = replace(
        make_box(tmp_path, saying("Hi", "!")),
        ledger=ledger,
        books=Books(ledger, identity, costing=lambda row: None, texts=Texts()),
        keys=KeyStore(tmp_path / FILE_NAME),
    )
    assert (await client_of(box).post("/v1/chat/completions", json=chat())).status_code == 200
    assert ledger.flush(20)
    made = Desk(box)
    yield made
    await made.app.state.feed.close()
    ledger.close()


async def test_the_tokens_of_an_ended_request_are_told_with_their_texts(kept: Desk) -> None:
    rows = (await kept.get("/admin/history")).json()["requests"]
    told = await kept.told(f"/admin/requests/{rows[0]['id']}/tokens", RequestTokens)
    (one,) = told.requests
    assert (one.id, one.seq, one.kept) == (rows[0]["id"], rows[0]["seq"], True)
    assert "".join(token.text for token in one.prompt) == "hi"
    assert [token.text for token in one.choices[0]] == ["H", "!", "</s>"]


async def test_tokens_that_were_dropped_are_told_as_such(kept: Desk, tmp_path: Path) -> None:
    row = (await kept.get("/admin/history")).json()["requests"][0]
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("DELETE FROM payloads")
    db.close()
    told = await kept.told(f"/admin/requests/{row['id']}/tokens", RequestTokens)
    assert (told.requests[0].kept, told.requests[0].prompt) == (False, [])


async def test_tokens_of_nobody_are_not_found(kept: Desk) -> None:
    assert (await kept.get("/admin/requests/nope/tokens")).status_code == 404


async def verified(desk: Desk) -> Any:
    async with asyncio.timeout(60):
        while (found := await desk.told(VERIFY, Verification)).state == "running":
            await asyncio.sleep(0.05)
    return found


async def test_the_ledger_is_verified_beside_serving(kept: Desk) -> None:
    assert (await kept.told(VERIFY, Verification)).state == "none"
    began = await kept.post(VERIFY)
    assert (began.status_code, began.json()["state"], began.json()["by"]) == (
        202, "running", "alice (bob)",
    )  # fmt: skip
    found = await verified(kept)
    assert (found.state, found.problem, found.bad_row) == ("intact", "", None)
    assert found.verdict["ok"]
    assert found.done == found.total == found.verdict["rows"] >= CHAIN_ROWS
    assert "ledger.verify" in [
        r["action"] for r in (await kept.get("/admin/actions")).json()["actions"]
    ]


async def test_a_broken_chain_is_found_and_raises_an_alarm(kept: Desk, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("UPDATE entries SET body = replace(body, 'tiny', 'TINY') WHERE seq = 2")
    db.close()
    await kept.post(VERIFY)
    found = await verified(kept)
    assert (found.state, found.bad_row) == ("faults", 2)
    for second in range(4):
        kept.watch.look(1000.0 + second, 1_800_000_000.0 + second)
    (live,) = frames_in(await kept.get("/events?once=1&frames=live"))
    assert (live.chain_ok, live.alarm_top) == (False, "chain_broken")
    (state,) = frames_in(await kept.get("/events?once=1&frames=state"))
    assert (state.chain.ok, state.chain.bad_row) == (False, 2)


def test_the_verifier_tells_its_progress_to_programs_a_line_each() -> None:
    out = io.StringIO()
    progress_lines(out)(3, 10)
    assert out.getvalue() == "3 10\n"


def slow(*lines: str) -> tuple[str, ...]:
    """A verifier that tells of its progress and goes on for ever."""
    told = "".join(f"print({line!r}, file=sys.stderr, flush=True);" for line in lines)
    return (sys.executable, "-c", f"import sys,time;{told}time.sleep(600)")


async def test_one_verification_runs_at_a_time_and_tells_how_far_it_is(desk: Desk) -> None:
    desk.watch.verifying = Verifying(Path("x"), slow("3 10", "5 10"))
    assert (await desk.post(VERIFY)).status_code == 202
    async with asyncio.timeout(20):
        while desk.watch.verifying.now.done < 5:
            await asyncio.sleep(0.02)
    again = await desk.post(VERIFY)
    assert (again.status_code, again.json()["done"], again.json()["total"]) == (200, 5, 10)
    assert [a.action for a in actions(desk)] == ["ledger.verify"]
    (state,) = frames_in(await desk.get("/events?once=1&frames=state"))
    (job,) = state.jobs
    assert (job.kind, job.done, job.total) == ("verify", 5, 10)
    await desk.watch.verifying.close()
    assert desk.watch.verifying.now.state == "failed"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("/nonexistent/verifier",), "could not be started"),
        ((sys.executable, "-c", "import sys; sys.exit('verify: it is no ledger')"), "no ledger"),
        ((sys.executable, "-c", "import sys; sys.exit(9)"), "ended with 9"),
        ((sys.executable, "-c", "print('nonsense')"), "nothing that could be read"),
        (
            (sys.executable, "-c", "import sys; sys.exit('first\\n\\nIt: the last line')"),
            "last line",
        ),
    ],
)
async def test_a_verifier_that_fails_is_told_with_its_reason(
    desk: Desk, command: tuple[str, ...], problem: str
) -> None:
    desk.watch.verifying = Verifying(Path("x"), command)
    await desk.post(VERIFY)
    found = await verified(desk)
    assert found.state == "failed"
    assert problem in found.problem
    assert desk.watch.verifying.ok is None
