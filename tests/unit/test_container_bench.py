"""What `bench.images` makes of what it finds, without building anything."""

import json
from pathlib import Path

import pytest

from bench import images as bench_images
from bench import images_checks, images_machine
from bench.images_checks import Bench, Skip, cycles, keys_shown
from bench.images_machine import Machine, NotThere


def came_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception | None) -> str:
    def check(bench: Bench) -> str:
        if error is not None:
            raise error
        return "seen"

    monkeypatch.setitem(bench_images.CHECKS, "boot", check)
    found = tmp_path / "found.json"
    status = bench_images.main(["--only", "boot", "--work", str(tmp_path), "--json", str(found)])
    result: dict[str, str] = json.loads(found.read_text())[0]
    assert status == (result["came_to"] == "failed")
    return f"{result['came_to']}: {result['detail']}"


def test_results_are_ok_skipped_or_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert came_to(monkeypatch, tmp_path, None) == "ok: seen"
    assert came_to(monkeypatch, tmp_path, Skip("no tool")) == "skipped: no tool"
    assert came_to(monkeypatch, tmp_path, NotThere("no answer")) == "failed: no answer"


def test_unknown_check_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_images.main(["--only", "boots"])
    assert "unknown checks: boots" in capsys.readouterr().err


def test_missing_tools_are_named_and_skip_every_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install systemd-container" in images_machine.can_boot()
    wheels = tmp_path / "wheels"
    with pytest.raises(Skip, match="mmdebstrap is not installed"):
        images_checks.tree(Bench(tmp_path, wheels=wheels))
    with pytest.raises(Skip, match="systemd-nspawn"):
        images_checks.boot(Bench(tmp_path))


def test_nothing_to_install_is_no_failure(tmp_path: Path) -> None:
    with pytest.raises(Skip, match="--wheels or --bundle"):
        images_checks.tree(Bench(tmp_path))
    with pytest.raises(Skip, match="there is no tree"):
        _ = Bench(tmp_path).tree


def test_machine_that_is_off_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path, tmp_path / "console")
    with pytest.raises(NotThere, match="is off"):
        _ = machine.init
    machine.power_off()


def test_keys_are_counted_on_the_console_and_cuts_in_the_boards_flash(tmp_path: Path) -> None:
    console = tmp_path / "console"
    console.write_bytes(b"Admin key, shown this once:\r\n    sk-steelyard-abc\r\n\xff login:")
    assert keys_shown(Machine(tmp_path, console)) == ["sk-steelyard-abc"]
    flash = tmp_path / "flash"
    assert cycles(flash) == 0
    flash.write_text('{"power_cycles": 2}')
    assert cycles(flash) == 2
