"""A small calibration on a real box: generated, installed, gone back from; held, killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.running import RunningBox

TOKENS = 24
TASKS = (
    "Name {} animals.", "List {} words that rhyme with tea.", "Count to {}.",
    "Write {} words about rain.", "Say hello {} times.", "Give {} names for a cat.",
)  # fmt: skip
END_S = 300.0


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    with RunningBox.start(tmp_path_factory.mktemp("calibrate")) as running:
        yield running


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    texts = [task.format(number) for number in range(1, 8) for task in TASKS]
    path.write_text("\n".join(json.dumps({"prompt": text}) for text in texts))
    return path


def home_of(box: RunningBox) -> Path:
    return box._log_path.parent


def command(box: RunningBox, *words: str, **env: str) -> list[str]:
    file = home_of(box) / "steelyard.toml"
    return [sys.executable, "-m", "appliance", "calibrate", *words, "--config", str(file)]


def begin(box: RunningBox, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(box, *words), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(home_of(box) / "state")},
    )  # fmt: skip


def run(box: RunningBox, *words: str) -> "subprocess.CompletedProcess[str]":
    child = begin(box, *words)
    out, err = child.communicate(timeout=END_S)
    return subprocess.CompletedProcess(child.args, child.returncode, out, err)


def asked(box: RunningBox, prompts: Path, *more: str) -> tuple[str, ...]:
    return (
        "--prompts", str(prompts), "--url", box.url, "--max-tokens", str(TOKENS),
        "--embedder", "none", *more,
    )  # fmt: skip


def kept(box: RunningBox) -> list[dict[str, Any]]:
    (file,) = (home_of(box) / "state" / "calibration").glob("*/answers.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def status(box: RunningBox) -> dict[str, Any]:
    found: dict[str, Any] = box.admin("GET", "/admin/calibration").json()
    return found


def test_killed_in_the_middle_it_goes_on_from_the_answers_it_has(
    box: RunningBox, prompts: Path
) -> None:
    child = begin(box, *asked(box, prompts))
    try:
        box.wait_until(
            lambda: status(box)["phase"] == "generate" and status(box)["done"] >= 3, 120, "answers"
        )
        box.admin("POST", "/admin/hold")  # however fast the machine, some are still to come
        assert status(box)["state"] == "running"
        assert run(box, "pause").returncode == 0
        box.wait_until(lambda: status(box)["held"], 30, "held")
        again = run(box, *asked(box, prompts))
        assert again.returncode == 1
        assert "runs already" in again.stderr
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
        box.admin("POST", "/admin/release")
    assert status(box)["state"] == "failed"
    assert "it goes on" in status(box)["problem"]
    before = len(kept(box))
    assert 3 <= before < 84

    done = run(box, *asked(box, prompts, "--install", "always"))
    assert done.returncode == 0, done.stderr
    assert "v0001 is in use" in done.stdout
    assert "global median" in done.stdout
    answers = kept(box)
    assert len(answers) == len({(one["id"], one["sample"]) for one in answers}) == 84
    assert all(0 < one["completion_tokens"] <= TOKENS for one in answers)
    assert all(len(one["token_ids"]) == one["completion_tokens"] for one in answers)
    assert all(one["signals"] for one in answers if one["completion_tokens"] > 8)


def test_the_daemon_goes_over_to_what_was_installed_and_back(box: RunningBox) -> None:
    def in_use() -> str:
        found: str = box.admin("GET", "/admin/forecasters").json()["in_use"]
        return found

    def serving() -> str:
        frames = box.admin("GET", "/events?once=1&frames=state").text
        told = json.loads(frames.split("data: ", 1)[1])
        return str(told["forecaster"]["version"])

    assert in_use() == "v0001"
    box.wait_until(lambda: serving() == "v0001", 30, "the new forecaster")
    listed = run(box, "versions")
    assert "v0001      in use" in listed.stdout
    report = box.admin("GET", "/admin/forecasters/v0001/report")
    assert report.headers["content-type"].startswith("text/html")
    assert "sandbox" in report.headers["content-security-policy"]
    target = home_of(box) / "r.html"
    assert run(box, "report", "v0001", "-o", str(target)).returncode == 0
    assert target.read_bytes() == report.content

    copy = home_of(box) / "copy.forecaster"
    assert run(box, "export", "v0001", str(copy)).returncode == 0
    whole = copy.read_bytes()
    for again in (("export", "v0001", str(copy)), ("report", "v0001", "-o", str(copy))):
        refused = run(box, *again)
        assert refused.returncode == 1
        assert "exists already" in refused.stderr
        assert copy.read_bytes() == whole
    assert run(box, "export", "v0001", str(copy), "--force").returncode == 0
    assert run(box, "import", str(copy)).returncode == 0
    box.wait_until(lambda: serving() == "v0002", 30, "the imported one")
    answer = box.admin("POST", "/admin/forecasters/v0001/use")
    assert answer.status_code == 200, answer.text
    assert answer.json()["recorded"]
    box.wait_until(lambda: serving() == "v0001", 30, "the older one")
    assert box.admin("POST", "/admin/forecasters/v0009/use").status_code == 404
    copy.write_bytes(copy.read_bytes()[:-100])
    broken = run(box, "import", str(copy))
    assert broken.returncode == 1
    assert "damaged" in broken.stderr
    assert in_use() == "v0001"


def test_all_of_it_is_in_the_ledger(box: RunningBox) -> None:
    rows = box.admin("GET", "/admin/actions?limit=50").json()["actions"]
    done = [(row["action"], row["target"]) for row in rows]
    assert ("forecaster.install", "v0001") in done
    assert ("forecaster.use", "v0001") in done
    assert any(action == "calibration.hold" for action, _ in done)
    found = box.admin("GET", "/admin/history?scenario=calibration&limit=5").json()["requests"]
    assert len(found) == 5
    assert {row["tier"] for row in found} == {"flex"}


def test_from_the_console_too_few_requests_are_told_with_a_remedy(box: RunningBox) -> None:
    assert box.admin("POST", "/admin/calibration", json={"action": "start"}).status_code == 200
    box.wait_until(lambda: status(box)["state"] == "failed", 120, "the refusal")
    assert "are too few" in status(box)["problem"]
    assert "--prompts" in status(box)["problem"]


def test_a_locked_box_is_entered_with_a_key_of_its_own_that_is_revoked(
    box: RunningBox, prompts: Path
) -> None:
    made = box.admin("POST", "/admin/keys", json={"name": "app", "scopes": ["infer"]})
    assert made.status_code in (200, 201), made.text
    assert box.http.post("/v1/chat/completions", json={}).status_code == 401
    few = prompts.parent / "few.jsonl"
    few.write_text('{"prompt": "One more."}\n{"prompt": "And another."}')
    refused = run(box, *asked(box, few))
    assert refused.returncode == 1
    assert "4 answers to 2 prompts, too few" in refused.stderr
    assert len(kept(box)) == 84, "nothing was generated"
    more = prompts.parent / "two-more.jsonl"
    more.write_text(f"{prompts.read_text().rstrip()}\n{few.read_text()}")
    words = asked(box, more, "--install", "never")
    at = words.index("--url")  # without it, the box of this machine is found by itself
    done = run(box, *words[:at], *words[at + 2 :])
    assert done.returncode == 0, done.stderr
    assert len(kept(box)) == 84 + 4
    keys = {key["name"]: key["state"] for key in box.admin("GET", "/admin/keys").json()["keys"]}
    assert keys["calibration"] == "revoked"


def test_without_a_daemon_it_says_how_to_start_one(box: RunningBox, prompts: Path) -> None:
    more = prompts.parent / "more.jsonl"
    more.write_text("\n".join(json.dumps({"prompt": f"Say {n}."}) for n in range(40)))
    began = time.monotonic()
    done = run(box, "--prompts", str(more), "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "steelyard serve" in done.stderr
    assert "--answers" in done.stderr
    assert time.monotonic() - began < 120


def test_a_fresh_box_forecasts_at_once_with_what_came_in_the_package(box: RunningBox) -> None:
    """The packaged forecaster is of this model and of these features, and carries its report."""
    packaged = box.admin("GET", "/admin/forecasters").json()["forecasters"][-1]
    assert packaged["version"] == "packaged"
    assert packaged["problem"] == ""
    assert packaged["skill"] > 0.4
    assert 85 <= packaged["coverage_pct"] <= 95
    report = box.admin("GET", "/admin/forecasters/packaged/report")
    assert "Every baseline" in report.text
    assert run(box, "use", "packaged").returncode == 0
    answer = box.admin("GET", "/admin/forecasters").json()
    assert answer["in_use"] == "packaged"
