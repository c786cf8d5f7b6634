"""Corrections come out of their log again, bit for bit, and what was altered in it is found."""

import math
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.cli import steelyard
from appliance.control.replay import WHOLE_EVERY, Entry, Recorder, replayed
from appliance.control.window import Flight, Sample
from appliance.ledger import corrections
from appliance.ledger.database import connect
from appliance.ledger.errors import LedgerError

RUN = 1_700_000_000


def recorded(seed: int, looks: int, channel: str = "m/chat") -> list[Entry]:
    """Of a channel that drifts, with requests in flight and some that are no numbers."""
    rng = random.Random(seed)
    recorder, found = Recorder(RUN, channel), []
    for at in range(looks):
        median = rng.gauss(5, 0.7)
        sample = Sample(median + rng.gauss(0.4, 1.0), median, 1.0, rng.random() < 0.3)
        if at % 7 == 3:
            sample = replace(sample, median=math.nan)
        flights = [Flight(rng.gauss(4, 1), 5.0) for _ in range(at % 5)] if at % 3 else None
        _, entry = recorder.tick(at / 10, [sample] if at % 4 else [], flights)
        found += [entry] if entry is not None else []
    return found


def stored(tmp_path: Path, entries: list[Entry], most: int = corrections.MOST_ROWS) -> Path:
    path = tmp_path / "ledger.sqlite"
    with connect(path) as db:
        for start in range(0, len(entries), 10):
            corrections.add(db, entries[start : start + 10], 5, most)
        db.conn.commit()
    return path


def test_every_correction_comes_out_of_the_log_again(tmp_path: Path) -> None:
    entries = recorded(1, 400)
    path = stored(tmp_path, entries)
    assert [entry for _, entry in corrections.read(path)] == entries
    replay, different = replayed(corrections.read(path))
    assert different is None
    assert (replay.entries, replay.channels, replay.gaps) == (len(entries), 1, 0)
    assert sum(one.state is not None for one in entries) >= len(entries) // WHOLE_EVERY


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.data())
def test_any_altered_member_is_found_where_it_stands(seed: int, data: st.DataObject) -> None:
    entries = recorded(seed, 90)
    at = data.draw(st.integers(0, len(entries) - 1))
    altered = data.draw(st.sampled_from(list(_altered(entries[at]))))
    told = [*entries[:at], altered, *entries[at + 1 :]]
    _, different = replayed(enumerate(told, 1))
    assert different is not None
    assert different.seq == at + 1


def _altered(entry: Entry) -> list[Entry]:
    """One bit or so in each place where something is."""
    made = entry.made
    found = [
        replace(entry, made=replace(made, filtered=math.nextafter(made.filtered, 9.0))),
        replace(entry, made=replace(made, valid=not made.valid)),
        replace(entry, digest="0" * 16),
        replace(entry, unsound=entry.unsound + 1),
    ]
    if entry.samples:
        first = entry.samples[0]
        later = replace(first, length=math.nextafter(first.length, 99.0))
        found.append(replace(entry, samples=(later, *entry.samples[1:])))
        found.append(replace(entry, samples=entry.samples[1:]))
    if entry.running:
        found.append(replace(entry, running=entry.running[1:]))
    return found


def test_entry_that_is_missing_or_doubled_is_found() -> None:
    entries = recorded(2, 60)
    for told in ([*entries[:20], *entries[21:]], [*entries[:20], *entries[19:]]):
        _, different = replayed(enumerate(told, 1))
        assert different is not None
        assert (different.seq, different.what) == (21, "number")


def test_log_whose_beginning_is_kept_no_longer_is_read_from_the_next_whole_state(
    tmp_path: Path,
) -> None:
    entries = recorded(3, 400)
    path = stored(tmp_path, entries, most=100)
    replay, different = replayed(corrections.read(path))
    assert different is None
    assert 0 < replay.unread < WHOLE_EVERY
    assert replay.entries + replay.unread == 100


def test_entries_that_could_not_be_written_begin_the_log_anew() -> None:
    recorder = Recorder(RUN, "m/chat")
    samples = [[Sample(5.0 + at / 50, 5.0, 1.0)] for at in range(50)]
    before = [recorder.tick(0.0, one)[1] for one in samples[:20]]
    for one in samples[20:30]:
        recorder.tick(0.0, one)
    recorder.lost()
    after = [recorder.tick(0.0, one)[1] for one in samples[30:]]
    told = [one for one in [*before, *after] if one is not None]
    replay, different = replayed(enumerate(told))
    assert different is None
    assert (replay.entries, replay.gaps) == (40, 1)


def test_corrections_of_two_runs_have_nothing_to_do_with_each_other() -> None:
    first = recorded(4, 100)
    second = [replace(one, run=RUN + 1) for one in recorded(5, 100)]
    assert replayed(enumerate([*first, *second]))[1] is None


def test_looks_that_change_nothing_are_not_logged_and_what_runs_is_told_later() -> None:
    recorder = Recorder(RUN, "m/chat")
    entries = [recorder.tick(0.0, [Sample(5.0 + at, 5.0, 1.0)])[1] for at in range(9)]
    made, entry = recorder.tick(1.0, running=[Flight(0.0, 5.0)])
    assert entry is None
    assert made.at == 1.0
    _, entry = recorder.tick(2.0, [Sample(5.0, 5.0, 1.0)])
    assert entry is not None
    assert entry.running == (Flight(0.0, 5.0),)
    told = [one for one in [*entries, entry] if one is not None]
    assert replayed(enumerate(told))[1] is None


def test_old_entries_are_dropped_by_age(tmp_path: Path) -> None:
    path = stored(tmp_path, recorded(6, 30))
    with connect(path) as db:
        assert corrections.drop(db, 5) == 0
        assert corrections.drop(db, 6) > 0
        db.conn.commit()
    assert list(corrections.read(path)) == []


def test_command_says_that_all_is_the_same(tmp_path: Path) -> None:
    entries = recorded(7, 100)
    path = stored(tmp_path, entries)
    done = CliRunner().invoke(steelyard, ["control", "replay", str(path)])
    assert done.output == (f"the same, bit for bit: {len(entries)} corrections of 1 channels\n")
    told = CliRunner().invoke(steelyard, ["control", "replay", str(path), "--json"])
    assert msgspec.json.decode(told.output) == {
        "ok": True, "corrections": len(entries), "channels": 1, "gaps": 0, "unread": 0,
        "first_difference": None,
    }  # fmt: skip


def test_command_names_the_first_row_that_was_tampered_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path, recorded(8, 100))
    with connect(path) as db:
        db.conn.execute(
            "UPDATE corrections SET body = json_set(body, '$.made.std', 0.25) WHERE seq IN (40, 50)"
        )
        db.conn.commit()
    assert _status(["control", "replay", str(path)]) == 1
    done = CliRunner().invoke(steelyard, ["control", "replay", str(path)], standalone_mode=False)
    assert "NOT the same" in done.output
    assert "row 40" in done.output
    assert "std" in done.output
    assert "stored  0.25" in done.output


def test_row_that_makes_no_sense_is_a_clear_error(tmp_path: Path) -> None:
    path = stored(tmp_path, recorded(9, 20))
    with connect(path) as db:
        db.conn.execute("UPDATE corrections SET body = '{\"run\": 1}' WHERE seq = 7")
        db.conn.commit()
    with pytest.raises(LedgerError, match="correction 7 makes no sense"):
        list(corrections.read(path))


def test_ledger_of_an_older_version_has_no_corrections(tmp_path: Path) -> None:
    path = stored(tmp_path, [])
    with connect(path) as db:
        db.conn.execute("DROP TABLE corrections")
        db.conn.commit()
    with pytest.raises(LedgerError, match="logs no corrections"):
        list(corrections.read(path))


def _status(args: list[str]) -> int:
    from appliance.cli import run

    return run(args)
