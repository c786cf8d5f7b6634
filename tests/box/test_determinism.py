"""Deterministic answers (temperature 0, a hard limit, stop strings, exclusive): the same to the
last bit, whatever else the engine does and however many may run (docs/determinism.md)."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from appliance import models
from appliance.config import ModelConfig
from appliance.engine import build as library
from appliance.engine.commands import Budget, Load, Sampling, Slow, Submit
from appliance.engine.process import build
from appliance.engine.reports import Batch, Delta, Event, Report

SHORT = "Why is the sky blue?"
LONG = "Anna went to the market. She bought apples, pears and plums. " * 8 + "What did she buy?"
BASE: dict[str, Any] = {"n_batch": 256, "n_ubatch": 256, "max_sequences": 4, "cached_sequences": 4}
"""LONG is read in one piece."""
OURS = (
    " avx512_vnni" in Path("/proc/cpuinfo").read_text()
    and library.installed().get("kernels") == "on"
    and os.environ.get("STEELYARD_KERNELS") != "off"
)
"""Our kernels are there, and this CPU is one that they are for."""

Answer = tuple[tuple[int, float], ...]
"""Token ids with their log-probabilities, which are 64-bit numbers."""


class Host:
    """One engine with the packaged model."""

    def __init__(self, **settings: Any) -> None:
        self.events: list[Event] = []
        load = Load(
            model_path=str(models.locate(ModelConfig())), n_ctx=1024, threads=1, threads_batch=1,
            n_gpu_layers=0, flash_attention="auto", kv_type="f16", draft_tokens=6,
            prefill_tokens=64, **{**BASE, **settings},
        )  # fmt: skip
        self.engine, self.runner = build(load, self._hear)

    def _hear(self, report: Report) -> None:
        if isinstance(report, Batch):
            self.events += report.events

    def neighbour(self, number: int) -> None:
        text = f"Neighbour number {number} has a lot to say about the weather"
        prompt = tuple(self.runner.vocab.tokenize(text, False, False))
        sampling = Sampling(seed=number)
        name = f"neighbour {number}"
        self.engine.handle(Submit(id=name, prompt=prompt, max_tokens=12, sampling=sampling))

    def ask(self, question: str, **more: Any) -> Answer:
        text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        request = Submit(
            id="asked", prompt=tuple(self.runner.vocab.tokenize(text, True, True)), max_tokens=16,
            sampling=Sampling(temperature=0.0, logprobs=0), stop=("\n\n\n",), exclusive=True,
        )  # fmt: skip
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        self.events.clear()
        self.engine.handle(Submit(**{**fields, **more}))
        self.finish()
        deltas = [e for e in self.events if isinstance(e, Delta) and e.id == "asked"]
        return tuple((e.token_id, e.logprob) for delta in deltas for e in delta.logprobs)

    def finish(self) -> None:
        while self.engine.busy:
            self.engine.step()

    def close(self) -> None:
        self.runner.close()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """One that has done all kinds of things before."""
    made = Host()
    yield made
    made.close()


@cache
def alone(question: str) -> Answer:
    """By an engine that has nothing else to do."""
    return answer_of(question)


def answer_of(question: str, **settings: Any) -> Answer:
    host = Host(**settings)
    try:
        return host.ask(question)
    finally:
        host.close()


@pytest.mark.parametrize("question", [SHORT, LONG])
def test_neighbours_and_what_was_before_change_nothing(host: Host, question: str) -> None:
    for number in range(3):
        host.neighbour(number)
        host.engine.step()
    crowded = host.ask(question)
    host.finish()
    again = host.ask(question)
    assert crowded == again == alone(question)


def test_a_hot_machine_changes_nothing(host: Host) -> None:
    host.engine.handle(Slow(on=True))
    found = host.ask(LONG)
    host.engine.handle(Slow(on=False))
    assert found == alone(LONG)


@pytest.mark.parametrize("question", [SHORT, LONG])
def test_how_many_may_run_changes_nothing(question: str) -> None:
    assert answer_of(question, max_sequences=1, cached_sequences=0) == alone(question)


@pytest.mark.parametrize(
    "batch", [{"n_batch": 64, "n_ubatch": 64}, {"n_batch": 512, "n_ubatch": 32}]
)
def test_the_size_of_a_batch_changes_nothing_for_a_prompt_that_fits_into_it(
    batch: dict[str, int],
) -> None:
    assert answer_of(SHORT, **batch) == alone(SHORT)


@pytest.mark.skipif(not OURS, reason="measured and promised for our kernels on AVX-512 VNNI alone")
@pytest.mark.parametrize("batch", [{"n_batch": 64, "n_ubatch": 64}, {"n_ubatch": 64}])
def test_our_kernels_read_a_long_prompt_to_the_same_bits_in_pieces_of_any_size(
    batch: dict[str, int],
) -> None:
    assert answer_of(LONG, **batch) == alone(LONG)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_budget_changes_nothing_in_that(host: Host, temperature: float) -> None:
    more = {
        "budget": Budget(40, "strict"), "max_tokens": 60,
        "sampling": Sampling(temperature=temperature, seed=4, logprobs=0),
    }  # fmt: skip
    first = host.ask(SHORT, **more)
    for number in range(2):
        host.neighbour(number)
    second = host.ask(SHORT, **more)
    host.finish()
    assert first == second
    assert 37 <= len(first) <= 43
