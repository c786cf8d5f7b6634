"""What an update makes of systemd's answers; a script stands in for systemctl."""

from pathlib import Path

import pytest

from appliance.bundle import unit
from appliance.bundle.unit import Unit

SYSTEMCTL = """\
#!/bin/sh
echo "$*" >> "{home}/asked"
case "$1" in
restart|start) {start} ;;
show) {show} ;;
esac
"""
STEADY = "echo active; echo 4711"
CHANGING = 'wc -l < "{home}/asked" ; echo active'


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    answer(tmp_path)
    return tmp_path / "asked"


def answer(home: Path, start: str = ":", show: str = STEADY) -> None:
    script = home / "systemctl"
    script.write_text(SYSTEMCTL.format(home=home, start=start, show=show.format(home=home)))
    script.chmod(0o755)


def test_a_box_that_becomes_ready_and_stays_is_good(
    asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "_STEADY_S", 0.0)
    assert Unit().restart() == ""
    told = asked.read_text().splitlines()
    assert told[:2] == ["reset-failed steelyard.service", "restart steelyard.service"]


def test_a_box_that_does_not_start_is_told_with_systemds_words(asked: Path) -> None:
    answer(asked.parent, start="echo 'Job failed. See journalctl -xe' >&2; exit 1")
    assert "did not become ready: Job failed" in Unit().restart()
    assert "Job failed" in Unit().start_first(("one.service", "two.service"))
    assert "two.service" not in asked.read_text()


@pytest.mark.parametrize("show", [CHANGING, "echo failed; echo 0", "echo activating; echo 1"])
def test_a_box_that_starts_again_and_again_is_not_ready(
    asked: Path, monkeypatch: pytest.MonkeyPatch, show: str
) -> None:
    monkeypatch.setattr(unit, "_STEADY_S", 600.0)  # the first difference ends it
    answer(asked.parent, show=show)
    assert "did not stay up" in Unit().restart()


def test_stop_and_reload_are_asked_for(asked: Path) -> None:
    Unit().stop()
    Unit().reload()
    assert asked.read_text().splitlines() == ["stop steelyard.service", "daemon-reload"]
    assert Unit("other.service").start_first(("a.service", "b.service")) == ""
    assert asked.read_text().splitlines()[2:] == ["start a.service", "start b.service"]


def test_a_start_after_a_failing_one_is_left_to_another_unit(asked: Path) -> None:
    """systemd would take it for the one that is failing."""
    later = asked.parent / "systemd-run"
    later.write_text(f'#!/bin/sh\necho "$*" >> "{asked}"\n')
    later.chmod(0o755)
    Unit().start_soon()
    (told,) = asked.read_text().splitlines()
    assert "--property=After=steelyard.service" in told.split()
    assert told.endswith("systemctl --no-block start steelyard.service")
    later.write_text("#!/no/such/interpreter\n")
    Unit().start_soon()  # nobody hears of it, and nothing else ends
