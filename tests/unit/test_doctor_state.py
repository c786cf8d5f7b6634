"""What the doctor makes of the box's own files: ledger, keys, certificates, modes, the board."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.doctor import board, clock, keys, ledger, permissions, tls
from appliance.tls.own import OwnCertificates
from tests.unit.certificates import DAY, NOW, issue
from tests.unit.doctor_parts import TellingBox, levels, make_ground, only
from tests.unit.proof_ledger import SIGNER, make_ledger, tampering

# -- ledger ----------------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def path(state: Path) -> Path:
    """Three sealed and signed segments."""
    made = state / FILE_NAME
    make_ledger(made, segments=3, requests=4, signer=SIGNER)
    return made


def test_small_ledger_is_verified_altogether(tmp_path: Path, path: Path) -> None:
    found = only(ledger.look(make_ground(tmp_path)), "ledger.chain")
    assert found.level == "ok"
    assert "all " in found.found


def test_of_a_large_ledger_the_end_is_verified_and_that_is_said(path: Path) -> None:
    found = ledger.chain(path, whole_rows=5, end_rows=6)
    assert found.level == "ok"
    assert "the last 6 of" in found.found
    assert "1 signatures hold" in found.found


EDITS = {
    "a body": "UPDATE entries SET body = replace(body, '\"web\"', '\"wob\"') WHERE seq = {last}",
    "a hash": "UPDATE entries SET hash = zeroblob(32) WHERE seq = {last}",
    "a row gone": "DELETE FROM entries WHERE seq = {last} - 2",
    "the last gone": "DELETE FROM entries WHERE seq > {last} - 2",
    "the head": "UPDATE meta SET value = replace(value, '\"seq\":', '\"seq\":1') WHERE name='head'",
    "a signature": "UPDATE seals SET signature = zeroblob(64) WHERE segment = 3",
    "a seal": "UPDATE seals SET body = replace(body, '\"rows\":', '\"rows\":1') WHERE segment = 2",
}


@pytest.mark.parametrize("whole_rows", [1000, 5], ids=["whole", "its end"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_tampering_at_the_end_is_found_either_way(path: Path, edit: str, whole_rows: int) -> None:
    with tampering(path) as db:
        last = db.execute(
            "SELECT max(seq) FROM entries WHERE kind = 'request'"
            if "body" in edit
            else "SELECT max(seq) FROM entries"
        ).fetchone()[0]
        assert db.execute(edit.format(last=last)).rowcount
    assert ledger.chain(path, whole_rows, end_rows=8).level == "fail"


def test_what_is_no_ledger_fails_with_a_sentence(tmp_path: Path, state: Path) -> None:
    (state / FILE_NAME).write_bytes(b"x" * 5000)
    assert levels(ledger.look(make_ground(tmp_path)))["ledger.chain"] == "fail"


def test_clock_behind_the_newest_row_is_found(tmp_path: Path, path: Path) -> None:
    with tampering(path) as db:
        later = time.time_ns() + 3600 * 10**9
        db.execute(
            "UPDATE entries SET body = json_set(body, '$.wall_ns', ?)"
            " WHERE seq = (SELECT max(seq) FROM entries)",
            (later,),
        )
    assert only(clock.look(make_ground(tmp_path)), "clock.sane").level == "fail"


# -- keys ------------------------------------------------------------------------------------------


def test_box_on_the_network_without_a_key_for_inference_fails(tmp_path: Path, state: Path) -> None:
    KeyStore(state / FILE_NAME).create("admin", ["admin"])
    assert levels(keys.look(make_ground(tmp_path))) == {"keys.valid": "ok"}
    lan = make_ground(tmp_path, server={"host": "0.0.0.0", "state_dir": state})
    assert levels(keys.look(lan)) == {"keys.valid": "fail"}


def test_box_without_an_admin_key_is_told(tmp_path: Path, state: Path) -> None:
    KeyStore(state / FILE_NAME).create("app", ["infer"])
    assert levels(keys.look(make_ground(tmp_path))) == {"keys.valid": "warn"}


def test_keys_that_end_soon_are_told_by_their_ids(tmp_path: Path, state: Path) -> None:
    store = KeyStore(state / FILE_NAME)
    today = datetime.now(UTC).date()
    secret = store.create("soon", ["infer"], today + timedelta(days=3))
    store.create("later", ["admin"], today + timedelta(days=300))
    found = list(keys.look(make_ground(tmp_path)))
    assert store.find("soon").id in only(found, "keys.ending").found
    assert re.search("ends in [23] days", only(found, "keys.ending").found)
    assert secret not in str(found)
    assert "soon" not in str(found), "the name may be a person's, and findings are handed over"


def test_keys_that_cannot_be_read_fail(tmp_path: Path, state: Path) -> None:
    KeyStore(state / FILE_NAME).create("admin", ["admin"])
    (state / FILE_NAME).chmod(0o666)
    assert levels(keys.look(make_ground(tmp_path))) == {"keys.valid": "fail"}


# -- TLS -------------------------------------------------------------------------------------------


def test_loopback_needs_no_tls_and_the_network_does(tmp_path: Path) -> None:
    assert levels(tls.look(make_ground(tmp_path))) == {"tls.on": "ok"}
    lan = make_ground(tmp_path, server={"host": "192.0.2.1"}, tls={"mode": "off"})
    assert levels(tls.look(lan)) == {"tls.on": "warn"}


def test_own_certificate_is_looked_at_and_never_made(tmp_path: Path, state: Path) -> None:
    ground = make_ground(tmp_path, tls={"mode": "on"})
    assert levels(tls.look(ground)) == {"tls.dates": "note"}
    assert list(state.iterdir()) == []
    OwnCertificates(state / "tls").ensure(["box.example"], time.time())
    found = levels(tls.look(ground))
    assert found == {"tls.dates": "ok", "tls.ca": "ok", "tls.names": "note"}


@pytest.mark.parametrize(
    ("later", "level"),
    [(0, "ok"), (380, "warn"), (800, "fail"), (-30, "fail")],
    ids=["new", "ends soon", "has ended", "not begun"],
)
def test_dates_of_a_given_certificate(tmp_path: Path, later: int, level: str) -> None:
    cert, key, _ = issue(tmp_path, "given", ["box.example"])
    ground = make_ground(tmp_path, tls={"cert": cert, "key": key})
    assert levels(tls.look(ground, NOW + later * DAY)) == {"tls.dates": level}


def test_files_that_do_not_fit_fail(tmp_path: Path) -> None:
    cert, _, _ = issue(tmp_path, "one", ["a.example"])
    _, key, ca = issue(tmp_path, "two", ["a.example"])
    ground = make_ground(tmp_path, tls={"cert": cert, "key": key, "client_ca": ca})
    assert levels(tls.look(ground)) == {"tls.dates": "fail", "tls.client_ca": "ok"}
    ground = make_ground(tmp_path, tls={"cert": cert, "key": key, "client_ca": key})
    assert levels(tls.look(ground))["tls.client_ca"] == "fail"


# -- permissions -----------------------------------------------------------------------------------


def test_secrets_that_others_may_read_fail(tmp_path: Path, state: Path, path: Path) -> None:
    (state / "ledger-key.pem").write_text("secret")
    (state / "ledger-key.pem").chmod(0o640)
    assert levels(permissions.look(make_ground(tmp_path)))["permissions.secrets"] == "fail"
    (state / "ledger-key.pem").chmod(0o600)
    found = levels(permissions.look(make_ground(tmp_path)))
    assert found == {"permissions.state": "ok", "permissions.secrets": "ok"}


def test_state_that_others_may_enter_is_told(tmp_path: Path, state: Path) -> None:
    state.chmod(0o755)
    assert levels(permissions.look(make_ground(tmp_path)))["permissions.state"] == "warn"


def test_configuration_that_everybody_may_write_fails(tmp_path: Path, state: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    file = folder / "steelyard.toml"
    file.write_text("")
    file.chmod(0o644)
    found = permissions.look(make_ground(tmp_path, file=file))
    assert levels(found)["permissions.config"] == "ok"
    file.chmod(0o666)
    found = permissions.look(make_ground(tmp_path, file=file))
    assert levels(found)["permissions.config"] == "fail"


def test_key_of_a_given_certificate_that_everybody_may_read_fails(
    tmp_path: Path, state: Path
) -> None:
    cert, key, _ = issue(tmp_path, "given", ["box.example"])
    Path(key).chmod(0o644)
    ground = make_ground(tmp_path, tls={"cert": cert, "key": key})
    assert levels(permissions.look(ground))["permissions.tls_key"] == "fail"
    Path(key).chmod(0o640)
    assert "permissions.tls_key" not in levels(permissions.look(ground))


# -- board -----------------------------------------------------------------------------------------


def test_no_board_is_told_and_no_fault(tmp_path: Path) -> None:
    assert levels(board.look(make_ground(tmp_path))) == {"board.line": "note"}


def test_line_that_is_not_there_fails(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, board={"device": str(tmp_path / "appliance-mcu")})
    assert levels(board.look(ground)) == {"board.line": "fail"}
    (tmp_path / "appliance-mcu").write_text("a file")
    assert "no serial line" in only(board.look(ground), "board.line").found


@pytest.mark.parametrize(
    ("state", "level"),
    [("armed", "ok"), ("watching", "ok"), ("greeting", "note"), ("lost", "warn"),
     ("latched", "fail")],
)  # fmt: skip
def test_state_of_the_board_is_what_the_box_says(tmp_path: Path, state: str, level: str) -> None:
    box = TellingBox({"/readyz": (200, {"board": {"state": state, "problem": "why"}})})
    ground = make_ground(tmp_path, box=box, board={"device": "/dev/null"})
    assert levels(board.look(ground)) == {"board.line": "ok", "board.state": level}
