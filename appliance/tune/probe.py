"""The child in which an engine is timed: `python -m appliance.tune.probe`; not for people.

Reads one JSON request a line and answers with one, so that settings which crash or hang llama.cpp
end a child and nothing else. It runs the same llama_decode on the same batches as the engine's
loop, without the loop: what tuning changes is inside that call.
"""

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import msgspec
import setproctitle

from appliance.engine.commands import Load, Submit
from appliance.engine.plan import Chunk, Clear
from appliance.engine.runner import EngineError, Runner
from appliance.engine.sequence import Sequence as Lane
from appliance.logformat import to_stderr
from appliance.tune.settings import Answers, Timing, Work

TITLE = "steelyard: tune"
ANSWER_TOKENS = 24
PROMPTS = (
    "The steelyard is a balance with unequal arms. Explain in two sentences how it weighs.",
    "List the first eight prime numbers, then their sum.",
    "用一句话说明什么是杠杆。",
    "def median(values):\n    ordered = sorted(values)\n",
)
TEXT = (
    "A merchant hangs the load on the short arm and slides the weight along the long one until the "
    "beam lies level, reads the mark, and writes it down. "
)


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    work: Work


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """Asks for the greedy answers."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    layers: int
    offloads: bool
    on_gpu: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The engine cannot do it. The child ends."""

    message: str


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    timing: Timing


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    answers: Answers


Request = Measure | Answer
Reply = Opened | Refused | Measured | Answered


class Probe:
    """One open engine, driven step by step."""

    def __init__(self, load: Load) -> None:
        self._runner = Runner(load)
        self._load = load
        self._text = self._runner.vocab.tokenize(TEXT, add_special=False, parse_special=False)
        ready = self._runner.ready()
        self.opened = Opened(ready.n_layers, ready.layers_asked > 0, ready.layers_offloaded)
        self._runner.probe()

    def measure(self, work: Work) -> Timing:
        """Reads `work.prompt` tokens, then decodes in each company at the same total depth."""
        self._runner.move([Clear()])
        prefill = self._read(_lanes(1), work.prompt) / work.prompt
        decode = []
        for parallel in work.parallel:
            self._runner.move([Clear()])
            lanes, depth = _lanes(parallel), work.prompt // parallel
            self._read(lanes, depth)
            decode.append(self._decode(lanes, depth, work.steps) / work.steps / parallel)
        self._runner.move([Clear()])
        return Timing(prefill, tuple(decode))

    def _read(self, lanes: Sequence[Lane], tokens: int) -> float:
        """`tokens` of each lane, in steps as large as the engine's; milliseconds."""
        began = time.perf_counter()
        for lane in lanes:
            for start in range(0, tokens, self._load.n_batch):
                size = min(self._load.n_batch, tokens - start)
                self._runner.run([Chunk(lane, start, self._some(start, size), 1)])
        return (time.perf_counter() - began) * 1e3

    def _decode(self, lanes: Sequence[Lane], depth: int, steps: int) -> float:
        """Milliseconds of `steps` steps with one token of each lane."""
        began = time.perf_counter()
        for step in range(steps):
            at = depth + step
            self._runner.run([Chunk(lane, at, self._some(at, 1), 1) for lane in lanes])
        return (time.perf_counter() - began) * 1e3

    def _some(self, start: int, size: int) -> tuple[int, ...]:
        text = self._text
        return tuple(text[(start + i) % len(text)] for i in range(size))

    def answers(self) -> Answers:
        """Greedy answers to `PROMPTS`, each alone and then all together: the two go through
        different kernels."""
        seen = hashlib.sha256()
        vocab = self._runner.vocab
        prompts = [vocab.tokenize(text, add_special=True, parse_special=False) for text in PROMPTS]
        found: list[tuple[int, ...]] = []
        for company in ([0], [1], [2], [3], [0, 1, 2, 3]):
            self._runner.move([Clear()])
            found += self._continue([prompts[i] for i in company], seen.update)
        self._runner.move([Clear()])
        return Answers(tuple(found), seen.hexdigest())

    def _continue(
        self, prompts: Sequence[Sequence[int]], seen: Callable[[bytes], None]
    ) -> list[tuple[int, ...]]:
        lanes = _lanes(len(prompts))
        made: list[list[int]] = []
        for lane, prompt in zip(lanes, prompts, strict=True):
            rows = self._runner.run([Chunk(lane, 0, tuple(prompt), 1)])
            seen(rows.tobytes())
            made.append([int(rows[0].argmax())])
        for step in range(ANSWER_TOKENS - 1):
            rows = self._runner.run(
                [
                    Chunk(lane, len(prompt) + step, (own[-1],), 1)
                    for lane, prompt, own in zip(lanes, prompts, made, strict=True)
                ]
            )
            seen(rows.tobytes())
            for own, row in zip(made, rows, strict=True):
                own.append(int(row.argmax()))
        return [tuple(own) for own in made]


def _lanes(count: int) -> list[Lane]:
    """Sequences as the runner wants them; nothing but their ids is looked at."""
    request = Submit(id="tune", prompt=(), max_tokens=0)
    return [Lane(request, 0, i, [], seq_id=i) for i in range(count)]


def _requests(lines: IO[bytes]) -> Iterator[Request]:
    decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
    for line in lines:
        yield decoder.decode(line)


def main() -> int:
    setproctitle.setproctitle(TITLE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    to_stderr("error", None)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints must not stand between the answers

    def tell(reply: Reply) -> None:
        out.write(msgspec.json.encode(reply) + b"\n")

    load = msgspec.json.decode(sys.stdin.buffer.readline(), type=Load)
    try:
        probe = Probe(load)
        tell(probe.opened)
        for request in _requests(sys.stdin.buffer):
            if isinstance(request, Measure):
                tell(Measured(probe.measure(request.work)))
            else:
                tell(Answered(probe.answers()))
    except EngineError as error:
        tell(Refused(str(error)))
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
