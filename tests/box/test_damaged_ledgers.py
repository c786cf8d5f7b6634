"""Ledgers that are damaged, torn or emptied, and others who write too: told, and nothing lost."""

import hashlib
import os
import re
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from appliance.ledger.writer import Ledger
from tests.box.asking import ask, check_complete
from tests.box.bad_ledger_parts import ENGINE, LONG, named, serve
from tests.box.commanded import steelyard
from tests.box.ledgered import Ledgered, check_chain, check_digests, check_sums, settle
from tests.box.running import RunningBox


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a box that served a little and stopped."""
    home = tmp_path_factory.mktemp("written")
    with RunningBox.start(home, engine=ENGINE) as box:
        for number in range(3):
            check_complete(box, ask(box, f"Story {number}", max_tokens=4))
        assert box.stop() == 0
    return home / "state"


def copied(written: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", str(written), str(tmp_path / "state")], check=True)
    return tmp_path / "state"


def overwrite(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as opened:
        opened.seek(at)
        opened.write(data)


def tamper(path: Path) -> None:
    """An entry is changed by somebody who knows SQLite."""
    db = sqlite3.connect(path)
    db.execute(
        "UPDATE entries SET body = replace(body, 'stop', 'halt')"
        " WHERE seq = (SELECT max(seq) - 1 FROM entries)"
    )
    db.commit()
    db.close()


DAMAGES = {
    "no database": lambda path: path.write_bytes(b"not a database, but some text " * 400),
    "no header": lambda path: overwrite(path, 0, bytes(100)),
    "pages of noise": lambda path: overwrite(path, 8192, hashlib.sha512(b"x").digest() * 256),
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2 // 4096 * 4096),
    "another's database": lambda path: (path.unlink(), make_foreign(path)),
    "a changed entry": tamper,
    "a removed entry": lambda path: remove_last(path),
}


def make_foreign(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE songs (name TEXT)")
    db.commit()
    db.close()


def remove_last(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)")
    db.commit()
    db.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_ledger_is_told_and_left_as_it_is(
    written: Path, tmp_path: Path, damage: str
) -> None:
    state = copied(written, tmp_path)
    path = state / "ledger.sqlite"
    DAMAGES[damage](path)
    before = path.read_bytes()
    said, status = serve(tmp_path, state)
    assert status not in (0, None)
    assert "Traceback" not in said
    assert str(path) in said or "ledger" in said
    assert re.search(r"backup|move it away|restore", said), said
    assert path.read_bytes() == before, "it was written to"


def test_a_ledger_that_was_emptied_is_not_begun_anew(written: Path, tmp_path: Path) -> None:
    """SQLite takes the log beside an empty file for a leftover and deletes it."""
    state = copied(written, tmp_path)
    path = state / "ledger.sqlite"
    opened = Ledger.open(path)
    kept = {}
    try:
        opened.run(lambda db: db.execute("INSERT INTO meta VALUES ('x', zeroblob(9000))")).result()
        for name in ("ledger.sqlite", "ledger.sqlite-wal"):
            kept[name] = (state / name).read_bytes()
    finally:
        opened.close()
    kept["ledger.sqlite"] = b""
    for name, data in kept.items():
        (state / name).write_bytes(data)
    said, status = serve(tmp_path, state)
    assert status not in (0, None)
    assert f"{path} is empty, and {path}-wal is not" in said
    assert {name: (state / name).read_bytes() for name in kept} == kept


def test_a_stopped_box_leaves_its_ledger_whole_in_one_file(written: Path, tmp_path: Path) -> None:
    """Whoever copies that file alone has everything."""
    copy = tmp_path / "state"
    copy.mkdir()
    (copy / "ledger.sqlite").write_bytes((written / "ledger.sqlite").read_bytes())
    assert len(Ledgered(copy).rows()) == 3
    check_chain(Ledgered(copy))


def test_a_journal_with_a_torn_tail_gives_all_whole_records(tmp_path: Path) -> None:
    state = tmp_path / "state"
    ledger = Ledgered(state)
    with RunningBox.start(tmp_path, engine=ENGINE) as box:
        torn = named(box, "torn", max_tokens=LONG).wait_for_tokens(8)
        box.process.send_signal(signal.SIGKILL)
        box.process.wait()
        torn.wait()
    (truth,) = ledger.journal().values()
    tokens = truth.tokens[0]
    tear_last_record(state / "journal")
    with RunningBox.start(tmp_path, engine=ENGINE) as box:
        row = ledger.row(request_id="torn")
        assert ledger.tokens(row)[1] == tokens[:-1], "all but the one that was torn"
        assert (row["outcome"], row["recovered"]) == ("interrupted", True)
        check_digests(ledger, row)
        (told,) = (note for note in ledger.entries("note") if note["event"] == "recovered")
        assert told["detail"]["torn_records"] == 1
        check_complete(box, ask(box, max_tokens=4))
        check_sums(box, ledger)
        check_chain(ledger)


def tear_last_record(directory: Path) -> None:
    """The last token's record ends amid its 32 bytes: the rest never reached the disk."""
    found = []
    for path in sorted(directory.glob("*.tokens")):
        data = path.read_bytes()
        found += [
            (path, offset)
            for offset in range(0, len(data), 32)
            if data[offset + 4 : offset + 5] == b"\x04"
        ]
    path, offset = found[-1]
    overwrite(path, offset + 20, bytes(12))


def test_a_second_daemon_on_one_ledger_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    ledger = Ledgered(tmp_path / "state")
    with RunningBox.start(tmp_path, engine=ENGINE) as box:
        running = named(box, "running", max_tokens=30).wait_for_tokens()
        said, status = serve(tmp_path, tmp_path / "state")
        assert status == 1
        assert f"another steelyard serve uses {tmp_path / 'state'}" in said
        assert "server.state_dir" in said
        assert "Traceback" not in said
        assert box.http.get("/readyz").status_code == 200, "the first one goes on"
        check_complete(box, running)
        check_sums(box, ledger)
        check_chain(ledger)
    assert sum(note["event"] == "started" for note in ledger.entries("note")) == 1


def test_commands_write_while_the_box_is_under_load(tmp_path: Path) -> None:
    ledger = Ledgered(tmp_path / "state")
    with RunningBox.start(tmp_path, engine=ENGINE) as box:
        enough = threading.Event()
        users = [threading.Thread(target=keep_asking, args=(box, enough)) for _ in range(3)]
        for user in users:
            user.start()
        try:
            for number in range(3):
                made = steelyard(
                    tmp_path, "keys", "create", f"meter-{number}", "--scope", "metrics"
                )
                assert made.returncode == 0, made.stderr
            assert steelyard(tmp_path, "keys", "revoke", "meter-0").returncode == 0
        finally:
            enough.set()
            for user in users:
                user.join()
        actions = [action["action"] for action in ledger.entries("action")]
        assert actions.count("key.create") == 4, "with the box's own first key"
        assert actions.count("key.revoke") == 1
        settle(box, ledger)
        check_sums(box, ledger)
        check_chain(ledger)


def keep_asking(box: RunningBox, enough: threading.Event) -> None:
    while not enough.is_set():
        ask(box, max_tokens=12).wait()
