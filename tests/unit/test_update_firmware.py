"""Updates of the real firmware, under MicroPython on a pseudo-terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firmware_bridge import messages as m
from firmware_bridge import simulation
from firmware_bridge.commands import Refusal
from firmware_bridge.events import Happened, Ready
from firmware_bridge.image import build
from firmware_bridge.simulation import Simulation
from firmware_bridge.update import Image, Update
from tests.unit.board_parts import Host, only
from tests.unit.update_parts import SCHEMA, files_of, image_of, signer, stranger, trust

MAIN = "firmware_bridge/firmware/main.py"


@contextmanager
def slotted(flash: Path, **settings: str) -> Iterator[tuple[Simulation, Host]]:
    """A board with slots, and a host that has greeted it."""
    named = {f"STEELYARD_SIMULATED_{name.upper()}": value for name, value in settings.items()}
    with Simulation(named, flash, trust()) as simulation:
        host = Host(simulation.path, patience_s=60)
        try:
            host.ready()
            yield simulation, host
        finally:
            host.close()


def bring(host: Host, image: Image) -> Update:
    update = Update(image, host.now())
    taken = len(host.events)

    def over() -> bool:
        nonlocal taken
        fresh, taken = host.events[taken:], len(host.events)
        for event in fresh:
            update.take(event, host.now())
        if host.session.state in ("ready", "unusable"):
            send(host, update)
        return update.progress.over

    host.until(over)
    return update


def send(host: Host, update: Update) -> None:
    while (command := update.due(host.now())) is not None:
        number = host.session.send(command, host.now())
        if isinstance(number, Refusal):
            update.unsent(number.reason)
        else:
            update.sent(number, command)


def spoilt(version: str, file: str, line: bytes) -> Image:
    """New firmware, rightly signed, with a line too many at the end of a file."""
    files = files_of(version)
    return build(files | {file: files[file] + line}, signer())


def runs(host: Host) -> str:
    return only(host.events, Ready)[-1].board.firmware


def kinds(host: Host) -> list[int]:
    return [event.kind for event in only(host.events, Happened)]


def test_new_firmware_runs_after_its_update_and_after_the_next_power_cut(tmp_path: Path) -> None:
    with slotted(tmp_path / "flash") as (simulation, host):
        assert runs(host) == "1.1.0"
        update = bring(host, image_of("1.2.0"))
        assert (update.phase, update.problem) == ("done", "")
        assert runs(host) == "1.2.0"
        host.until(lambda: m.EV_UPDATED in kinds(host))
        simulation.cut_power()
        greeted = len(only(host.events, Ready))
        host.until(lambda: len(only(host.events, Ready)) > greeted)
        assert runs(host) == "1.2.0"


@pytest.mark.parametrize(
    "image",
    [
        spoilt("1.2.0", MAIN, b"\nraise RuntimeError('broken')\n"),
        spoilt("1.2.0", MAIN, b"\nthis is no Python\n"),
        spoilt("1.2.0", SCHEMA, b"\nSCHEMA += 1\n"),
    ],
    ids=["fails", "cannot be read", "speaks otherwise"],
)
def test_firmware_that_does_not_do_is_reverted(tmp_path: Path, image: Image) -> None:
    with slotted(tmp_path / "flash", trial_ms="6000") as (_, host):
        update = bring(host, image)
        assert update.phase == "reverted"
        host.until(lambda: m.EV_REVERTED in kinds(host))
        assert runs(host) == "1.1.0"
        assert bring(host, image_of("1.3.0")).phase == "done"


def test_firmware_that_hangs_is_reset_by_the_boards_own_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "OWN_WATCHDOG_S", 4.0)
    hanging = spoilt("1.2.0", "firmware_bridge/firmware/board.py", b"\nwhile True:\n    pass\n")
    with slotted(tmp_path / "flash") as (_, host):
        assert bring(host, hanging).phase == "reverted"
        assert runs(host) == "1.1.0"


@pytest.mark.parametrize("change", [2, 9, 30])
def test_power_that_fails_in_the_middle_leaves_a_board_that_boots(
    tmp_path: Path, change: int
) -> None:
    """At every change: test_update.py."""
    with slotted(tmp_path / "flash", cut=str(change)) as (simulation, host):
        image = image_of("1.2.0")
        simulation.settings.pop("STEELYARD_SIMULATED_CUT")
        update = bring(host, image)
        if update.phase == "reverted":
            update = bring(host, image)
        assert (update.phase, runs(host)) == ("done", "1.2.0")
        assert simulation.boots > 2


def test_foreign_firmware_is_refused_and_the_board_goes_on(tmp_path: Path) -> None:

    with slotted(tmp_path / "flash") as (simulation, host):
        update = bring(host, build(files_of("1.2.0"), stranger()))
        assert update.phase == "refused"
        assert simulation.boots == 1
        assert not (tmp_path / "flash/b").exists()


def test_a_board_without_slots_says_so() -> None:
    with Simulation() as simulation:
        host = Host(simulation.path)
        host.ready()
        update = bring(host, image_of("1.2.0"))
        host.close()
    assert update.phase == "refused"
    assert "no slots" in update.problem
