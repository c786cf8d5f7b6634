"""One life of the prepare process, seen from the daemon."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import cast

from appliance.engine.framing import Frames, OutOfStep
from appliance.logformat import for_child
from appliance.prepare.messages import Open, Opened, Report, decode_report, frame

START_S = 60.0
"""Time to load a vocabulary, on a slow disk too."""
_GRACE_S = 0.05
"""After a time limit, for what has arrived but was not read yet because the loop was busy."""
_STOP_S = 2.0


class ChildLost(Exception):
    """The child died, or says what it should not."""


class _Link(asyncio.Protocol):
    """Cuts what the child says into reports; None marks its end."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self.reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self._frames = Frames()
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        try:
            for body in self._frames:
                self.reports.put_nowait(decode_report(body))
        except OutOfStep:
            self.close()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._room.set()
        self.reports.put_nowait(None)
        self._on_end()

    async def send(self, data: bytes) -> None:
        """Returns when the socket took it; after the child's end it does nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            await self._room.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Child:
    """A running child. Made by `launch`; must be ended with `end`."""

    def __init__(self, process: subprocess.Popen[bytes], link: _Link) -> None:
        self._process = process
        self._link = link
        self.pid = process.pid

    @classmethod
    async def launch(cls, opening: Open, on_end: Callable[[], None]) -> tuple["Child", Opened]:
        """Starts a child and opens its model. Raises ChildLost when it cannot."""
        link = _Link(on_end)
        ours, theirs = socket.socketpair()
        with theirs:
            process = _spawn(theirs.fileno())
        loop = asyncio.get_running_loop()
        ours.setblocking(False)
        await loop.create_unix_connection(lambda: link, sock=ours)
        child = cls(process, link)
        try:
            return child, await child._opened(opening)
        except BaseException:
            await child.end()
            raise

    async def _opened(self, opening: Open) -> Opened:
        await self.send(frame(opening))
        try:
            report = await self.report(START_S)
        except TimeoutError as error:
            raise ChildLost(f"it was not ready after {START_S:.0f} s") from error
        if not isinstance(report, Opened):
            raise ChildLost(getattr(report, "message", "it answered out of turn"))
        return report

    @property
    def alive(self) -> bool:
        return not self._link.ended and self._process.poll() is None

    def check(self) -> None:
        """Raises ChildLost once the child's end is known."""
        if self._link.ended:
            raise ChildLost(f"it ended ({self._how()})")

    async def send(self, data: bytes) -> None:
        await self._link.send(data)

    async def report(self, timeout: float) -> Report:
        """The next report, within about `timeout` seconds. Raises TimeoutError, or ChildLost when
        there will be none."""
        for patience in (timeout, _GRACE_S):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    report = await self._link.reports.get()
                break
        else:
            raise TimeoutError
        if report is None:
            self.check()
            raise ChildLost("its socket closed")
        return report

    def _how(self) -> str:
        code = self._process.poll()
        if code is None:
            return "its socket closed"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def end(self, *, kill: bool = True) -> None:
        """Kills it or, unless `kill`, lets it go by closing the socket first. Then reaps it."""
        self._link.close()
        wait = asyncio.to_thread(self._process.wait, None if kill else _STOP_S)
        if kill:
            self._process.kill()
        try:
            await asyncio.shield(wait)
        except subprocess.TimeoutExpired:
            await self.end()


def _spawn(fd: int) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C at the terminal must reach the daemon alone.
    options, inherited = for_child()
    # Else ggml would have a debugger look at a child that a job ended, while others wait.
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "appliance.prepare.process", "--fd", str(fd), *options],
        pass_fds=(fd, *inherited),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )
