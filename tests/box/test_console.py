"""The first hour of an operator, at the console of a real box."""

import asyncio
import os
import pty
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from textual.pilot import Pilot

from tests.box.conftest import Start
from tests.box.running import RunningBox
from tui.app import Console
from tui.lines import text_of, width_of
from tui.link import Link
from tui.screens.all import every_screen
from tui.settings import Settings
from tui.trust import Trust

LONG = {
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 7000,
    "ignore_eos": True,
    "stream": True,
}


class Operator:
    """Sits at a console: types, and looks until something can be seen."""

    def __init__(self, app: Console, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def screen(self) -> str:
        rows = self.app.desk.lines()
        assert [width_of(row) for row in rows] == [80] * 24
        return "\n".join(map(text_of, rows))

    async def type(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in self.screen, text)

    async def answers(self, key: str) -> None:
        """To a dialog, once it can be seen."""
        await self.until(lambda: self.app.desk.box is not None and self.app.desk.armed, "a dialog")
        await self.type(key)

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"never seen: {what}\n{self.screen}"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def console(box: RunningBox, key: str, folder: Path) -> AsyncIterator[Operator]:
    def connect(url: str) -> Link:
        return Link(url, key, Trust(url, file=folder / "known"))

    settings = Settings(operator="爱丽丝", version="test", folder=folder)
    app = Console(connect, box.url, every_screen(), settings, unanswered_s=0.01)
    async with app.run_test(size=(80, 24)) as pilot:
        yield Operator(app, pilot)
    assert not app.report


def _ask_for_long(box: RunningBox, outcome: list[str]) -> None:
    """A client that reads its stream to the end."""
    with httpx.stream("POST", f"{box.url}/v1/chat/completions", json=LONG, timeout=120) as answer:
        outcome.append("\n".join(answer.iter_lines()))


async def test_first_hour_of_an_operator(start_box: Start, tmp_path: Path) -> None:
    box = start_box(engine={"context": 8192})
    box.wait_ready()
    async with console(box, box.admin_key, tmp_path) as it:
        await it.sees("9>Set-up")  # something is left to do
        await it.type("1")
        await it.sees("SERVING")

        outcome: list[str] = []
        client = threading.Thread(target=_ask_for_long, args=(box, outcome))
        client.start()
        await it.type("2")
        await it.sees("decode")
        await it.type("X")
        await it.answers("y")
        await it.until(lambda: outcome, "the end of the request")
        client.join()
        assert '"cancelled"' in outcome[0]

        await it.type("D")
        await it.answers("y")
        await it.sees("DRAINING")
        await it.type("D")
        await it.answers("y")
        await it.sees("SERVING")

        await it.type("4", "N", *"crm", "enter")
        await it.answers("y")
        await it.sees("sk-steelyard-")
        await it.answers("enter")
        await it.sees("crm")

        await it.type("5", "v")
        await it.sees("verify   ok  ")
    async with console(box, "sk-steelyard-wrong", tmp_path) as it:
        await it.sees("The key is not accepted")
    actions = box.admin("GET", "/admin/actions").json()["actions"]
    done = {(one["action"], one["operator"]) for one in actions}
    for action in ("request.cancel", "box.drain", "box.resume", "key.create", "ledger.verify"):
        assert (action, "爱丽丝") in done


def test_command_paints_a_terminal_takes_keys_and_ends(box: RunningBox, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    environ = {**os.environ, "STEELYARD_ADMIN_KEY": box.admin_key, "LANG": "C.UTF-8"}
    console = subprocess.Popen(
        [sys.executable, "-m", "appliance", "tui", "--url", box.url, "--operator", "alice"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=tmp_path,
        start_new_session=True,
    )  # fmt: skip
    try:
        _read_until(ours, b"SERVING", b"DEGRADED")  # answers to others may not be as forecast
        os.write(ours, b"q")
        _read_until(ours, b"\x1b[?1049l")
        assert console.wait(60) == 0
    finally:
        console.kill()
        console.wait()
        os.close(ours)
        os.close(theirs)


def _read_until(terminal: int, *wanted: bytes) -> None:
    """Until one of them has come."""
    seen, deadline = b"", time.monotonic() + 60
    while not any(one in seen for one in wanted):
        assert time.monotonic() < deadline, seen[-2000:]
        if select.select([terminal], [], [], 0.5)[0]:
            seen += os.read(terminal, 65536)


def test_console_without_a_terminal_says_what_to_use_instead(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "tui"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False,
        env={**os.environ, "STEELYARD_ADMIN_KEY": "x"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "steelyard status" in done.stderr
