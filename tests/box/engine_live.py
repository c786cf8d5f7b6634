"""The real engine, and a plain loop to compare it with."""

from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from appliance import models
from appliance.config import ModelConfig
from appliance.engine.commands import Load, Sampling, Submit
from appliance.engine.journal import NoJournal
from appliance.engine.limits import Limits
from appliance.engine.plan import Chunk
from appliance.engine.reports import Batch, Delta, Event, Finished, Report
from appliance.engine.rows import Reader
from appliance.engine.runner import Runner
from appliance.engine.scheduler import Scheduler
from appliance.engine.step import Engine

MODEL = str(models.locate(ModelConfig()))
THREADS = 1
"""On a busy machine two threads wait for each other most of the time."""
LOAD = Load(
    model_path=MODEL,
    n_ctx=1024,
    max_sequences=6,
    n_batch=32,
    n_ubatch=32,
    threads=THREADS,
    threads_batch=THREADS,
    n_gpu_layers=0,
    flash_attention="on",
    kv_type="f16",
    cached_sequences=6,
    draft_tokens=0,
    prefill_tokens=32,
)
GREEDY = Sampling(temperature=0.0)
ROUNDING = 0.25
"""How far below the highest logit a chosen token's may be; the logits spread over some sixty."""


class Live:
    """An engine over the real model, stepped by hand. After every step, llama.cpp's own account of
    its cache is compared with the scheduler's."""

    def __init__(self, runner: Runner, **limits: int) -> None:
        clear(runner)
        given = {
            "n_cells": LOAD.n_ctx,
            "max_sequences": LOAD.max_sequences,
            "cached_sequences": LOAD.cached_sequences,
            "step_tokens": LOAD.n_batch,
            "prefill_tokens": LOAD.prefill_tokens,
            **limits,
        }
        self.scheduler = Scheduler(Limits(**given))
        # Whatever may be drafted is, so that drafts are tested on any machine.
        self.scheduler.drafter.observe_step(1, 10.0)
        self.scheduler.drafter.observe_step(LOAD.n_batch, 10.1)
        self.scheduler.drafter.observe_step = lambda n_tokens, ms: None  # type: ignore[method-assign]
        self.runner = runner
        self.vocab = runner.vocab
        self.n_ctx = given["n_cells"]
        self.events: list[Event] = []
        self.engine = Engine(
            self,
            self.scheduler,
            self.vocab.lltokenizer,
            self._publish,
            NoJournal(),
            reader=Reader(self.vocab.eogs, runner.library),
        )
        self.move = runner.move

    def _publish(self, report: Report) -> None:
        if isinstance(report, Batch):
            self.events += report.events

    def run(self, chunks: tuple[Chunk, ...]) -> NDArray[np.float32]:
        logits = self.runner.run(chunks)
        self._compare_caches(chunks)
        return logits

    def _compare_caches(self, chunks: tuple[Chunk, ...]) -> None:
        held = {s.seq_id: s.computed for s in self.scheduler.running}
        held |= {seq_id: len(s.cells) for seq_id, s in self.scheduler.cached.items()}
        held |= {chunk.sequence.seq_id: chunk.start + len(chunk.tokens) for chunk in chunks}
        memory = llama_cpp.llama_get_memory(self.runner.context)
        for seq_id in range(LOAD.max_sequences + LOAD.cached_sequences):
            last = llama_cpp.llama_memory_seq_pos_max(memory, seq_id)
            assert last == held.get(seq_id, 0) - 1, f"sequence {seq_id}"

    def submit(self, name: str, prompt: list[int], max_tokens: int = 16, **fields: Any) -> None:
        fields = {"sampling": GREEDY, **fields}
        self.engine.handle(Submit(id=name, prompt=tuple(prompt), max_tokens=max_tokens, **fields))

    def finish(self) -> None:
        while self.engine.busy:
            self.engine.step()
            self.scheduler.check()

    def answer(self, name: str, choice: int = 0) -> list[int]:
        return [t for delta in self._deltas(name, choice) for t in delta.token_ids]

    def text(self, name: str, choice: int = 0) -> str:
        return "".join(delta.text for delta in self._deltas(name, choice))

    def _deltas(self, name: str, choice: int) -> list[Delta]:
        return [
            e for e in self.events if isinstance(e, Delta) and (e.id, e.choice) == (name, choice)
        ]

    def finished(self, name: str, choice: int = 0) -> Finished:
        ends = [e for e in self.events if isinstance(e, Finished)]
        (finished,) = [e for e in ends if (e.id, e.choice) == (name, choice)]
        return finished


def chat(runner: Runner, question: str) -> list[int]:
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    return runner.vocab.tokenize(text, True, True)


def clear(runner: Runner) -> None:
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(runner.context), True)


class PlainLoop:
    """llama.cpp used as its simplest example does: one sequence, one batch after another."""

    def __init__(self, runner: Runner) -> None:
        clear(runner)
        self._runner = runner
        self._batch = llama_cpp.llama_batch_init(LOAD.n_batch, 0, 1)
        self._position = 0

    def decode(self, tokens: list[int]) -> NDArray[np.float32]:
        """Logits after each of the tokens; at most a batch of them."""
        for i, token in enumerate(tokens):
            self._batch.token[i] = token
            self._batch.pos[i] = self._position + i
            self._batch.n_seq_id[i] = 1
            self._batch.seq_id[i][0] = 0
            self._batch.logits[i] = True
        self._batch.n_tokens = len(tokens)
        self._position += len(tokens)
        assert llama_cpp.llama_decode(self._runner.context, self._batch) == 0
        shape = (len(tokens), self._runner.n_vocab)
        first = llama_cpp.llama_get_logits(self._runner.context)
        return np.array(np.ctypeslib.as_array(first, shape=shape))

    def read(self, tokens: list[int]) -> NDArray[np.float32]:
        """The same for any number of tokens, in batches."""
        starts = range(0, len(tokens), LOAD.n_batch)
        return np.concatenate([self.decode(tokens[at : at + LOAD.n_batch]) for at in starts])

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)


def plain_answer(runner: Runner, prompt: list[int], count: int) -> list[int]:
    """The greedy answer of a plain loop; it ends as ours does."""
    loop = PlainLoop(runner)
    answer: list[int] = []
    logits = loop.read(prompt)
    while True:
        answer.append(int(logits[-1].argmax()))
        if len(answer) == count or answer[-1] in runner.vocab.eogs:
            loop.close()
            return answer
        logits = loop.decode(answer[-1:])


def plain_rows(runner: Runner, prompt: list[int], answer: list[int]) -> NDArray[np.float32]:
    """The same rows, to the last bit, as those of an engine that answers this alone."""
    loop = PlainLoop(runner)
    rows = [loop.read(prompt)[-1:], *(loop.decode([token]) for token in answer[:-1])]
    loop.close()
    return np.concatenate(rows)


def plain_logits(runner: Runner, prompt: list[int], answer: list[int]) -> NDArray[np.float32]:
    """The row from which each token of the answer is chosen, by a plain decode of the text."""
    loop = PlainLoop(runner)
    rows = loop.read(prompt + answer[:-1])[len(prompt) - 1 :]
    loop.close()
    return rows


def assert_greedy(runner: Runner, prompt: list[int], answer: list[int]) -> None:
    """Every token is the likeliest, but for rounding; the answer ends where it must."""
    rows = plain_logits(runner, prompt, answer)
    below = rows.max(axis=1) - rows[np.arange(len(answer)), answer]
    assert below.max() < ROUNDING, f"token {int(below.argmax())} is {below.max():.3f} off"
    assert not any(token in runner.vocab.eogs for token in answer[:-1])


def ignoring_ends() -> Sampling:
    return Sampling(temperature=0.0, ignore_eos=True)
