"""The doctor and the support bundle of a box that runs, as an operator has them."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.config import load
from appliance.doctor.running import Box
from appliance.support.redact import MARK, secrets_in
from tests.box.running import RunningBox
from tests.unit.certificates import issue

LEAKED = "sk-steelyard-a-client-sent-its-key-as-an-id"
PROMPT = "the-name-of-a-patient"
OPTIONAL = {
    "clock.source", "cpu.amx", "cpu.flags", "cpu.quota", "disk.fsync", "disk.read_only",
    "disk.smart", "disk.space", "gpu.driver", "memory.killed", "memory.room", "unit.installed",
}  # fmt: skip
"""What depends on the machine that tests run on. So does the control loop: a crowded machine holds
its ticks up."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doctor")


@pytest.fixture(scope="module")
def box(home: Path) -> Iterator[RunningBox]:
    """On TLS with its own CA. One request was made, by a client that leaks its key."""
    with RunningBox.start(home, tls={"mode": "on"}) as running:
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": 2,
            "temperature": 0,
        }
        headers = {"X-Request-Id": LEAKED}
        answer = running.http.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200
        running.wait_idle()
        yield running


def steelyard(home: Path, key: str, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STEELYARD_SERVER_STATE_DIR": str(home / "state")}
    env.pop("STEELYARD_URL", None)
    return subprocess.run(
        [sys.executable, "-m", "appliance", *command, "--config", str(home / "steelyard.toml")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**env, "STEELYARD_ADMIN_KEY": key},
        check=False,
    )


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
        return {
            Path(member.name).name: tar.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in tar.getmembers()
        }


@pytest.fixture(scope="module")
def bundle(home: Path, box: RunningBox) -> Path:
    """Made while the box runs, the doctor's findings in it."""
    target = home / "support.tar.gz"
    done = steelyard(home, box.admin_key, "support", str(target))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{target}\n"
    return target


@pytest.fixture(scope="module")
def doctor(bundle: Path) -> dict[str, Any]:
    """All findings, as the bundle has them."""
    found: dict[str, Any] = json.loads(unpacked(bundle)["doctor.json"])
    return found


def of(report: dict[str, Any], id: str) -> dict[str, str]:
    return next(one for one in report["findings"] if one["id"] == id)


# -- doctor ----------------------------------------------------------------------------------------


def test_box_that_serves_is_well(doctor: dict[str, Any]) -> None:
    bad = [
        one
        for one in doctor["findings"]
        if one["level"] in ("warn", "fail")
        and one["id"] not in OPTIONAL
        and not one["found"].startswith("control: ")
    ]
    assert bad == []
    for id in ("box.ready", "engine.decode", "gpu.layers", "onnx.forecaster", "onnx.encoder",
               "tls.dates", "keys.valid", "ledger.chain", "port.listen", "permissions.secrets",
               "onnx.in_use", "config.file"):  # fmt: skip
        assert of(doctor, id)["level"] == "ok", id


def test_running_box_is_found_without_being_told_where(
    doctor: dict[str, Any], box: RunningBox
) -> None:
    told = of(doctor, "box.running")["found"]
    assert box.url in told
    assert f"process {box.process.pid} " in told


def test_engine_is_tried_beside_the_one_that_serves(
    doctor: dict[str, Any], box: RunningBox
) -> None:
    assert "decoded" in of(doctor, "engine.decode")["found"]
    assert re.search(r"log: \d+ on \w+", of(doctor, "gpu.layers")["found"])
    assert box.admin("GET", "/admin/status").json()["engine"]["restarts"] == 0


def test_doctor_of_a_running_box_takes_nothing_from_it(home: Path, box: RunningBox) -> None:
    before = box.engine().pid
    done = steelyard(home, "", "doctor", "--only", "box,port,ledger,keys,permissions,disk,tls")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the box has it" in done.stdout
    assert "Traceback" not in done.stderr
    assert box.engine().pid == before
    assert box.http.get("/readyz").status_code == 200


def test_box_with_another_certificate_is_not_shown_the_key(
    home: Path, box: RunningBox, tmp_path: Path
) -> None:
    _, _, ca = issue(tmp_path, "other", ["localhost"])
    config = load(home / "steelyard.toml", {"STEELYARD_SERVER_STATE_DIR": str(home / "state")})
    assert Box.find(config, key=box.admin_key).get("/admin/whoami").ok
    answer = Box.find(config, key=box.admin_key, cacert=ca).get("/admin/whoami")
    assert answer.status == 0
    assert "certificate" in answer.why


# -- support ---------------------------------------------------------------------------------------


def test_bundle_of_a_running_box_holds_no_secret(bundle: Path, home: Path, box: RunningBox) -> None:
    raw = gzip.decompress(bundle.read_bytes()).decode()
    secrets = [LEAKED, box.admin_key]
    for name in ("tls/ca-key.pem", "tls/server-key.pem", "ledger-key.pem"):
        secrets += secrets_in((home / "state" / name).read_text())
    assert len(secrets) > 6
    for secret in secrets:
        assert secret not in raw
    assert PROMPT not in raw
    assert f"request={MARK}" in unpacked(bundle)["log.txt"]


def test_bundle_tells_of_the_box_what_helps(bundle: Path, box: RunningBox) -> None:
    found = unpacked(bundle)
    assert json.loads(found["status.json"])["ready"] is True
    assert json.loads(found["ready.json"])["status"] == "ready"
    assert "steelyard:engine_up 1.0" in found["metrics.txt"]
    assert json.loads(found["admin-status.json"])["engine_pid"] == box.engine().pid
    rows = json.loads(found["ledger.json"])["newest"]
    assert [row["outcome"] for row in rows if row["kind"] == "request"] == ["length"]
    assert "ready: serving" in found["log.txt"]
    assert bundle.stat().st_mode & 0o777 == 0o600
