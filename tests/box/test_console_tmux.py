"""The first hour of an operator as it is lived: two windows of a terminal, and nothing but keys and
what stands on the screen."""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.box.ledgered import Ledgered

PATIENCE_S = 90.0
PROGRAM = [sys.executable, "-m", "appliance"]
LONG = {
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 7000,
    "ignore_eos": True,
    "stream": True,
}
CONFIG = "[server]\nport = 0\n[engine]\ncontext = 8192\nthreads = 1\n"

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="there is no tmux on this machine: install it to run this"
)


class Terminal:
    """tmux, 80 columns and 24 rows, with a server of its own."""

    def __init__(self, sockets: Path) -> None:
        self._command = ["tmux", "-S", str(sockets / "tmux"), "-f", "/dev/null"]
        self._folder = sockets

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def open(self, window: str, command: list[str], **environ: str) -> None:
        """A window in which the command runs. What it showed stays after its end."""
        given = [f"{name}={value}" for name, value in environ.items()]
        # The status goes through a file: tmux may miss a child's end and never tell how it was.
        kept = shlex.quote(str(self._status(window)))
        line = f"trap : INT; {shlex.join(['env', *given, *command])}; echo $? > {kept}"
        if window == "serve":
            size = ("-x", "80", "-y", "24")
            self.tmux("new-session", "-d", "-s", "hour", "-n", window, *size, "sleep 1000")
            self.tmux("set-option", "-g", "remain-on-exit", "on")
            self.tmux("respawn-window", "-k", "-t", window, line)
        else:
            self.tmux("new-window", "-t", "hour:", "-n", window, line)

    def screen(self, window: str) -> str:
        return self.tmux("capture-pane", "-p", "-t", window)

    def said(self, window: str) -> str:
        """All it ever showed, long lines in one piece."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-", "-t", window)

    def type(self, window: str, *keys: str) -> None:
        self.tmux("send-keys", "-t", window, *keys)

    def sees(self, window: str, text: str) -> str:
        """The screen, once it shows the text."""
        return self._until(window, lambda screen: text in screen, text)

    def agrees(self, window: str) -> None:
        """Says yes to a dialog that can be seen; a key that comes too soon after it is dropped."""
        self.sees(window, "y do it")
        give_up_at = time.monotonic() + PATIENCE_S
        while "y do it" in self.screen(window):
            assert time.monotonic() < give_up_at, self.screen(window)
            self.type(window, "y")
            time.sleep(0.5)

    def ends(self, window: str) -> int:
        """With this exit status."""
        kept = self._status(window)
        self._until(window, lambda _: kept.exists() and kept.read_text().strip(), "its end")
        return int(kept.read_text())

    def _status(self, window: str) -> Path:
        return self._folder / f"{window}.status"

    def _until(self, window: str, condition: Callable[[str], object], what: str) -> str:
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition(screen := self.screen(window)):
            assert time.monotonic() < give_up_at, f"never seen: {what}\n{screen}"
            time.sleep(0.05)
        return screen


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with tempfile.TemporaryDirectory(prefix="steelyard-tmux-") as sockets:
        made = Terminal(Path(sockets))
        try:
            yield made
        finally:
            subprocess.run([*made._command, "kill-server"], capture_output=True, check=False)


def find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found.group()


SECRET = r"sk-steelyard-[\w-]{20,}"


def test_first_hour_of_an_operator_in_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    config, state = tmp_path / "steelyard.toml", tmp_path / "state"
    config.write_text(CONFIG)
    serve = [*PROGRAM, "serve", "--config", str(config)]
    terminal.open("serve", serve, STEELYARD_SERVER_STATE_DIR=str(state))
    terminal.sees("serve", "ready: serving")
    banner = terminal.said("serve")
    url = find(r"http://127\.0\.0\.1:\d+", banner)

    console = [*PROGRAM, "tui", "--url", url, "--operator", "alice"]
    admin = find(SECRET, banner)
    terminal.open(
        "tui", console, STEELYARD_ADMIN_KEY=admin, HOME=str(tmp_path), LANG="C.UTF-8", TERM="tmux"
    )
    terminal.sees("tui", "none: only this machine may ask")
    terminal.type("tui", "4", "N")
    terminal.sees("tui", "New key")
    terminal.type("tui", *"crm", "Enter")
    terminal.agrees("tui")
    secret = find(SECRET, terminal.sees("tui", "Copy it now"))
    terminal.type("tui", "Enter")
    terminal.sees("tui", " crm       default infer")

    headers = {"Authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as app:
        check_first_answer(app)
        check_cancelling(terminal, app)
    terminal.type("tui", "D")
    terminal.agrees("tui")
    terminal.sees("tui", "DRAINING")
    terminal.type("tui", "D")
    terminal.agrees("tui")
    terminal.sees("tui", "SERVING")
    terminal.type("tui", "7", "R")
    terminal.sees("tui", "Why is the engine to be restarted?")
    terminal.type("tui", *"trial", "Enter")
    terminal.agrees("tui")
    terminal.sees("tui", " 1 restart")
    terminal.sees("tui", "the model is open")  # the log has the engine's own lines
    terminal.sees("tui", "SERVING")
    terminal.type("tui", "5", "v")
    terminal.sees("tui", "verify   ok  ")
    terminal.type("tui", "q")
    assert terminal.ends("tui") == 0
    terminal.type("serve", "C-c")
    assert terminal.ends("serve") == 0
    assert "Traceback" not in terminal.said("serve")
    check_chained(Ledgered(state))


def check_first_answer(app: httpx.Client) -> None:
    body = {"messages": LONG["messages"], "max_tokens": 3}
    assert app.post("/v1/chat/completions", json=body).status_code == 200


def check_cancelling(terminal: Terminal, app: httpx.Client) -> None:
    """An operator ends a request that runs; its client is told."""
    outcome: list[str] = []

    def follow() -> None:
        with app.stream("POST", "/v1/chat/completions", json=LONG) as answer:
            outcome.extend(answer.iter_lines())

    client = threading.Thread(target=follow)
    client.start()
    terminal.type("tui", "2")
    terminal.sees("tui", "limit 7000")
    terminal.sees("tui", "decode")
    terminal.type("tui", "X")
    terminal.agrees("tui")
    client.join(PATIENCE_S)
    assert not client.is_alive(), terminal.screen("tui")
    assert any('"cancelled"' in line for line in outcome)


def check_chained(ledger: Ledgered) -> None:
    done = {(action["action"], action["operator"]) for action in ledger.entries("action")}
    for what in (
        "key.create", "request.cancel", "box.drain", "box.resume", "engine.restart",
        "ledger.verify",
    ):  # fmt: skip
        assert (what, "alice") in done
    assert ledger.verify().ok
