"""The full-screen assistant as it runs: by keys on a terminal that is not there, and for real on a
pseudo-terminal, with the box's own command."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from images.layout import HERE
from tests.unit.assistant_parts import SECRET, Shelf, machine
from tui.assistant import __main__ as command
from tui.assistant import full, lines
from tui.assistant.full import Assistant
from tui.assistant.machine import DONE, STEELYARD, Machine
from tui.lines import text_of

SIZE = (80, 24)
PATIENCE_S = 120.0
"""For the assistant to show what is waited for, on a machine however busy."""


def shown(app: Assistant) -> str:
    return "\n".join(map(text_of, app.walk.lines()))


async def test_whole_set_up_by_keys_alone(tmp_path: Path) -> None:
    shelf = Shelf()
    box = machine(tmp_path, shelf)
    app = Assistant(box, box.look(), "en")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("pagedown", "pagedown", "pagedown")
        await pilot.press(*"longenough", "enter", *"longenough", "pagedown")
        await pilot.press(
            "down", "enter", *"box", "full_stop", *"site", "enter", *"web", "pagedown"
        )
        await pilot.press("pagedown", "pagedown", "pagedown")
        assert "password of root" in shown(app)
        assert shelf.ran == []
        await pilot.press("enter")
        assert app._work is not None
        await app._work
        assert SECRET in shown(app)
        await pilot.press("q", "escape", "enter")
        assert SECRET in shown(app)
        await pilot.press("y", "enter")
    assert app.return_value == full.FINISHED
    assert (tmp_path / DONE).exists()
    assert app.walk.facts.serves == "0.0.0.0"


async def test_leaving_writes_nothing_and_the_console_brings_it_back(tmp_path: Path) -> None:
    shelf = Shelf()
    box = machine(tmp_path, shelf)
    for finished, status in ((False, full.LEFT), (True, full.FINISHED)):
        if finished:
            (tmp_path / DONE).parent.mkdir(parents=True)
            (tmp_path / DONE).touch()
        app = Assistant(box, box.look(), "en")
        async with app.run_test(size=SIZE) as pilot:
            await pilot.press("pagedown", "down", "enter", "ctrl+q", "tab", "enter")
        assert app.return_value == status
    assert shelf.ran == []


async def test_done_that_cannot_be_written_is_told_and_one_can_go_on(tmp_path: Path) -> None:
    box = machine(tmp_path)
    (tmp_path / "var").write_text("in the way")
    app = Assistant(box, box.look(), "en")
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("ctrl+q", "tab", "tab", "enter")
        assert "cannot be written" in " ".join(shown(app).split())
        await pilot.press("escape")
        assert "Language" in shown(app)
        await pilot.press("ctrl+q", "tab", "enter")


async def test_error_of_its_own_ends_the_screen_and_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = machine(tmp_path)
    app = Assistant(box, box.look(), "en")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    async with app.run_test(size=SIZE) as pilot:
        monkeypatch.setattr(app.walk, "press", broken)
        await pilot.press("tab")
    assert isinstance(app.broken, ZeroDivisionError)
    assert app.return_value == full.BROKEN


# -- which face ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "size", "tty", "why"),
    [
        ("linux", (80, 24), "/dev/tty1", ""),
        ("xterm-256color", (200, 60), "/dev/pts/3", ""),
        ("dumb", (80, 24), "/dev/tty1", "TERM=dumb"),
        ("unknown", (80, 24), "/dev/tty1", "TERM=unknown"),
        ("", (80, 24), "/dev/tty1", "TERM="),
        ("vt220", (80, 24), "/dev/ttyS0", "/dev/ttyS0"),
        ("vt220", (80, 24), "/dev/hvc0", "/dev/hvc0"),
        ("linux", (79, 24), "/dev/tty1", "79x24"),
        ("linux", (80, 23), "/dev/tty1", "80x23"),
        ("linux", (0, 0), "/dev/tty1", "0x0"),
        ("linux", None, "/dev/tty1", "no terminal"),
        ("linux", (80, 24), "", "no terminal"),
    ],
)
def test_screen_is_drawn_where_it_can_be(
    term: str, size: tuple[int, int] | None, tty: str, why: str
) -> None:
    assert command.screen({"TERM": term}, size, tty) == why


def test_terminal_without_a_file_of_its_name_is_one_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As /dev/tty1 in the unit, which sees no devices."""
    master, slave = pty.openpty()

    def missing(_: int) -> str:
        raise OSError(19, "No such device")

    kept = os.dup(0)
    try:
        os.dup2(slave, 0)
        name = os.ttyname(0)
        monkeypatch.setattr(os, "ttyname", missing)
        assert command._tty() == name
    finally:
        os.dup2(kept, 0)
        for one in (kept, master, slave):
            os.close(one)


def test_chinese_is_offered_where_it_can_be_drawn() -> None:
    assert command.chinese({"TERM": "xterm"}, "utf-8")
    assert not command.chinese({"TERM": "linux"}, "utf-8")
    assert not command.chinese({"TERM": "xterm"}, "ascii")


def test_screen_that_cannot_start_leaves_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> int:
        raise ImportError("no module named textual")

    machine(tmp_path)
    monkeypatch.setattr(command, "screen", lambda *_: "")
    monkeypatch.setattr(full, "run", broken)
    monkeypatch.setattr(lines.Lines, "talk", lambda self: 7)
    assert command.main(["--root", str(tmp_path)]) == 7
    assert "ImportError: no module named textual" in capsys.readouterr().out


# -- for real --------------------------------------------------------------------------------------


class Terminal:
    """A pseudo-terminal of 80x24 with the assistant on it, started as the unit does: what it says
    on its standard error goes elsewhere."""

    def __init__(self, arguments: list[str], environment: dict[str, str], errors: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with open(errors, "wb") as told:
            self.process = subprocess.Popen(
                arguments, stdin=slave, stdout=slave, stderr=told, env=environment,
                start_new_session=True,
            )  # fmt: skip
        os.close(slave)
        self.said = b""

    def sees(self, text: str) -> str:
        """All it said from the last time on, once the text is in it."""
        give_up_at = time.monotonic() + PATIENCE_S
        while text.encode() not in self.said:
            assert time.monotonic() < give_up_at, self.said[-4000:].decode(errors="replace")
            if not self._more():
                break
        assert text.encode() in self.said, self.said[-4000:].decode(errors="replace")
        found, self.said = self.said.decode(errors="replace"), b""
        return found

    def _more(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 1.0)
        try:
            piece = os.read(self._master, 65536) if ready else b" "
        except OSError:  # the other side is closed
            piece = b""
        self.said += piece if ready else b""
        return bool(piece)

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def ends(self) -> int:
        while self.process.poll() is None and self._more():
            pass
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


ON, DOWN = "\x1b[6~", "\x1b[B"


@pytest.fixture
def box(tmp_path: Path) -> Machine:
    """A machine with the box's own command, and stand-ins for those of the system."""
    made = machine(tmp_path / "root")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("systemctl", "timedatectl", "chpasswd"):
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/ran\n')
        (tools / name).chmod(0o755)
    steelyard = made.root / STEELYARD
    steelyard.parent.mkdir(parents=True)
    steelyard.write_text(f'#!/bin/sh\nexec {sys.executable} -m appliance "$@"\n')
    steelyard.chmod(0o755)
    return made


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": f"{tmp_path}/tools:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8",
        "STEELYARD_CONFIG": f"{tmp_path}/root/etc/steelyard/steelyard.toml",
        "STEELYARD_SERVER_STATE_DIR": f"{tmp_path}/state", "STEELYARD_BASE": f"{tmp_path}/base",
        **more,
    }  # fmt: skip


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """The script that the unit starts, and a slot in which it finds a version."""
    slot = tmp_path / "base/slots/a/venv/bin"
    slot.mkdir(parents=True)
    (slot / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (slot / "python").chmod(0o755)
    return [str(HERE / "firstboot/setup"), "--root", f"{tmp_path}/root"]


def test_set_up_on_a_real_terminal_makes_a_key_that_works(
    box: Machine, script: list[str], tmp_path: Path
) -> None:
    given = environment(tmp_path, TERM="xterm-256color")
    terminal = Terminal(script, given, tmp_path / "errors")
    try:
        terminal.sees("Language")
        terminal.types(ON + ON + ON + ON)
        terminal.sees("this machine only")
        terminal.types(f"{DOWN}\r")
        terminal.sees("Key for app")
        terminal.types("box.site\rwebapp")
        terminal.sees("webapp")
        terminal.types(ON)
        terminal.sees("make another one")
        terminal.types(f"{DOWN}\r")
        terminal.sees("operator")
        terminal.types(ON + ON + ON)
        terminal.sees("Apply does this")
        assert not (tmp_path / "state").exists() or not keys(tmp_path)
        terminal.types("\r")
        said = terminal.sees("I have written them down")
        found = re.findall(r"sk-steelyard-[\w-]+", said)
        assert len(set(found)) == 2
        terminal.types("y")
        terminal.sees("TLS")
        terminal.types("\r")
        assert terminal.ends() == 0
    finally:
        terminal.close()
    assert (tmp_path / "errors").read_text() == ""
    store = KeyStore(tmp_path / "state" / FILE_NAME)
    scopes = {frozenset(key.scopes) for key in map(store.authenticate, found) if key is not None}
    assert scopes == {frozenset({"infer"}), frozenset({"admin"})}
    assert box.look().serves == "0.0.0.0"
    assert box.look().names == ("box.site",)
    assert (tmp_path / "ran").read_text() == "systemctl restart steelyard.service\n"
    assert (box.root / DONE).exists()


def test_on_the_kernels_console_with_what_a_unit_has(
    box: Machine, script: list[str], tmp_path: Path
) -> None:
    """No home, no locale, and no Chinese signs; left, it says so by its exit status."""
    kept = ("PATH", "STEELYARD_CONFIG", "STEELYARD_SERVER_STATE_DIR", "STEELYARD_BASE")
    whole = environment(tmp_path, TERM="linux")
    given = {name: whole[name] for name in (*kept, "TERM")}
    terminal = Terminal(script, given, tmp_path / "errors")
    try:
        terminal.sees("cannot draw Chinese")
        terminal.types("\x11")
        terminal.sees("Leave the assistant?")
        terminal.types("\t\r")
        assert terminal.ends() == full.LEFT
    finally:
        terminal.close()
    assert (tmp_path / "errors").read_text() == ""
    assert not (box.root / "var").exists()


def keys(tmp_path: Path) -> list[object]:
    return list(KeyStore(tmp_path / "state" / FILE_NAME).list())


def test_script_says_that_no_version_is_whole(tmp_path: Path) -> None:
    given = environment(tmp_path, TERM="linux")
    done = subprocess.run(
        [str(HERE / "firstboot/setup")], env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "install it again" in done.stdout
