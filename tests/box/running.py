"""A daemon started as an operator would start it, and what a test wants to do with it."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import openai
import psutil

START_S = 120.0
SMALL = {
    "engine": {"context": 2048, "max_sequences": 8, "restarts": 20, "threads": 1},
    "server": {"port": 0, "drain_s": 5.0},
}
"""Settings that tests share unless they say otherwise. One thread: several wait for each other in
loops, which on a machine that is busy with other things takes ten times as long."""


class RunningBox:
    """A ready daemon. `log` holds all it wrote so far."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path, url: str) -> None:
        self.process = process
        self.url = url
        self._log_path = log_path
        self.tls = _trust(log_path.parent) if url.startswith("https:") else None
        self.http = httpx.Client(base_url=url, timeout=120, verify=self.tls or True)
        self._clients: list[openai.OpenAI] = []

    @classmethod
    @contextmanager
    def start(
        cls, home: Path, *, arguments: Sequence[str] = (), **settings: object
    ) -> Iterator[Self]:
        """`settings` are tables of the configuration, e.g. engine={"context": 512}; they are laid
        over `SMALL`, key by key. `arguments`: more of `steelyard serve`'s options."""
        home.mkdir(parents=True, exist_ok=True)
        config = home / "steelyard.toml"
        config.write_text(_toml(_merged(settings)))
        log_path = home / "log"
        with open(log_path, "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "appliance", "serve", "--config", str(config), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "STEELYARD_SERVER_STATE_DIR": str(home / "state")},
            )
        try:
            running = cls(process, log_path, _wait_for_url(process, log_path))
            try:
                yield running
            finally:
                running.close()
        finally:
            _end(process)

    @property
    def state(self) -> Path:
        """Its state directory."""
        return self._log_path.parent / "state"

    @property
    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    @property
    def admin_key(self) -> str:
        """The key that the daemon printed at its first start."""
        keys = [word for word in self.log.split() if word.startswith("sk-steelyard-")]
        return next(key for key in keys if "..." not in key)

    def client(self, **options: Any) -> openai.OpenAI:
        """The official client, without retries of its own so that tests see every answer."""
        options = {"api_key": "none", "max_retries": 0, "timeout": 120, **options}
        if self.tls is not None:
            options.setdefault("http_client", httpx.Client(verify=self.tls))
        made = openai.OpenAI(base_url=f"{self.url}/v1", **options)
        self._clients.append(made)
        return made

    def async_client(self, **options: Any) -> openai.AsyncOpenAI:
        """The same, asynchronous: use it in an `async with`."""
        options = {"api_key": "none", "max_retries": 0, "timeout": 120, **options}
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", **options)

    def close(self) -> None:
        """Closes the clients, not the daemon."""
        self.http.close()
        for client in self._clients:
            client.close()

    def admin(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.admin_key}"}
        return self.http.request(method, path, headers=headers, **options)

    def engine(self) -> psutil.Process:
        """The engine child that runs now."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(child for child in children if title_of(child) == "steelyard: engine")

    def slots(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/slots").json()
        return found

    def busy_slots(self) -> int:
        return sum(1 for slot in self.slots() if slot["is_processing"])

    def requests(self) -> list[dict[str, Any]]:
        """What has not ended, oldest first, as it stands this instant."""
        found: list[dict[str, Any]] = self.admin("GET", "/admin/requests").json()["requests"]
        return found

    def wait_for_running(self, count: int) -> None:
        """Until the engine has begun with so many."""
        self.wait_until(
            lambda: sum(row["state"] == "running" for row in self.requests()) == count,
            what=f"{count} run",
        )

    def wait_for_waiting(self, count: int) -> None:
        """Until so many wait for the engine."""
        self.wait_until(
            lambda: sum(row["state"] == "waiting" for row in self.requests()) == count,
            what=f"{count} wait",
        )

    def wait_idle(self) -> None:
        """Until nothing runs or waits, as the daemon and as the engine see it."""
        self.wait_until(self._is_idle, what="an idle box")

    def _is_idle(self) -> bool:
        found = self.admin("GET", "/admin/status").json()
        kinds = ("running", "waiting")
        return not any(found[part][kind] for part in ("queue", "stats") for kind in kinds)

    def wait_until(self, condition: Any, timeout: float = 60.0, what: str = "") -> None:
        """Polls until `condition()` is true; fails the test when it never is."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"never happened within {timeout} s: {what}"
            time.sleep(0.02)

    def wait_ready(self, timeout: float = 120.0) -> None:
        self.wait_until(lambda: self.http.get("/readyz").status_code == 200, timeout, "ready")

    def stop(self, timeout: float = 60.0) -> int:
        """SIGTERM, as systemd does it; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


def _trust(home: Path) -> ssl.SSLContext | None:
    """What a client needs to know of the box's own CA, if it has one."""
    ca = home / "state/tls/ca.pem"
    return ssl.create_default_context(cafile=str(ca)) if ca.exists() else None


def title_of(process: psutil.Process) -> str:
    """Its command line as `ps` shows it; empty for one that is dead but not yet reaped."""
    try:
        return " ".join(process.cmdline()).strip()
    except psutil.NoSuchProcess:
        return ""


def _merged(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {table: dict(values) for table, values in SMALL.items()}
    for table, values in settings.items():
        merged.setdefault(table, {}).update(values)
    return merged


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    lines = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)  # strings, numbers, booleans and lists are spelt alike in TOML


def _wait_for_url(process: subprocess.Popen[bytes], log_path: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        text = log_path.read_text(errors="replace")
        for line in text.splitlines():
            if line.startswith("Steelyard serves "):
                return line.split(" at ")[1].removesuffix("/v1")
        assert process.poll() is None, f"the daemon ended with {process.returncode}:\n{text}"
        time.sleep(0.05)
    raise AssertionError(f"the daemon was not ready within {START_S} s:\n{text}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
