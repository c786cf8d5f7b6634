"""The `steelyard` command as an operator types it."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance import __version__
from tests.box.commanded import steelyard
from tests.box.running import RunningBox


def test_version_names_the_llama_cpp_inside_as_the_daemon_does(
    tmp_path: Path, box: RunningBox
) -> None:
    done = steelyard(tmp_path, "--version")
    assert done.returncode == 0
    found = re.match(rf"steelyard {__version__} \(llama\.cpp ([0-9a-f]{{7,40}})\b", done.stdout)
    assert found is not None
    build = box.http.get("/props").json()["build_info"]
    assert build == f"steelyard {__version__}, llama.cpp {found[1]}"


def test_config_check_accepts_the_file_that_a_daemon_runs_with(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text('[engine]\ncontext = 1024\n\n[model]\naliases = { "gpt-4o" = "default" }\n')
    done = steelyard(tmp_path, "config", "check", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"ok: {file}\n")
    assert "context = 1024" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[engine]\ncontxt = 1024\n", r"engine\.contxt.*engine\.context"),
        ("[engine]\ncontext = 3\n", r"engine\.context.*128"),
        ("[engine]\ncontext = 'much'\n", r"engine\.context"),
        ("[engin]\ncontext = 1024\n", r"engin.*engine"),
        ("[engine\n", r"line 1"),
    ],
    ids=["unknown key", "out of bounds", "wrong type", "unknown table", "no TOML"],
)
def test_config_check_names_file_key_and_remedy(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text(text)
    done = steelyard(tmp_path, "config", "check", str(file))
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert re.search(said, done.stderr, re.DOTALL)
    assert "Traceback" not in done.stderr


def test_serve_refuses_the_same_files_with_the_same_words(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text("[engine]\ncontxt = 1024\n")
    checked = steelyard(tmp_path, "config", "check", str(file))
    served = steelyard(tmp_path, "serve", "--config", str(file))
    assert served.returncode == 2
    assert served.stderr == checked.stderr


def curl_line(box: RunningBox) -> str:
    return next(line.strip() for line in box.log.splitlines() if line.strip().startswith("curl "))


def run_in_shell(line: str, **environment: str) -> dict[str, object]:
    shell = shutil.which("sh")
    assert shell is not None
    done = subprocess.run(
        [shell, "-c", line],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, **environment},
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_curl_line_of_the_banner_works_when_it_is_pasted_into_a_shell(box: RunningBox) -> None:
    answer = run_in_shell(curl_line(box))
    assert answer["object"] == "chat.completion"
    assert answer["choices"]


def test_key_is_shown_at_the_first_start_alone_and_the_next_banner_asks_for_one(
    tmp_path: Path,
) -> None:
    with RunningBox.start(tmp_path) as box:
        admin = box.admin_key
        assert box.admin("GET", "/admin/status").status_code == 200
        made = steelyard(tmp_path, "keys", "create", "app")
    with RunningBox.start(tmp_path) as box:
        assert "sk-steelyard-" not in box.log.replace("sk-steelyard-...", "")
        headers = {"Authorization": f"Bearer {admin}"}
        assert box.http.get("/admin/status", headers=headers).status_code == 200, "still good"
        line = curl_line(box)
        assert "$STEELYARD_API_KEY" in line
        answer = run_in_shell(line, STEELYARD_API_KEY=made.stdout.strip())
        assert answer["object"] == "chat.completion"
        assert "error" in run_in_shell(line, STEELYARD_API_KEY="sk-steelyard-wrong")


def test_state_is_readable_by_its_owner_alone(box: RunningBox) -> None:
    assert box.state.stat().st_mode & 0o777 == 0o700
    for file in box.state.glob("ledger.sqlite*"):
        assert file.stat().st_mode & 0o777 == 0o600
    assert (box.state / "ledger.sqlite").exists()
