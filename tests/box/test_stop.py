"""How the box starts and stops as a service: in stages, told to systemd, and with a clear word when
it cannot."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from appliance.daemon import SAME_SIGNAL_S
from tests.box.asking import Asked, ask, check_complete
from tests.box.conftest import Start
from tests.box.running import RunningBox, title_of

ENGINE = {"context": 8192}
LONG = 3900
"""Tokens that take longer than any drain here."""


class Systemd:
    """The other end of sd_notify(3): a real datagram socket, read by a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := self._socket.recv(4096):
            lines = data.decode().splitlines()
            self.messages.append(dict(line.split("=", 1) for line in lines))

    def heard(self, name: str) -> bool:
        return any(name in message for message in self.messages)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(b"", str(self.path))
        self._thread.join()
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    listening = Systemd(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(listening.path))
    yield listening
    listening.close()


def terminate(box: RunningBox) -> float:
    """As systemd does it; returns when the box has begun to stop."""
    box.process.send_signal(signal.SIGTERM)
    box.wait_until(lambda: box.http.get("/readyz").status_code == 503, what="it stops")
    return time.monotonic()


def check_stopped(box: RunningBox) -> None:
    """It has ended, or does soon, as it should."""
    assert box.process.wait(60) == 0
    assert "Traceback" not in box.log


def check_cut_off(asked: Asked) -> None:
    """One error, nothing after it, and no mark of a proper end."""
    asked.wait()
    assert asked.problem == ""
    assert [(e["type"], e["code"]) for e in asked.errors] == [
        ("unavailable_error", "shutting_down")
    ]
    assert "error" in asked.events[-1]
    assert not asked.finished_properly
    if not asked.body["stream"]:
        assert asked.status == 503
        assert int(asked.headers["retry-after"]) >= 1


def test_running_streams_end_by_themselves_while_new_requests_are_refused(
    start_box: Start,
) -> None:
    box = start_box(engine=ENGINE, server={"drain_s": 600})
    last = ask(box, max_tokens=LONG).wait_for_tokens()
    stream = ask(box, max_tokens=150)
    whole = ask(box, max_tokens=150, stream=False)
    box.wait_for_running(3)
    terminate(box)
    refused = ask(box).wait()
    assert (refused.status, refused.errors[0]["code"]) == (503, "draining")
    assert box.http.get("/health").status_code == 200
    for request in (stream, whole):
        check_complete(box, request)
    assert not last.over, "it drains for as long as one runs"
    last.hang_up()
    check_stopped(box)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{box.url}/health")


def test_streams_that_outlast_the_drain_end_with_one_error_and_exit_status_0(
    start_box: Start,
) -> None:
    box = start_box(engine=ENGINE, server={"drain_s": 0.5})
    victims = [ask(box, max_tokens=LONG, stream=stream) for stream in (True, False)]
    box.wait_for_running(2)
    box.admin("POST", "/admin/hold")
    victims.append(ask(box, max_tokens=LONG))
    box.wait_for_waiting(1)
    box.process.send_signal(signal.SIGTERM)
    check_stopped(box)
    for victim in victims:
        check_cut_off(victim)
    assert "ending 3 requests that did not finish in time" in box.log


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_second_signal_ends_the_drain_at_once(start_box: Start, second: signal.Signals) -> None:
    box = start_box(engine=ENGINE, server={"drain_s": 600})
    victim = ask(box, max_tokens=LONG).wait_for_tokens()
    told_at = terminate(box)
    victim.wait_for_tokens(len(victim.token_ids) + 2)
    box.wait_until(lambda: time.monotonic() > told_at + SAME_SIGNAL_S, what="it counts as second")
    box.process.send_signal(second)
    check_cut_off(victim)
    check_stopped(box)


def test_signal_that_is_told_twice_at_once_is_one(start_box: Start) -> None:
    """The terminal tells the whole group, and `make` tells its child again."""
    box = start_box(server={"drain_s": 600})
    stream = ask(box, max_tokens=60).wait_for_tokens()
    daemon = psutil.Process(box.process.pid)
    daemon.suspend()  # whatever the machine does meanwhile, it is told of both at once
    for number in (signal.SIGINT, signal.SIGTERM):
        box.process.send_signal(number)
    daemon.resume()
    check_complete(box, stream)
    check_stopped(box)


def test_client_in_the_middle_of_its_body_does_not_keep_the_box_from_stopping(
    start_box: Start,
) -> None:
    box = start_box(server={"drain_s": 0})
    address = urlsplit(box.url)
    with socket.create_connection((address.hostname, address.port)) as slow, httpx.Client() as idle:
        slow.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n{"
        )
        idle.get(f"{box.url}/health")  # a connection that is kept open
        box.process.send_signal(signal.SIGTERM)
        check_stopped(box)
        answer = slow.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"shutting_down" in answer


def test_client_that_does_not_read_its_stream_does_not_keep_the_box_from_stopping(
    start_box: Start,
) -> None:
    box = start_box(engine=ENGINE, server={"drain_s": 0})
    address = urlsplit(box.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect((address.hostname, address.port))
        body = b'{"prompt": "Once", "stream": true, "max_tokens": 7000, "ignore_eos": true}'
        deaf.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
            b"\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        box.wait_until(lambda: generated(box) > 60, what="more than its buffers hold")
        box.process.send_signal(signal.SIGTERM)
        check_stopped(box)


def generated(box: RunningBox) -> int:
    return sum(row["generated"] for row in box.requests())


def test_systemd_is_told_when_the_box_is_ready_and_when_it_stops(
    systemd: Systemd, start_box: Start
) -> None:
    box = start_box(engine=ENGINE, server={"drain_s": 600})
    box.wait_until(lambda: systemd.heard("READY"), what="READY=1")
    asked, ready = systemd.messages
    assert int(asked["EXTEND_TIMEOUT_USEC"]) > 0, "a large model takes its time"
    assert ready["READY"] == "1"
    assert box.url in ready["STATUS"]
    stream = ask(box, max_tokens=LONG).wait_for_tokens()
    box.process.send_signal(signal.SIGTERM)
    box.wait_until(lambda: systemd.heard("STOPPING"), what="STOPPING=1")
    assert not stream.over, "told at the beginning of the drain, not at its end"
    assert systemd.messages[2] == {"STOPPING": "1", "STATUS": "draining 1 requests"}
    stream.hang_up()
    check_stopped(box)
    assert len(systemd.messages) == 3


def test_engine_and_prepare_process_end_with_the_box(start_box: Start) -> None:
    box = start_box()
    children = psutil.Process(box.process.pid).children(recursive=True)
    assert len(children) == 2
    box.process.send_signal(signal.SIGTERM)
    check_stopped(box)
    assert [child for child in children if child.is_running()] == []


# -- what cannot start -----------------------------------------------------------------------------


@contextmanager
def serving(home: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`steelyard serve` with a state directory of its own, output captured."""
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "STEELYARD_SERVER_STATE_DIR": str(home),
            "STEELYARD_ENGINE_THREADS": "1",
        },
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_port_in_use_is_said_and_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(tmp_path, "--port", str(port)) as process:
            said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said
    assert "server.port" in said
    assert "Traceback" not in said


def test_signal_while_the_box_starts_ends_it_without_a_word_of_being_ready(
    tmp_path: Path, systemd: Systemd
) -> None:
    with serving(tmp_path, "--port", "0") as process:
        child = _first_child(process)
        with suppress(psutil.NoSuchProcess):
            child.suspend()  # so that it is not ready before the signal comes
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Steelyard serves" not in said
    assert "Traceback" not in said
    assert not child.is_running()
    assert not systemd.heard("READY")


def _first_child(process: subprocess.Popen[str]) -> psutil.Process:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children():
            title = title_of(child)
            if title.endswith(" info") or "engine" in title:
                return child
        time.sleep(0.005)
    raise AssertionError("no engine was started")
