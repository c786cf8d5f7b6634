"""The engine's end of the daemon's socket."""

import fcntl
import resource
import socket
from collections.abc import Iterator

import pytest

from appliance.engine.commands import Ping
from appliance.engine.framing import frame
from appliance.engine.process import Channel, Closed
from appliance.engine.reports import Pong, Stats

HIGH = 1100
"""Above what `select` can name. A daemon gets there with so many connections."""


@pytest.fixture
def room() -> Iterator[int]:
    """A number that a descriptor may have: `HIGH`, where this process may have as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, HIGH + 1) if hard == resource.RLIM_INFINITY else min(hard, HIGH + 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    yield min(HIGH, most - 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_engine_that_starts_beside_a_thousand_connections_hears_its_daemon(room: int) -> None:
    ours, theirs = socket.socketpair()
    high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, room)
    with ours, theirs, socket.socket(fileno=high) as inherited:
        channel = Channel(inherited)
        ours.sendall(frame(Ping(1.0)))
        assert channel.receive(wait=True) == [Ping(1.0)]
        assert channel.receive(wait=False) == []
        ours.sendall(frame(Ping(2.0)) + frame(Ping(3.0)))
        channel.rest(60.0)
        assert channel.receive(wait=False) == [Ping(2.0), Ping(3.0)]
        channel.send(Pong(3.0, Stats(), (), ()))
        assert ours.recv(4096)


def test_a_daemon_that_is_gone_ends_the_channel() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(theirs)
        ours.close()
        channel.rest(60.0)
        with pytest.raises(Closed):
            channel.receive(wait=False)
