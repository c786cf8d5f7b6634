"""The engines under test: one child each, two of them at most, measured in turn."""

import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Self

import msgspec

from appliance.engine.commands import Load
from appliance.enginechild import describe_exit, environment
from appliance.models import memory_free
from appliance.tune.probe import (
    Answer,
    Answered,
    Measure,
    Measured,
    Opened,
    Refused,
    Reply,
    Request,
)
from appliance.tune.search import CannotRun
from appliance.tune.settings import Answers, Sameness, Settings, Timing, Work, compare

_HEADROOM = 1.2
"""Memory that a second engine must find free, over what the first one took."""


class Engine:
    """One child. Raises CannotRun whenever it does not do as it was asked."""

    def __init__(self, load: Load, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "appliance.tune.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        self._unread = b""
        try:
            opened = self._ask(msgspec.json.encode(load))
            assert isinstance(opened, Opened)
        except BaseException:
            self.close()
            raise
        self.opened: Opened = opened

    def measure(self, work: Work) -> Timing:
        reply = self._say(Measure(work))
        assert isinstance(reply, Measured)
        return reply.timing

    def answers(self) -> Answers:
        reply = self._say(Answer())
        assert isinstance(reply, Answered)
        return reply.answers

    def anonymous_bytes(self) -> int:
        """Memory of its own, without the model file's pages, which all share."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _say(self, request: Request) -> Reply:
        return self._ask(msgspec.json.encode(request))

    def _ask(self, line: bytes) -> Reply:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise CannotRun(self._end()) from None
        reply: Reply = msgspec.json.decode(self._line(), type=Reply)
        if isinstance(reply, Refused):
            raise CannotRun(reply.message)
        return reply

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            if not select.select([pipe], [], [], self._timeout_s)[0]:
                self._process.kill()
                raise CannotRun(f"it did not answer within {self._timeout_s:.0f} s")
            data = os.read(pipe, 1 << 16)
            if not data:
                raise CannotRun(self._end())
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _end(self) -> str:
        return f"the engine {describe_exit(self._process.wait())}"


class Engines:
    """A `search.Bench` of real engines. Use it in a `with`."""

    def __init__(self, base: Load, work: Work, timeout_s: float) -> None:
        """`base`: the model and all that tuning does not set."""
        self._load = base
        self.work = work
        self._timeout_s = timeout_s
        self._open: dict[Settings, Engine] = {}
        self._answers: dict[Settings, Answers] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.keep()

    def opened(self, settings: Settings) -> Opened:
        """Facts about the engine with these settings."""
        return self._engine(settings).opened

    def measure(self, settings: Settings) -> Timing:
        return self._engine(settings).measure(self.work)

    def sameness(self, settings: Settings, base: Settings) -> Sameness:
        return compare(self._answered(settings), self._answered(base))

    def keep(self, *wanted: Settings) -> None:
        for settings in [one for one in self._open if one not in wanted]:
            self._open.pop(settings).close()

    def _answered(self, settings: Settings) -> Answers:
        if settings not in self._answers:
            self._answers[settings] = self._engine(settings).answers()
        return self._answers[settings]

    def _engine(self, settings: Settings) -> Engine:
        if settings not in self._open:
            self._check_room()
            self._open[settings] = Engine(_with(self._load, settings), self._timeout_s)
        return self._open[settings]

    def _check_room(self) -> None:
        for engine in self._open.values():
            wanted, free = engine.anonymous_bytes() * _HEADROOM, memory_free()
            if wanted > free:
                raise CannotRun(
                    f"two engines side by side need {wanted / 2**20:.0f} MiB more and "
                    f"{free / 2**20:.0f} MiB are free: end other programs"
                )


def _with(load: Load, settings: Settings) -> Load:
    return msgspec.structs.replace(
        load,
        threads=settings.threads,
        threads_batch=settings.threads_batch,
        n_batch=settings.batch,
        n_ubatch=settings.ubatch,
        flash_attention=settings.flash_attention,
        kv_type=settings.kv_type,
        n_gpu_layers=settings.gpu_layers,
    )
