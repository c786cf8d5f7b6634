"""What goes wrong around the ledger, with real means: disks that are full or take no writing, files
that are damaged or torn, clocks that are set, and others who write too. Nothing is lost by it.
"""

import re
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.journal import SEGMENT_RECORDS, SIZE, Journal, JournalFull, Kind
from tests.box.asking import ask, check_complete
from tests.box.bad_ledger_parts import ENGINE, LONG, named, serve
from tests.box.ledgered import Ledgered, check_chain, check_digests, check_sums
from tests.box.running import RunningBox

DISK_BYTES = 88 << 20
"""Of the small disk: what the box wants to see free, and what it writes."""
SECOND = 1_000_000_000
BACK = 2 * 3600 * SECOND
"""Well above the hour from which on a step forward is noticed: when the clock is set right."""


# Disks


class SmallDisk:
    """Takes no more writing between `fill` and `clear`: a file system of its own that a large file
    fills to the last byte."""

    says = "is full"

    def __init__(self, state: Path) -> None:
        self._large = state / "large"

    def fill(self, box: RunningBox) -> None:
        with suppress(OSError), open(self._large, "wb", buffering=0) as opened:
            while True:
                opened.write(bytes(1 << 20))
        with suppress(OSError), open(self._large, "ab", buffering=0) as opened:
            while True:
                opened.write(b"x")

    def clear(self, box: RunningBox) -> None:
        self._large.unlink()


class ShortFiles:
    """Where nothing can be mounted: the kernel lets the daemon's files grow no further, as a quota
    does. The engine, which writes into files that it has, is let alone."""

    says = "failed to read or write|is full"

    def fill(self, box: RunningBox) -> None:
        _, most = resource.prlimit(box.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(box.process.pid, resource.RLIMIT_FSIZE, (1, most))

    def clear(self, box: RunningBox) -> None:
        if box.process.poll() is None:
            _, most = resource.prlimit(box.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(box.process.pid, resource.RLIMIT_FSIZE, (most, most))


@contextmanager
def mounted(where: Path, size: int) -> Iterator[None]:
    """A small file system in memory. Raises CalledProcessError, OSError."""
    where.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(where)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True, capture_output=True)


def can_mount(where: Path) -> bool:
    try:
        with mounted(where, 1 << 20):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@pytest.fixture(scope="session")
def mounting(tmp_path_factory: pytest.TempPathFactory) -> bool:
    return can_mount(tmp_path_factory.mktemp("mounting"))


@pytest.mark.parametrize("means", ["a small disk", "short files"])
def test_a_full_disk_stops_new_work_alone_and_heals_by_itself(
    tmp_path: Path, mounting: bool, means: str
) -> None:
    with some_disk(tmp_path / "state", mounting and means == "a small disk") as disk:
        check_full_disk(tmp_path, disk, disk.says)


@contextmanager
def some_disk(state: Path, mounting: bool) -> Iterator[SmallDisk | ShortFiles]:
    """One that can be filled, in whatever way works here."""
    if mounting:
        with mounted(state, DISK_BYTES):
            yield SmallDisk(state)
    else:
        yield ShortFiles()


def check_full_disk(home: Path, disk: SmallDisk | ShortFiles, says: str) -> None:
    ledger = Ledgered(home / "state")
    with RunningBox.start(home, engine=ENGINE) as box:
        check_complete(box, named(box, "before", max_tokens=4))
        gone = named(box, "gone", max_tokens=LONG).wait_for_tokens()
        with held(box):  # else it may have ended before the disk is full
            running = named(box, "running", max_tokens=60)
            box.wait_for_waiting(1)
            disk.fill(box)
            refused = until_refused(box)
        assert refused.status_code == 503
        error = refused.json()["error"]
        assert error["code"] == "ledger_unavailable"
        assert "serves nothing that it cannot account for" in error["message"]
        assert re.search(says, error["message"])
        assert "Retry-After" in refused.headers
        check_says_so(box, says)
        refused = embed(box)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "ledger_unavailable")
        gone.hang_up()
        check_complete(box, running)
        gone.wait()
        before = {row["request_id"] for row in ledger.rows()}
        assert not before & {"running", "gone"}, "the disk was not full"
        disk.clear(box)
        box.wait_ready()
        check_complete(box, named(box, "after", max_tokens=4))
        for asked, name, outcome in ((running, "running", "length"), (gone, "gone", "cancelled")):
            row = ledger.row(request_id=name)
            assert (row["outcome"], row["exact"]) == (outcome, True)
            assert ledger.tokens(row)[1][: len(asked.token_ids)] == asked.token_ids
            check_digests(ledger, row)
        assert ledger.wait_for(1, request_id="refused-last")[0]["code"] == "ledger_unavailable"
        check_sums(box, ledger)
        check_chain(ledger)
        assert box.stop() == 0
    check_chain(ledger)


def test_a_box_that_stops_on_a_full_disk_accounts_at_its_next_start(
    tmp_path: Path, mounting: bool
) -> None:
    state = tmp_path / "state"
    with some_disk(state, mounting) as disk:
        ledger = Ledgered(state)
        with RunningBox.start(tmp_path, engine=ENGINE, server={"drain_s": 0}) as box:
            running = named(box, "running", max_tokens=LONG).wait_for_tokens()
            with held(box):  # else it may have ended before the disk is full
                ended = named(box, "ended", max_tokens=20)
                box.wait_for_waiting(1)
                disk.fill(box)
                until_refused(box)
            check_complete(box, ended)
            assert box.stop() == 0
            running.wait()
            disk.clear(box)
        assert not ledger.rows(request_id="ended"), "the disk was not full"
        with RunningBox.start(tmp_path, engine=ENGINE) as box:
            for asked, name, outcome in (
                (ended, "ended", "length"),
                (running, "running", "interrupted"),
            ):
                row = ledger.row(request_id=name)
                assert (row["outcome"], row["recovered"], row["exact"]) == (outcome, True, True)
                assert ledger.tokens(row)[1][: len(asked.token_ids)] == asked.token_ids
                check_digests(ledger, row)
            check_sums(box, ledger)
            check_chain(ledger)


def test_a_disk_that_is_full_at_the_start_loses_nothing_of_the_last_run(
    tmp_path: Path, mounting: bool
) -> None:
    state = tmp_path / "state"
    with mounted(state, DISK_BYTES) if mounting else not_mounted(state):
        ledger = Ledgered(state)
        with RunningBox.start(tmp_path, engine=ENGINE) as box:
            asked = named(box, "open", max_tokens=LONG).wait_for_tokens(3)
            box.process.kill()
            box.process.wait()
            asked.wait()
        truth = ledger.journal()
        if mounting:
            disk = SmallDisk(state)
            disk.fill(box)
            said, status = serve(tmp_path, state)
            disk.clear(box)
        else:
            said, status = serve(tmp_path, state, file_bytes=1)
        assert status not in (0, None)
        assert "Traceback" not in said
        assert re.search("is full|failed to read or write", said), said
        assert ledger.journal() == truth, "the journal is still there"
        with RunningBox.start(tmp_path, engine=ENGINE) as box:
            row = ledger.row(request_id="open")
            assert ledger.tokens(row)[1] == truth[row["number"]].tokens[0]
            check_complete(box, ask(box, max_tokens=4))
            check_sums(box, ledger)
            check_chain(ledger)


@contextmanager
def held(box: RunningBox) -> Iterator[None]:
    """Inside, requests are admitted and wait; what runs goes on."""
    box.admin("POST", "/admin/hold")
    try:
        yield
    finally:
        box.admin("POST", "/admin/release")


def until_refused(box: RunningBox) -> Any:
    """The answer to a request that is not let in any more. Space that the files already have may
    take a few entries still: of requests that need no engine, as that is held."""
    for _ in range(400):
        if embed(box).status_code != 200:
            body, name = {"prompt": "x", "max_tokens": 1}, {"X-Request-Id": "refused-last"}
            return box.http.post("/v1/completions", json=body, headers=name)
    raise AssertionError("the box never noticed")


def embed(box: RunningBox) -> Any:
    return box.http.post("/v1/embeddings", json={"input": "one two"})


def check_says_so(box: RunningBox, says: str) -> None:
    answer = box.http.get("/readyz")
    assert answer.status_code == 503
    assert "ledger" in answer.json()["failing"]
    assert re.search(says, answer.json()["ledger"]["problem"])
    assert box.http.get("/health").status_code == 200
    lines = box.http.get("/metrics").text.splitlines()
    assert "steelyard:ledger_up 0.0" in lines


def test_a_full_journal_ends_no_process_and_heals_by_itself(tmp_path: Path, mounting: bool) -> None:
    """The real engine's journal, filled by hand: a model would need minutes for so many tokens."""
    state, now = tmp_path / "state", 0
    size = 3 * SEGMENT_RECORDS * SIZE + 65536
    with mounted(state, size) if mounting else not_mounted(state):
        journal = Journal(state, clock_ns=lambda: now)
        forbid = SmallDisk(state).fill if mounting else lambda box: state.rename(tmp_path / "away")
        allow = (
            SmallDisk(state).clear if mounting else lambda box: (tmp_path / "away").rename(state)
        )
        forbid(None)  # type: ignore[arg-type]
        full = journal.room
        for place in range(1, full + 1):
            journal.write(Kind.TOKEN, 1, 0, 7, place)
            if place % 512 == 0:
                journal.flush()
        journal.flush()
        assert journal.room == 0
        journal.write(Kind.TOKEN, 1, 0, 7, full + 1)
        with pytest.raises(JournalFull):
            journal.flush()
        allow(None)  # type: ignore[arg-type]
        now = 2 * SECOND
        journal.flush()
        assert journal.room > SEGMENT_RECORDS / 2
        journal.close()
        found = Ledgered(state.parent / "none")
        found._journal = state
        assert found.journal()[1].tokens[0] == [7] * (full + 1)


@contextmanager
def not_mounted(where: Path) -> Iterator[None]:
    where.mkdir()
    yield


def test_a_state_directory_that_takes_no_writing_is_named_at_the_start(
    tmp_path: Path, mounting: bool
) -> None:
    state = tmp_path / "state"
    if not mounting:
        # Nobody, not even root, writes there.
        said, status = serve(tmp_path, Path("/sys"))
        check_names(said, status, "/sys")
        return
    with mounted(state, DISK_BYTES):
        with RunningBox.start(tmp_path, engine=ENGINE) as box:
            check_complete(box, ask(box, max_tokens=4))
            assert box.stop() == 0
        before = Ledgered(state).rows()
        subprocess.run(["mount", "-o", "remount,ro", str(state)], check=True, capture_output=True)
        said, status = serve(tmp_path, state)
        check_names(said, status, str(state))
        subprocess.run(["mount", "-o", "remount,rw", str(state)], check=True, capture_output=True)
        assert Ledgered(state).rows() == before
        with RunningBox.start(tmp_path, engine=ENGINE) as box:
            check_complete(box, ask(box, max_tokens=4))
            check_chain(Ledgered(state))


def check_names(said: str, status: int, where: str) -> None:
    assert status not in (0, None)
    assert "Traceback" not in said
    assert where in said
    assert re.search("read-only|not permitted|[Pp]ermission|cannot be (made|written)", said), said


# Clocks

_CLOCK = """
import os, time

_true = time.time_ns

def _shifted():
    with open(os.environ["STEELYARD_TEST_CLOCK"]) as opened:
        return _true() + int(opened.read() or 0)

time.time_ns = _shifted
time.time = lambda: _shifted() / 1e9
"""
"""Python runs it at its start, before anything of ours."""


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose number of nanoseconds every process started from now on adds to the time."""
    shift = tmp_path / "shift"
    shift.write_text("0")
    (tmp_path / "python").mkdir()
    (tmp_path / "python/sitecustomize.py").write_text(_CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    monkeypatch.setenv("STEELYARD_TEST_CLOCK", str(shift))
    return shift


def set_clock(clock: Path, by: int) -> None:
    """All at once, so that nobody reads half of it."""
    clock.with_suffix(".new").write_text(str(by))
    clock.with_suffix(".new").rename(clock)


def test_a_clock_set_back_by_hours_moves_no_token(tmp_path: Path, clock: Path) -> None:
    ledger = Ledgered(tmp_path / "state")
    with RunningBox.start(tmp_path, engine=ENGINE) as box:
        check_complete(box, named(box, "before", max_tokens=4))
        running = named(box, "running", max_tokens=LONG).wait_for_tokens()
        ledger.wait_for(1, request_id="before")
        set_clock(clock, -BACK)
        check_complete(box, named(box, "set-back", max_tokens=4))
        box.engine().kill()  # the next one's journal is named after an earlier time
        running.wait()
        box.wait_ready()
        check_complete(box, named(box, "later", max_tokens=4))
        check_sums(box, ledger)
        check_steps(ledger, 1)
        box.process.kill()
        box.process.wait()
    with RunningBox.start(tmp_path, engine=ENGINE) as box:
        check_complete(box, named(box, "restarted", max_tokens=4))
        check_sums(box, ledger)
        set_clock(clock, 0)
        check_complete(box, named(box, "set-right", max_tokens=4))
        check_sums(box, ledger)
        check_steps(ledger, 2)
        check_chain(ledger)
    rows = ledger.rows()
    assert sorted(row["number"] for row in rows) == [1, 2, 3, 4, 5, 6]
    (usage,) = ledger.ask("SELECT sum(requests), sum(completion_tokens) FROM usage_daily")
    assert usage == (6, sum(row["completion_tokens"] for row in rows))


def check_steps(ledger: Ledgered, count: int) -> None:
    steps = [note for note in ledger.entries("note") if note["event"] == "clock.stepped"]
    assert len(steps) == count, steps
    assert abs(abs(steps[0]["detail"]["by_ms"]) - BACK / 1e6) < 60_000
