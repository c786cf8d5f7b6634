"""One life of the engine child, seen from the daemon."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import cast

from appliance.engine.commands import Command
from appliance.engine.framing import Frames, OutOfStep, decode_report, frame
from appliance.engine.reports import Fatal, Report
from appliance.logformat import for_child

_REAP_S = 5.0
_SPINNING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
"""How long OpenMP's threads (GCC's, clang's) spin before they sleep, unless the operator says
otherwise. Measured in docs/operating.md."""


class _Link(asyncio.Protocol):
    def __init__(self, on_report: Callable[[Report], None], on_end: Callable[[], None]) -> None:
        self.on_report = on_report
        self.on_end = on_end
        self._frames = Frames()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.feed(data)
            for body in self._frames:
                self.on_report(decode_report(body))
        except OutOfStep as error:
            # A corrupted child may say anything; what it said last cannot be trusted.
            self.on_report(Fatal(f"the engine sent what is no message: {error}"))
            if self.transport is not None:
                self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_end()


class EngineChild:
    """A running child. Made by `launch`; must be ended with `kill`."""

    def __init__(self, process: subprocess.Popen[bytes], link: _Link) -> None:
        self._process = process
        self._link = link
        self.pid = process.pid

    @classmethod
    async def launch(
        cls,
        log_level: str,
        on_report: Callable[[Report], None],
        on_end: Callable[[], None],
        niceness: int = 0,
    ) -> "EngineChild":
        """Starts the process. `on_end` is called once, when its socket closes. `niceness` is that
        of all its threads, of which there is one yet."""
        ours, theirs = socket.socketpair()
        options, inherited = for_child()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",  # whoever starts a command in a foreign folder runs nothing of it
                    "-m",
                    "appliance.engine.process",
                    "--fd",
                    str(theirs.fileno()),
                    *options,
                    "--log-level",
                    log_level,
                ],
                pass_fds=[theirs.fileno(), *inherited],
                stdin=subprocess.DEVNULL,
                env=environment(),
            )
        with contextlib.suppress(OSError):  # it has ended, or may not be slowed: it runs as it is
            if niceness:
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        link = _Link(on_report, on_end)
        ours.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: link, ours)
        return cls(process, link)

    def send(self, command: Command) -> None:
        """Queues a command; after the child's end it goes nowhere."""
        transport = self._link.transport
        if transport is not None and not transport.is_closing():
            transport.write(frame(command))

    def mute(self) -> None:
        """Nothing that it said and that is still unread will be reported, not even its end."""
        self._link.on_report = lambda report: None
        self._link.on_end = lambda: None
        if self._link.transport is not None:
            self._link.transport.abort()

    def kill(self) -> None:
        """Ends the child at once, in whatever state it is (SIGKILL ends stopped ones too)."""
        if self._process.poll() is None:
            self._process.kill()

    async def dead(self, timeout: float) -> None:
        """Returns when it has exited, or after `timeout` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, timeout)

    async def reap(self, timeout: float = _REAP_S) -> int:
        """Its exit status, negative for a signal; kills it when it has not exited after `timeout`
        seconds."""
        try:
            return await asyncio.to_thread(self._process.wait, timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return await asyncio.to_thread(self._process.wait)


def environment() -> dict[str, str]:
    """OpenBLAS (inside NumPy) would keep threads that the engine never uses. ggml would have a
    debugger look at an engine whose assertion failed, for seconds in which clients wait. And
    OpenMP's threads would spin for milliseconds at each of some 400 barriers a token: where
    another program has one of the cores, they would spin away the time in which it could let go.
    """
    fixed = {"OPENBLAS_NUM_THREADS": "1", "GGML_NO_BACKTRACE": "1"}
    return {**_SPINNING, **os.environ, **fixed}


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exited with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
    hint = " (most likely by the kernel, for lack of memory)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
