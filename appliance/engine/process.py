"""The engine child: reads commands from the socket, turns the loop, writes reports.

One thread. Between two steps it drains what the daemon sent; with nothing to do it waits for the
next command. It ignores SIGTERM and SIGINT, which a terminal sends to the whole group: the daemon
decides when it ends, by a Shutdown or by closing the socket.
"""

import argparse
import ctypes
import gc
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import setproctitle
from llguidance import LLTokenizer

from appliance.engine.commands import Command, Load, Shutdown
from appliance.engine.drafts import Drafter
from appliance.engine.framing import Frames, OutOfStep, decode_command, frame
from appliance.engine.journal import Journal, NoJournal
from appliance.engine.landings import make_ready
from appliance.engine.limits import Limits
from appliance.engine.reports import Fatal, Report
from appliance.engine.rows import Reader
from appliance.engine.runner import PROBE_TOKENS, EngineError, Runner
from appliance.engine.scheduler import Scheduler
from appliance.engine.step import Engine
from appliance.logformat import to_stderr
from appliance.trim import trim

TITLE = "steelyard: engine"
_PR_SET_PDEATHSIG = 1
_READ_BYTES = 1 << 20
MOST_REST_S = 0.25
"""A hot engine rests as long as it worked, and is still there for its pings."""

log = logging.getLogger("appliance.engine")  # as a process it is __main__


class Closed(Exception):
    """The daemon is gone."""


class Channel:
    """Framed messages over the daemon's socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._frames = Frames()
        # Not `select`, which takes no descriptor above 1023: ours has the number that it had in the
        # daemon, which may hold thousands of connections by then.
        self._arrivals = select.poll()
        self._arrivals.register(connection, select.POLLIN)

    def send(self, report: Report) -> None:
        """Blocks when the daemon does not read: it would have to be dead or stopped."""
        try:
            self._socket.sendall(frame(report))
        except OSError as error:
            raise Closed from error

    def rest(self, seconds: float) -> None:
        """Until something arrives, and no longer than this."""
        self._arrivals.poll(seconds * 1000)

    def receive(self, *, wait: bool) -> list[Command]:
        """Commands that have arrived; with `wait`, at least one read happens first."""
        commands: list[Command] = []
        while wait or self._arrivals.poll(0):
            wait = False
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise Closed
            self._frames.feed(data)
            commands += [decode_command(body) for body in self._frames]
        return commands


def serve(channel: Channel, engine: Engine) -> None:
    """Turns the loop until Shutdown. Raises Closed when the daemon goes away."""
    while True:
        for command in channel.receive(wait=not engine.busy):
            if isinstance(command, Shutdown):
                return
            engine.handle(command)
        began = time.monotonic()
        engine.step()
        if engine.slowed and engine.busy:
            channel.rest(min(MOST_REST_S, time.monotonic() - began))


def build(load: Load, publish: Callable[[Report], None]) -> tuple[Engine, Runner]:
    """Opens the model, proves one decode, and makes the loop around it."""
    journal = _journal(load)
    runner = Runner(load)
    scheduler = Scheduler(
        Limits(
            n_cells=runner.n_ctx,
            max_sequences=load.max_sequences,
            cached_sequences=load.cached_sequences,
            step_tokens=load.n_batch,
            prefill_tokens=load.prefill_tokens,
            draft_tokens=load.draft_tokens,
        )
    )
    for n_tokens, ms in runner.probe():
        scheduler.drafter.observe_step(n_tokens, ms)
    scheduler.cache.keeping.costs = runner.probe_state(_prompt_token_ms(scheduler.drafter))

    @cache
    def lltokenizer() -> LLTokenizer:
        return runner.vocab.lltokenizer()

    # Built now, not in the middle of others' answers.
    _ = runner.vocab.pieces, runner.vocab.hidden, runner.vocab.eogs, lltokenizer()
    make_ready(runner.vocab)
    reader = Reader(runner.vocab.eogs, runner.library)
    return Engine(runner, scheduler, lltokenizer, publish, journal, reader=reader), runner


def _prompt_token_ms(drafter: Drafter) -> float:
    """Computing a token of a long prompt: half of what it takes in a small step."""
    widest = PROBE_TOKENS[-1]
    return drafter.step_ms(widest) / widest / 2


def _journal(load: Load) -> Journal | NoJournal:
    """Raises EngineError when there is no room for it: tokens would go uncounted."""
    if not load.journal_dir:
        return NoJournal()
    try:
        return Journal(Path(load.journal_dir))
    except OSError as error:
        raise EngineError(
            f"the token journal cannot be made in {load.journal_dir}: "
            f"{error.strerror or error}. Free some disk space, or set server.state_dir"
        ) from error


def _die_with_parent() -> None:
    """A daemon killed with SIGKILL must not leave an engine holding the memory."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _configure_process(log_level: str, log_fd: int | None) -> None:
    setproctitle.setproctitle(TITLE)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    to_stderr(log_level, log_fd)


def run(connection: socket.socket) -> int:
    """The child's life; returns its exit status."""
    channel = Channel(connection)
    try:
        commands = channel.receive(wait=True)
        load = commands[0]
        assert isinstance(load, Load), "the first command must be Load"
        engine, runner = build(load, channel.send)
        ready = runner.ready()
        channel.send(ready)
        facts = ready.n_ctx, ready.layers_offloaded
        log.info("the model is open: %d tokens of context, %d layers on a GPU", *facts)
        trim()
        gc.freeze()
        serve(channel, engine)
    except Closed:
        return 0
    except EngineError as error:
        channel.send(Fatal(str(error)))
        return 1
    except (OutOfStep, Exception) as error:
        log.exception("the engine's loop failed")
        channel.send(Fatal(f"the engine's loop failed: {type(error).__name__}: {error}"))
        return 1
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description="steelyard's inference child; not for people")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--log-fd", type=int, help="a socket that log lines are told to as well")
    parser.add_argument("--log-level", default="info")
    arguments = parser.parse_args()
    _configure_process(arguments.log_level, arguments.log_fd)
    code = run(socket.socket(fileno=arguments.fd))
    # llama.cpp's destructors have nothing left to do that the kernel does not do faster.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
