"""The token journal: real files, torn tails, full disks."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine import journal
from appliance.engine.journal import SIZE, Journal, JournalFull, Kind, Record, segments
from appliance.engine.reports import Stats
from appliance.ledger import recovery
from appliance.ledger.recovery import harvest, read_lost


def records(directory: Path) -> list[Record]:
    torn: list[int] = []
    found = [
        record
        for segment in segments(directory)
        for record in journal.read(segment.path, torn.append)
    ]
    assert not torn
    return found


def answer(written: Journal, number: int, tokens: list[int], *, cached: int = 0) -> None:
    """A request's records up to its end, and on disk."""
    written.write(Kind.START, number, 0, 7, cached)
    written.write(Kind.PREFILL, number, 0, 10 - cached, cached)
    for place, token in enumerate(tokens, 1):
        written.write(Kind.TOKEN, number, 0, token, place)
    written.write(Kind.END, number, 0, 0, 1)
    written.flush()


def test_what_was_flushed_is_read_back_in_order(tmp_path: Path) -> None:
    written = Journal(tmp_path, clock_ns=lambda: 5)
    answer(written, 3, [11, 12])
    assert records(tmp_path) == [
        Record(Kind.START, 0, 3, 7, 0, 5),
        Record(Kind.PREFILL, 0, 3, 10, 0, 5),
        Record(Kind.TOKEN, 0, 3, 11, 1, 5),
        Record(Kind.TOKEN, 0, 3, 12, 2, 5),
        Record(Kind.END, 0, 3, 0, 1, 5),
    ]


def test_what_was_not_flushed_is_not_there(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    written.write(Kind.TOKEN, 1, 0, 5, 1)
    assert records(tmp_path) == []
    assert written.records == 1, "the head alone"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=12))
def test_records_flow_over_segments_without_loss(
    tmp_path_factory: pytest.TempPathFactory, bursts: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    written = Journal(directory, segment_records=16)
    count = 0
    for burst in bursts:
        for _ in range(burst):
            count += 1
            written.write(Kind.TOKEN, 1, 0, count, count)
        written.flush()
    assert [record.a for record in records(directory)] == list(range(1, count + 1))
    full = [s for s in segments(directory) if journal.is_full(s.path)]
    assert written.records == len(full) * 16 + written.records % 16
    written.close()


def test_two_segments_are_always_allocated(tmp_path: Path) -> None:
    written = Journal(tmp_path, segment_records=16)
    assert [s.path.stat().st_size for s in segments(tmp_path)] == [16 * SIZE] * 2
    for place in range(1, 17):
        written.write(Kind.TOKEN, 1, 0, 5, place)
    written.flush()
    assert len(segments(tmp_path)) == 3


def test_a_full_disk_shows_as_shrinking_room_and_then_as_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0
    written = Journal(tmp_path, segment_records=16, clock_ns=lambda: now)
    assert written.room == 15 + 15

    def full(handle: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fallocate = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", full)
    for place in range(1, 31):
        written.write(Kind.TOKEN, 1, 0, 5, place)
        written.flush()
    assert written.room == 0
    written.write(Kind.TOKEN, 1, 0, 5, 31)
    with pytest.raises(JournalFull, match="disk is full"):
        written.flush()
    assert len(records(tmp_path)) == 30, "nothing that was written is lost"
    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    now = 2_000_000_000
    written.flush()
    assert len(records(tmp_path)) == 31
    assert written.room > 15, "and it goes on when the disk has room again"


def test_a_torn_record_is_told_and_the_rest_read(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    answer(written, 1, [11, 12, 13])
    path = segments(tmp_path)[0].path
    data = bytearray(path.read_bytes())
    data[4 * SIZE + 9] ^= 1
    path.write_bytes(data)
    torn: list[int] = []
    found = list(journal.read(path, torn.append))
    assert torn == [4]
    assert [record.a for record in found if record.kind is Kind.TOKEN] == [11, 13]


@pytest.mark.parametrize("cut", range(1, SIZE))
def test_a_tail_torn_at_any_byte_loses_no_whole_record(tmp_path: Path, cut: int) -> None:
    written = Journal(tmp_path)
    answer(written, 1, [11, 12])
    path = segments(tmp_path)[0].path
    data = path.read_bytes()[: 6 * SIZE]
    path.write_bytes(data[: 5 * SIZE + cut])
    torn: list[int] = []
    found = list(journal.read(path, torn.append))
    assert [record.kind for record in found] == [Kind.START, Kind.PREFILL, Kind.TOKEN, Kind.TOKEN]
    assert torn == [5]


def test_a_request_is_put_together_from_its_records(tmp_path: Path) -> None:
    written = Journal(tmp_path, clock_ns=iter(range(100, 200)).__next__)
    answer(written, 1, [11, 12], cached=4)
    written.write(Kind.START, 2, 1, 9, 3)
    written.write(Kind.TOKEN, 2, 1, 5, 1)
    written.flush()
    found = harvest(segment.path for segment in segments(tmp_path))
    first, second = found.requests[1], found.requests[2]
    assert (first.key, first.cached_tokens, first.prefill_tokens) == (7, 4, 6)
    assert first.tokens == {0: [11, 12]}
    assert first.ended == {0: ("stop", 1)}
    assert first.started_ns < first.first_token_ns < first.last_ns
    assert not first.gaps
    assert second.tokens == {1: [5]}
    assert second.ended == {}
    assert second.cached_tokens == 0, "the prompt counts with the first choice"


def test_a_missing_token_shows_as_a_gap(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    written.write(Kind.TOKEN, 1, 0, 11, 1)
    written.write(Kind.TOKEN, 1, 0, 13, 3)
    written.flush()
    assert harvest(s.path for s in segments(tmp_path)).requests[1].gaps


def test_only_what_the_engine_had_not_told_is_added_to_its_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "SEGMENT_RECORDS", 16)
    written = Journal(tmp_path, segment_records=16)
    answer(written, 1, list(range(20)), cached=4)
    told = written.records
    answer(written, 2, [5, 6, 7], cached=2)
    lost = read_lost(str(tmp_path), os.getpid(), Stats(journal_records=told))
    assert lost.unreported == recovery.Unreported(8, 2, 3)
    assert set(lost.requests) == {1, 2}
    everything = read_lost(str(tmp_path), os.getpid(), Stats())
    assert everything.unreported == recovery.Unreported(6 + 8, 4 + 2, 23)


def test_another_engines_segments_are_left_alone(tmp_path: Path) -> None:
    answer(Journal(tmp_path), 1, [5])
    assert read_lost(str(tmp_path), 1, Stats()).requests == {}


def test_foreign_files_are_no_segments(tmp_path: Path) -> None:
    (tmp_path / "notes.tokens").write_bytes(b"")
    (tmp_path / "1-2-3.txt").write_bytes(b"")
    assert segments(tmp_path) == []
