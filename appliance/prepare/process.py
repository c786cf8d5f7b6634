"""The prepare child: `python -m appliance.prepare.process --fd N`.

One thread reads a job, does it and answers. It ignores SIGINT and SIGTERM, because the daemon
decides when to stop: it closes the socket, or kills a job that overran its time.
"""

import argparse
import ctypes
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator

from setproctitle import setproctitle

from appliance.engine.framing import Frames, OutOfStep
from appliance.engine.vocab import Vocab, VocabError
from appliance.errors import BadRequest
from appliance.logformat import to_stderr
from appliance.prepare.jobs import PromptTooLong, Worker
from appliance.prepare.messages import (
    Command,
    Done,
    Failed,
    Fatal,
    Job,
    Open,
    Opened,
    Phase,
    Report,
    TooLong,
    Unsendable,
    decode_command,
    frame,
)
from appliance.trim import be_frugal, trim

_PR_SET_PDEATHSIG = 1
_READ = 256 * 1024
_ROOM = 1024 * 1024 * 1024
"""Address space in bytes that jobs may take beyond what the vocabulary needed."""

log = logging.getLogger("appliance.prepare")  # as a process it is __main__


class Link:
    """The child's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = Frames()

    def commands(self) -> Iterator[Command]:
        """Commands as they come, until the daemon closes."""
        while data := self._sock.recv(_READ):
            self._frames.feed(data)
            for body in self._frames:
                yield decode_command(body)

    def send(self, report: Report) -> None:
        self._sock.sendall(frame(report))

    def answer(self, report: Report) -> None:
        """What a job came to. If that cannot travel, the job is at fault, not this process."""
        try:
            data = frame(report)
        except Unsendable as error:
            what = f"what the request comes to cannot be used: {error}"
            data = frame(Failed(what, "messages", "too_large"))
        self._sock.sendall(data)


def serve(link: Link) -> None:
    """Opens the model, then does jobs until the socket closes."""
    commands = link.commands()
    opening = next(commands, None)
    if not isinstance(opening, Open):
        return
    worker = _open(opening, link)
    _bound_memory()
    for command in commands:
        if isinstance(command, Open):
            raise OutOfStep("a second Open")
        link.answer(_answer(worker, command))


def _open(opening: Open, link: Link) -> Worker:
    vocab = Vocab.open(opening.model_path)
    worker = Worker(
        vocab, opening.limits, lambda name: link.send(Phase(name)), opening.chat_template
    )
    worker.tokenizer  # noqa: B018 (made now, so that no job pays for it)
    source = worker.prompter.template.source
    own = opening.chat_template is not None
    from_model = vocab.chat_template is not None
    link.send(
        Opened(
            n_vocab=vocab.n_tokens,
            chat_template=source,
            template_source="config" if own else "model" if from_model else "fallback",
        )
    )
    trim()
    return worker


def _answer(worker: Worker, job: Job) -> Report:
    try:
        return Done(worker.do(job))
    except PromptTooLong as error:
        return TooLong(error.least, error.n_ctx)
    except BadRequest as error:
        return Failed(error.message, error.param, error.code)
    except RecursionError:
        return Failed("the request is nested too deeply", None, "too_deep")
    except MemoryError:
        return Failed("the request needs too much memory to prepare", None, "too_large")
    except VocabError as error:
        return Failed(str(error))


def _bound_memory() -> None:
    """A job that explodes then fails alone, long before the machine is short of memory."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
    size = pages * os.sysconf("SC_PAGE_SIZE") + _ROOM
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _guard_process() -> None:
    setproctitle("steelyard: prepare")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--log-fd", type=int)
    arguments = parser.parse_args()
    _guard_process()
    be_frugal()
    to_stderr("warning", arguments.log_fd)
    link = Link(socket.socket(fileno=arguments.fd))
    try:
        serve(link)
    except ConnectionError:
        pass  # the daemon is gone, and so are we
    except (VocabError, ValueError) as error:
        link.send(Fatal(str(error)))
        return 1
    except Exception as error:
        log.exception("the prepare process has a bug")
        link.send(Fatal(f"{type(error).__name__}: {error}"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
