"""Those who come to the TLS port and leave again: no traceback, and their place is free."""

import asyncio
import gc
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
import uvloop

from appliance.api.connections import Connections
from appliance.api.door import Door
from appliance.tls.context import make_context
from tests.unit.certificates import client_context, issue

MANY = 60
"""Of each kind: whether one leaves between two turns of the event loop is chance."""
RESET = struct.pack("ii", 1, 0)


def first_words(client: ssl.SSLContext) -> bytes:
    """What a client says to begin with."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def come_and_go(address: Any, said: bytes) -> None:
    for place in range(MANY):
        with socket.create_connection(address) as came:
            came.sendall(said)
            if place % 2:
                came.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        await asyncio.sleep(0)


def no_protocol(*_: object) -> asyncio.Protocol:
    raise AssertionError("nobody shook hands")


async def visited(context: ssl.SSLContext, hello: bytes) -> list[dict[str, Any]]:
    """What the event loop had to complain of."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, found: complaints.append(found))
    connections, known = Connections(4 * MANY), set[object]()
    server = await loop.create_server(
        lambda: Door(no_protocol, lambda: context, connections, known), "127.0.0.1", 0
    )
    async with server, asyncio.timeout(60):
        for said in (hello, hello[:5], b"GET /", b"\x00"):
            await come_and_go(server.sockets[0].getsockname(), said)
        while len(connections) or known:
            await asyncio.sleep(0.01)
    gc.collect()
    await asyncio.sleep(0)
    return complaints


def test_who_speaks_and_leaves_is_no_bug_of_ours(tmp_path: Path) -> None:
    cert, key, ca = issue(tmp_path, "server", ["localhost"])
    context = make_context(Path(cert), Path(key), "", required=True)
    hello = first_words(client_context(ca))
    assert uvloop.run(visited(context, hello)) == []
    assert asyncio.run(visited(context, hello)) == []
