"""The account of a box that stopped or was killed: what a client received is in it."""

from pathlib import Path

from tests.box.asking import ask, check_complete
from tests.box.counted import ENGINE, LONG, Counted
from tests.box.ledgered import Ledgered, check_chain, check_digests, check_sums, settle
from tests.box.running import RunningBox


def test_a_box_that_stops_closes_what_runs_as_interrupted(tmp_path: Path) -> None:
    ledger = Ledgered(tmp_path / "state")
    with RunningBox.start(tmp_path, engine=ENGINE, server={"drain_s": 0}) as box:
        counted = Counted(box, ledger)
        stream, stream_name = counted.ask(max_tokens=LONG)
        whole, whole_name = counted.ask("Poem", max_tokens=LONG, stream=False)
        box.wait_for_running(2)
        stream.wait_for_tokens(len(stream.token_ids) + 5)  # as many steps later, both have some
        assert box.stop() == 0
    for asked, name in ((stream, stream_name), (whole, whole_name)):
        asked.wait()
        assert [error["code"] for error in asked.errors] == ["shutting_down"]
        (row,) = ledger.rows(request_id=name)
        assert (row["outcome"], row["code"]) == ("interrupted", "shutting_down")
        tokens = ledger.tokens(row)[1]
        assert tokens[: len(asked.token_ids)] == asked.token_ids
        assert tokens
        check_digests(ledger, row)
    check_chain(ledger)
    assert ledger.in_flight == 0
    assert ledger.entries("note")[-1]["event"] == "stopped"


def test_a_killed_box_has_every_token_that_a_client_received(tmp_path: Path) -> None:
    ledger = Ledgered(tmp_path / "state")
    with RunningBox.start(tmp_path, engine=ENGINE) as box:
        counted = Counted(box, ledger)
        check_complete(box, counted.ask(max_tokens=3)[0])
        settle(box, ledger)
        streams = [counted.ask(f"Story {number}", max_tokens=LONG) for number in range(2)]
        for stream, _ in streams:
            stream.wait_for_tokens(3)
        twice, twice_name = counted.ask("Both", max_tokens=LONG, n=1, stream=False)
        queued, queued_name = counted.ask("Wait", max_tokens=LONG)
        box.wait_until(lambda: ledger.in_flight == 4, what="all are admitted")
        box.process.kill()
        box.process.wait()
        for asked in (twice, queued, *(stream for stream, _ in streams)):
            asked.wait()
    truth = ledger.journal()
    with RunningBox.start(tmp_path, engine=ENGINE) as box:
        for asked, name in [*streams, (twice, twice_name), (queued, queued_name)]:
            (row,) = ledger.rows(request_id=name)
            assert (row["outcome"], row["recovered"]) == ("interrupted", True)
            assert row["exact"], "the machine did not lose power"
            tokens = ledger.tokens(row)[1]
            assert tokens[: len(asked.token_ids)] == asked.token_ids
            known = truth.get(row["number"])
            assert tokens == (known.tokens[0] if known is not None else [])
            check_digests(ledger, row)
        check_complete(box, ask(box, max_tokens=3))
        check_sums(box, ledger)
        check_chain(ledger)
        usage = ledger.ask("SELECT sum(prefill_tokens), sum(completion_tokens) FROM usage_daily")
    rows = ledger.rows()
    assert usage == [
        (
            sum(row["prefill_tokens"] for row in rows),
            sum(row["completion_tokens"] for row in rows),
        )
    ]
    assert len({row["number"] for row in rows}) == len(rows)
