"""What systemd is told, and that its absence harms nobody."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.sdnotify import notify


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.settimeout(5)
        yield made


def test_state_is_sent(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    notify("STOPPING=1\nSTATUS=draining")
    assert listener.recv(100) == b"STOPPING=1\nSTATUS=draining"


def test_abstract_socket_is_reached(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"steelyard-test-{os.getpid()}"
    listener.bind(f"\0{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    notify("READY=1")
    assert listener.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")


def test_unreachable_systemd_is_logged_and_forgiven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")
    assert "systemd was not told 'READY=1'" in caplog.text
