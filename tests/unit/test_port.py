"""A serial device beside a thousand connections, on a pseudo-terminal."""

import os
import resource
import threading
from collections.abc import Iterator

import pytest
import serial

from firmware_bridge.port import Port

HIGH = 1024
"""The first number that `select` cannot take."""
PATIENCE = 60.0


@pytest.fixture(params=[False, True], ids=["alone", "beside many"])
def line(request: pytest.FixtureRequest) -> Iterator[tuple[int, Port]]:
    """The other end of a line, and an open port to it; with all low numbers taken, or not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = HIGH + 64 if hard == resource.RLIM_INFINITY else min(hard, HIGH + 64)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    here, there = os.openpty()
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while request.param and taken[-1] < most - 32:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    port = Port()
    port.port, port.timeout, port.write_timeout, port.exclusive = os.ttyname(there), 60.0, 0.1, True
    try:
        port.open()
        yield here, port
    finally:
        port.close()
        for descriptor in (*taken, there):
            os.close(descriptor)
        os.close(here)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_said_on_either_end_is_heard_on_the_other(line: tuple[int, Port]) -> None:
    here, port = line
    os.write(here, b"from the board")
    heard = b""
    while len(heard) < 14:
        heard += port.read(4096)
    assert heard == b"from the board"
    assert port.write(b"to the board") == 12
    assert os.read(here, 4096) == b"to the board"


def test_a_wait_for_bytes_ends_when_it_is_told_to(line: tuple[int, Port]) -> None:
    _, port = line
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(port.read(1)))
    reader.start()
    port.cancel_read()
    reader.join(PATIENCE)
    assert heard == [b""]
    port.timeout = 0.01
    assert port.read(1) == b"", "and one that nobody ends, after its time"


def test_a_line_that_takes_nothing_is_a_fault(line: tuple[int, Port]) -> None:
    _, port = line
    with pytest.raises(serial.SerialTimeoutException):
        port.write(b"x" * (1 << 20))


def test_a_device_that_is_pulled_out_is_a_fault() -> None:
    here, there = os.openpty()
    port = Port()
    port.port, port.timeout, port.write_timeout = os.ttyname(there), 60.0, 60.0
    port.open()
    os.close(there)
    os.close(here)
    with pytest.raises(OSError, match=r"."):
        port.read(1)
    port.close()
