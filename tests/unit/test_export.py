"""A bundle for auditors verifies on its own, and holds what it was asked to hold."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from appliance.commands.audit import audit_group
from appliance.ledger import export as module
from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.errors import LedgerError
from appliance.ledger.export import Bundle, Source, export
from appliance.ledger.snapshot import copy_ledger
from appliance.ledger.verify.check import verify
from appliance.ledger.verify.opening import Unreadable
from tests.unit.proof_ledger import (
    DAY,
    SIGNER,
    START,
    make_entries,
    make_ledger,
    told,
    verdict_of,
)

NOW = START + 9 * DAY


class Box(NamedTuple):
    ledger: Path
    stick: Path

    def export(self, *, texts: bool = True, signed: bool = True) -> Bundle:
        signer = SIGNER if signed else None
        source = Source(self.ledger, signer, "box 1/", "1.0", "ada", texts=texts)
        return export(source, self.stick, NOW)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    (tmp_path / "stick").mkdir()
    return Box(make_ledger(tmp_path / "ledger.sqlite"), tmp_path / "stick")


def test_a_bundle_verifies_and_everything_in_it_is_sealed(box: Box) -> None:
    bundle = box.export()
    assert bundle.path.name == "steelyard-ledger-box-1--2025-12-03"
    verdict = verify(bundle.path, trusted=[SIGNER.public_key])
    assert verdict.ok, verdict
    assert (verdict.head, verdict.last_seq) == (bundle.head, bundle.head_seq)
    assert (verdict.seals, verdict.signed) == (3, 3)
    assert bundle.warnings == ()


def test_a_bundle_verifies_by_itself_on_a_machine_without_steelyard(box: Box) -> None:
    bundle = box.export().path
    before = sorted(path for path in bundle.rglob("*"))
    command = [sys.executable, "-B", "-I", "-S", "verify", "."]
    done = subprocess.run(command, cwd=bundle, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": intact" in done.stdout
    assert sorted(path for path in bundle.rglob("*")) == before


def test_an_export_is_itself_in_the_ledger(box: Box) -> None:
    bundle = box.export()
    db = connect(box.ledger, read_only=True)
    newest = "SELECT body FROM entries WHERE kind = 'action' ORDER BY seq DESC LIMIT 1"
    row = json.loads(db.execute(newest).fetchone()[0])
    assert (row["action"], row["target"], row["operator"]) == (
        "audit.export", bundle.path.name, "ada",
    )  # fmt: skip
    assert row["detail"]["head"] == {"seq": bundle.head_seq, "hash": bundle.head}
    assert verdict_of(box.ledger).ok


def test_a_bundle_without_texts_has_none_anywhere_and_verifies(box: Box) -> None:
    bundle = box.export(texts=False).path
    raw = b"".join(path.read_bytes() for path in bundle.rglob("*") if path.is_file())
    assert b"question 1" not in raw
    assert b"answer 1" not in raw
    verdict = verify(bundle)
    assert verdict.ok, verdict
    assert "left out of this copy: prompt, answers" in verdict.remarks


def test_a_bundle_of_an_unsigned_box_verifies(box: Box) -> None:
    bundle = box.export(signed=False).path
    assert not (bundle / "MANIFEST.sig").exists()
    assert verify(bundle).ok
    assert not verify(bundle, trusted=[SIGNER.public_key]).ok


def test_a_second_bundle_of_the_day_takes_another_name(box: Box) -> None:
    first, second = box.export().path, box.export().path
    assert second.name == f"{first.name}-2"
    assert verify(second).ok


def test_a_bundle_is_a_copy_that_the_box_can_go_on_with(box: Box) -> None:
    copy = box.export().path / "ledger.sqlite"
    db = connect(copy)
    with transaction(db):
        append(db, make_entries(range(100, 103), NOW))
    db.close()
    assert verdict_of(copy).ok


def test_a_snapshot_of_a_ledger_that_is_written_to_is_whole(box: Box, tmp_path: Path) -> None:
    db = connect(box.ledger)
    with transaction(db):
        append(db, make_entries(range(100, 103), NOW))
        # Another connection does not see this yet, and is not held up by it.
        copy_ledger(box.ledger, tmp_path / "copy.sqlite")
    verdict = verdict_of(tmp_path / "copy.sqlite")
    assert verdict.ok
    assert verdict.last_seq == verdict_of(box.ledger).last_seq - 6


@pytest.mark.parametrize(
    "name",
    ["ledger.sqlite", "seals.json", "README.txt", "public-key.pem", "verify/canon.py"],
)
def test_a_bundle_with_an_altered_file_is_found(box: Box, name: str) -> None:
    bundle = box.export().path
    raw = bytearray((bundle / name).read_bytes())
    raw[-1] ^= 1
    (bundle / name).write_bytes(raw)
    assert ("bundle", None, None) in told(verify(bundle))
    (bundle / name).unlink()
    if name != "ledger.sqlite":
        assert ("bundle", None, None) in told(verify(bundle))


def test_a_bundle_with_an_altered_manifest_or_signature_is_found(box: Box) -> None:
    bundle = box.export().path
    manifest = bundle / "MANIFEST.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"host": "box 1/"', '"host": "box 2/"'))
    assert told(verify(bundle)) == [("bundle", None, None)]
    manifest.write_text(text)
    assert verify(bundle).ok
    (bundle / "MANIFEST.sig").unlink()
    assert told(verify(bundle)) == [("bundle", None, None)]
    for broken in ("{}", "[]", "", text[:-30], text.replace('"bytes"', '"size"')):
        manifest.write_text(broken)
        with pytest.raises(Unreadable):
            verify(bundle)


def test_another_ledger_put_into_a_bundle_is_found(box: Box, tmp_path: Path) -> None:
    bundle = box.export().path
    make_ledger(tmp_path / "other.sqlite", segments=1)
    shutil.copy(tmp_path / "other.sqlite", bundle / "ledger.sqlite")
    assert {fault.what for fault in verify(bundle).faults} == {"bundle", "export"}


def test_a_file_that_was_put_into_a_bundle_is_told(box: Box) -> None:
    bundle = box.export().path
    (bundle / "more.txt").write_text("x")
    verdict = verify(bundle)
    assert verdict.ok
    assert any(remark.startswith("more.txt is in the bundle") for remark in verdict.remarks)


# -- what can go wrong -----------------------------------------------------------------------------


def test_a_stick_that_is_too_small_is_refused_before_anything_is_written(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(box.stick)._replace(free=1 << 20)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LedgerError, match="has 1 MiB free"):
        box.export()
    assert list(box.stick.iterdir()) == []


def test_a_stick_that_is_pulled_out_leaves_nothing_that_looks_whole(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def pulled(path: Path) -> None:
        seen.extend(found.name for found in box.stick.iterdir())
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module.durable, "sync", pulled)
    with pytest.raises(LedgerError, match=r"Input/output error.*check that the stick"):
        box.export()
    assert seen == [".steelyard-ledger-box-1--2025-12-03.partial"]
    assert list(box.stick.iterdir()) == []
    monkeypatch.undo()
    assert verify(box.export().path).ok


def test_a_directory_that_is_not_there_is_refused(box: Box) -> None:
    with pytest.raises(LedgerError, match="mount the stick"):
        export(Source(box.ledger, SIGNER, "b", "1", "ada"), box.stick / "no", NOW)


def test_an_altered_ledger_is_exported_with_a_warning(box: Box) -> None:
    """Evidence is wanted most then."""
    db = connect(box.ledger)
    db.execute("UPDATE entries SET body = replace(body, 'acme', 'acne') WHERE seq = 15")
    bundle = box.export()
    assert len(bundle.warnings) == 1
    assert "could not be sealed first: entry 15 does not follow" in bundle.warnings[0]
    assert told(verify(bundle.path)) == [("chain", 15, None)]


# -- the commands ----------------------------------------------------------------------------------


@pytest.fixture
def state(box: Box, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setenv("STEELYARD_STATE", str(box.ledger.parent))
    monkeypatch.setenv("STEELYARD_CONFIG", "")
    monkeypatch.chdir(box.ledger.parent)
    return box


def invoke(*words: str) -> tuple[object, str]:
    """What the command returned, and what it printed."""
    done = CliRunner().invoke(audit_group, words, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value, done.output


def test_the_command_verifies_seals_and_exports(state: Box) -> None:
    code, out = invoke("verify")
    assert (code, "intact" in out) == (0, True)
    _, out = invoke("seal")
    assert "as segment 3, seal " in out
    assert "Nothing new to seal." in invoke("seal")[1]
    _, out = invoke("export", str(state.stick), "--without-text")
    bundle = out.splitlines()[0]
    code, out = invoke("verify", bundle, "--json", "--fast")
    assert (code, json.loads(out)["ok"]) == (0, True)
    _, out = invoke("key")
    key = next(line.split()[1] for line in out.splitlines() if line.startswith("hex "))
    code, out = invoke("verify", bundle, "--public-key", key)
    assert code == 1  # The first seals were made with another key.
    assert "signed by 56475aa75463474c, whose key is not known" in out
    code, out = invoke("verify", "--against", bundle)
    assert (code, "intact" in out) == (0, True)


def test_the_command_tells_faults_and_what_it_cannot_read(state: Box) -> None:
    db = connect(state.ledger)
    db.execute("DELETE FROM keys")
    code, out = invoke("verify")
    assert code == 1
    assert "FAULT key: key 'k_00000001': removed or renamed outside the chain" in out
    assert invoke("verify", os.devnull)[0] == 2


def test_the_log_shows_who_did_what_and_steers_no_terminal(state: Box) -> None:
    invoke("export", str(state.stick))
    _, out = invoke("log", "--limit", "2")
    newest = out.splitlines()[0]
    assert "audit.export" in newest
    assert "steelyard-ledger-" in newest
    _, out = invoke("log", "--json")
    actions = [json.loads(line)["action"] for line in out.splitlines()]
    assert actions[-2:] == ["seal.key", "key.create"]
