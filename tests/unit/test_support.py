"""A support bundle of a box in which secrets lie everywhere, and how it is written."""

import gzip
import hashlib
import io
import json
import tarfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.cli import steelyard
from appliance.commands.support import default_name
from appliance.doctor.ground import Ground
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.support import ledgerstates, parts
from appliance.support.hardware import hardware
from appliance.support.leaflet import readme
from appliance.support.ledgerstates import states
from appliance.support.pack import (
    FOLDER,
    RESERVE,
    Bundle,
    SupportError,
    archive,
    shortened,
    write,
)
from appliance.support.parts import gather, known_secrets
from appliance.support.redact import MARK, Redactor, secrets_in
from appliance.tls.own import OwnCertificates
from tests.unit.doctor_parts import TellingBox, make_config
from tests.unit.proof_ledger import START, make_entries, make_ledger

WALL = 1_764_000_000.0
PROMPT, ANSWER, OWNER = "prompt-of-a-patient", "answer-to-a-patient", "key-of-Jane-Doe"
PLANTED = "Zq9-planted-secret_1"


def unpacked(data: bytes) -> dict[str, bytes]:
    """Members by name, the folder left out."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            assert member.mode == 0o600
            assert (member.uid, member.gid) == (0, 0)
            found[member.name.removeprefix(f"{FOLDER}/")] = file.read()
        return found


def told(bundle: Bundle) -> Mapping[str, str]:
    return {name: data.decode() for name, data in bundle.members.items()}


# -- a box full of secrets -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def box_secrets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, list[str]]:
    """The bundle of a box in which everything that can hold a secret does, and these secrets."""
    home = tmp_path_factory.mktemp("box")
    state = home / "state"
    state.mkdir(mode=0o700)
    key = KeyStore(state / FILE_NAME).create(OWNER, ["admin"])
    with closing(connect(state / FILE_NAME)) as db, transaction(db):
        append(db, make_entries(range(1, 7), START))
    OwnCertificates(state / "tls").ensure(["box.example"], time.time())
    (state / "ledger-key.pem").write_bytes((state / "tls/ca-key.pem").read_bytes())
    pem = (state / "tls/server-key.pem").read_text()
    line = secrets_in(pem)[0]
    (state / "models/one").mkdir(parents=True)
    (state / "models/one/manifest.json").write_text(
        json.dumps({"name": "one", "source": f"https://me:{PLANTED}@mirror.lan/one.gguf"})
    )
    config = make_config(
        home,
        model={"name": f"sk-steelyard-{PLANTED}"},
        ledger={"redact": (f"patient-{PLANTED}",)},
        forecast={"enabled": False},
    )
    log = [
        f"request={key} route=/v1/chat/completions",
        f"request=trace-1 url=/metrics?api_key={PLANTED}",
        f"the operator pasted {line}",
        f"bad header: Authorization: Bearer {PLANTED}",
        *pem.splitlines(),
    ]
    lines = [
        {"at_ms": n, "level": "info", "logger": "a", "text": text} for n, text in enumerate(log)
    ]
    box = TellingBox(
        {
            "/health": (200, {}),
            "/readyz": (503, {"failing": ["engine"], "degraded": [f"proxy: password={PLANTED}"]}),
            "/props": (200, {"chat_template": f"{{# token: {PLANTED} #}}"}),
            "/metrics": (200, f"# token {key}"),
            "/admin/status": (200, {"x-api-key": PLANTED, "secret": [PLANTED]}),
            "/admin/alarms": (200, {"text": f"key {key}", "pem": pem}),
            "/admin/log?level=debug&limit=2000": (200, {"lines": lines}),
        }
    )
    box.key = key
    ground = Ground(config, box)
    bundle = Bundle(Redactor(known_secrets(ground)))
    gather(bundle, ground, WALL, lambda *_: None, areas=())
    return bundle, [key, PLANTED, line, *secrets_in(pem)]


def test_no_secret_is_in_any_byte_of_the_archive(box_secrets: tuple[Bundle, list[str]]) -> None:
    bundle, secrets = box_secrets
    data = archive(bundle.members, WALL)
    raw = gzip.decompress(data)
    for secret in secrets:
        assert secret.encode() not in raw, secret
        assert secret.encode() not in data
    assert raw.count(MARK.encode()) > 8


def test_bundle_names_neither_texts_nor_owners(box_secrets: tuple[Bundle, list[str]]) -> None:
    bundle, _ = box_secrets
    for text in told(bundle).values():
        assert OWNER not in text
        assert "acme" not in text, "a tenant"


def test_bundle_tells_what_is_in_it_and_what_is_not(box_secrets: tuple[Bundle, list[str]]) -> None:
    bundle, _ = box_secrets
    leaflet = told(bundle)["README.txt"]
    for name in bundle.members:
        assert name in leaflet
    for name, why in bundle.missing.items():
        assert f"{name} " in leaflet
        assert why
    manifest = json.loads(told(bundle)["manifest.json"])
    for name, facts in manifest["files"].items():
        assert facts["bytes"] == len(bundle.members[name])
        assert facts["sha256"] == hashlib.sha256(bundle.members[name]).hexdigest()
    assert set(manifest["files"]) == set(bundle.members) - {"manifest.json"}
    assert manifest["files"]["log.txt"]["redacted"]


def test_parts_that_the_operator_can_read_are_there(box_secrets: tuple[Bundle, list[str]]) -> None:
    bundle, _ = box_secrets
    found = told(bundle)
    assert "engine" in json.loads(found["ready.json"])["failing"], "also of a box that is not ready"
    assert json.loads(found["hardware.json"])["cpu"]["logical"]
    assert "steelyard" in found["packages.txt"].lower() or "click==" in found["packages.txt"]
    assert "[engine]" in found["config.toml"]
    assert "[pattern 0]" in found["config.toml"]
    assert "ledger.sqlite" in found["files.txt"]
    assert json.loads(found["models.json"])["store"]["models/one/manifest.json"]["name"] == "one"
    assert json.loads(found["ledger.json"])["entries"]["request"] == 6


def test_part_that_breaks_keeps_none_of_the_others_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> str:
        raise ZeroDivisionError(f"password={PLANTED}")

    monkeypatch.setattr(parts, "packages", broken)
    bundle = Bundle(Redactor())
    ground = Ground(make_config(tmp_path), TellingBox({}))
    gather(bundle, ground, WALL, lambda *_: None, areas=())
    assert bundle.missing["packages.txt"] == f"ZeroDivisionError: password={MARK}"
    assert "hardware.json" in bundle.members


def test_box_that_wants_a_key_is_said_to(tmp_path: Path) -> None:
    bundle = Bundle(Redactor())
    ground = Ground(make_config(tmp_path), TellingBox({"/metrics": (401, {})}))
    gather(bundle, ground, WALL, lambda *_: None, areas=())
    assert "STEELYARD_ADMIN_KEY" in bundle.missing["metrics.txt"]


def test_unusable_configuration_still_gives_a_bundle(tmp_path: Path) -> None:
    bundle = Bundle(Redactor())
    ground = Ground(None, TellingBox({}), problems=(f"x.toml: password={PLANTED}: no key",))
    gather(bundle, ground, WALL, lambda *_: None, areas=())
    assert MARK in told(bundle)["config.toml"]
    assert PLANTED not in told(bundle)["config.toml"]
    assert "ledger.json" in bundle.missing


# -- the ledger's states ---------------------------------------------------------------------------


def test_states_tell_counts_and_number_the_keys(tmp_path: Path) -> None:
    path = make_ledger(tmp_path / FILE_NAME, segments=1, requests=2)
    found = states(path, rows=4)
    assert len(found["newest"]) == 4
    row = next(one for one in found["newest"] if one["kind"] == "request")
    assert row["key"] == "key 1"
    assert row["prompt_tokens"] > 0
    assert row["choices"]
    for name in ("key_name", "tenant", "scenario", "request_id", "prompt_sha256"):
        assert name not in row


def test_states_of_a_new_kind_of_entry_tell_nothing_of_it(tmp_path: Path) -> None:
    told = ledgerstates._told(7, "invented", {"wall_ns": 1, "text": PROMPT, "answer": ANSWER}, {})
    assert told == {"seq": 7, "kind": "invented"}


# -- the archive -----------------------------------------------------------------------------------


def test_archive_is_the_same_for_the_same_members() -> None:
    members = {"b.txt": b"2", "a.txt": b"1"}
    data = archive(members, WALL)
    assert data == archive(dict(reversed(members.items())), WALL)
    assert unpacked(data) == members


def test_part_is_bounded_and_says_what_was_left_out() -> None:
    assert shortened("abcdef", 6, newest=False) == "abcdef"
    assert shortened("abcdef", 2, newest=False) == "ab\n[... 4 characters left out ...]\n"
    assert shortened("ab\ncd\nef", 6, newest=True) == "[... 3 characters left out ...]\ncd\nef"


def test_whole_bundle_is_bounded_and_still_says_what_is_in_it() -> None:
    bundle = Bundle(Redactor(), most_part=RESERVE, most_all=2 * RESERVE)
    for number in range(4):
        bundle.add(f"{number}.txt", "long " * RESERVE)
    assert bundle.size == RESERVE
    bundle.add("README.txt", readme(bundle, WALL))
    assert b"support bundle" in bundle.members["README.txt"]
    assert bundle.size <= 2 * RESERVE


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_no_part_of_a_secret_is_left_where_a_log_is_cut(at: int) -> None:
    bundle = Bundle(Redactor(), most_part=500)
    line = "request=sk-steelyard-" + "Q" * 43
    bundle.add("log.txt", f"{line}\n" + "y" * (500 - at), newest=True)
    assert b"Q" not in bundle.members["log.txt"]
    bundle.add("props.json", "y" * (500 - at) + line)
    assert b"QQ" not in bundle.members["props.json"]


def test_file_is_written_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    target = tmp_path / "s.tar.gz"
    write(target, b"data", force=False)
    assert target.read_bytes() == b"data"
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SupportError, match="is there already"):
        write(target, b"other", force=False)
    write(target, b"other", force=True)
    assert target.read_bytes() == b"other"
    assert [path.name for path in tmp_path.iterdir()] == ["s.tar.gz"]


def test_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(SupportError, match="is a directory"):
        write(tmp_path, b"", force=True)
    with pytest.raises(SupportError, match=r"cannot be written: No such file.*takes 0 kB"):
        write(tmp_path / "none" / "s.tar.gz", b"", force=False)


def test_default_name_is_of_this_box_at_this_second() -> None:
    assert default_name("box 1/a", WALL) == "steelyard-support-box-1-a-20251124T160000Z.tar.gz"


def test_machine_is_told_without_serial_numbers() -> None:
    text = json.dumps(hardware()).lower()
    assert "serial" not in text
    assert "uuid" not in text


# -- the command -----------------------------------------------------------------------------------


def run(tmp_path: Path, *arguments: str) -> Result:
    env = {"STEELYARD_STATE": str(tmp_path / "state"), "STEELYARD_ADMIN_KEY": f"sk-{PLANTED}"}
    return CliRunner().invoke(steelyard, ["support", *arguments], env=env, standalone_mode=False)


def test_command_works_where_no_box_runs_and_nothing_is_there(tmp_path: Path) -> None:
    target = tmp_path / "s.tar.gz"
    result = run(tmp_path, "--no-doctor", str(target))
    assert result.return_value == 0, result.output
    found = unpacked(target.read_bytes())
    assert {"README.txt", "manifest.json", "about.json", "config.toml"} <= set(found)
    assert "doctor.json" not in found
    assert not (tmp_path / "state").exists(), "nothing is made by looking"
    again = run(tmp_path, "--no-doctor", str(target))
    assert isinstance(again.exception, SupportError)
