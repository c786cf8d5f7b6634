"""The first hour of an operator, at the console of a real box."""

import os
import pty
import select
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import httpx

from tests.box.conftest import Start
from tests.box.operating import console
from tests.box.running import RunningBox

LONG = {
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 7000,
    "ignore_eos": True,
    "stream": True,
}


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
