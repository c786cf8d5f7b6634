"""Listeners on /events for `bench.console`: read all, keep nothing. Its parent ends it."""

import asyncio
import os
import sys

from bench.load import Address, request_bytes


async def _listen(address: Address, key: str, through: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request_bytes(address, "GET", "/events", b"", key))
    await writer.drain()
    first = True
    while data := await reader.read(1 << 16):
        if first and not data.startswith(b"HTTP/1.1 200"):
            sys.exit(1)
        if first:
            through.release()
            first = False


async def _all(address: Address, key: str, count: int) -> None:
    through = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_listen(address, key, through))
        for _ in range(count):
            await through.acquire()
        print("listening", flush=True)


if __name__ == "__main__":
    host, port, count = sys.argv[1:]
    asyncio.run(_all(Address(host, int(port)), os.environ["STEELYARD_ADMIN_KEY"], int(count)))
