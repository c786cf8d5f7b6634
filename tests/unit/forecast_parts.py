"""A forecaster that says what it is told to, and remembers what it was taught."""

import threading
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.api.box import Box
from appliance.engine.commands import Submit
from appliance.engine.reports import Delta, Finished, Signals, Started
from appliance.forecast.archive import Arrays
from appliance.forecast.hazard import Lengths
from appliance.forecast.judge import Judge
from appliance.forecast.question import Question, Turn
from appliance.forecast.told import Forecast, ForecasterSnapshot
from appliance.forecasts import Forecasts
from tests.unit.api_box import Script, Step, counts, make_box

EVEN = Lengths.from_logits([-2.0] * 24)
"""Some distribution over lengths."""


def question(**changes: object) -> Question:
    fields: dict[str, object] = {
        "turns": (Turn("user", "hi"),),
        "prompt": (1, 2, 3),
        "max_tokens": 512,
    }
    return Question(**{**fields, **changes})  # type: ignore[arg-type]


def told(
    p10: int = 20,
    p50: int = 100,
    p90: int = 300,
    *,
    p99: int = 450,
    mean: int = 120,
    most: int = 512,
    state: str = "ok",
) -> Forecast:
    return Forecast(
        "v7",
        state,
        EVEN,
        p10,
        p50,
        p90,
        p99,
        mean,
        most,
        "chat",
        confidence=0.5,  # type: ignore[arg-type]
    )


def signals(generated: int, choice: int = 0, margin: float = -9.0) -> Signals:
    return Signals("r", choice, generated, margin, 1.0, -0.5)


class Teller:
    """A scripted `Oracle`. `fault` is raised by whatever it is asked next."""

    def __init__(self, answer: Forecast | None = None) -> None:
        self.says = answer or told()
        self.asked: list[Question] = []
        self.taught: list[tuple[Forecast, int, bool]] = []
        self.flights: list[list[tuple[Forecast, int]]] = []
        self.remembered: list[tuple[tuple[int, ...], int, bool]] = []
        self.order: list[str] = []
        self.fault: Exception | None = None
        self.gate: threading.Event | None = None
        """Answers wait for it."""
        self.told = ForecasterSnapshot(version="v7", state="ok", provider="CPUExecutionProvider")
        self.refine: Arrays | None = None
        self.judge: Judge | None = None
        self.reloads = 0

    @property
    def snapshot(self) -> ForecasterSnapshot:
        return self.told

    def answer(self, question: Question) -> Forecast:
        if self.gate is not None:
            self.gate.wait(10)
        self.order.append("answer")
        if self.fault is not None:
            raise self.fault
        self.asked.append(question)
        return self.says

    def sharpen(self, forecast: Forecast, values: bytes) -> Forecast:
        self.order.append("sharpen")
        return replace(forecast, p50=forecast.p50 + 7, before=forecast)

    def observe(self, forecast: Forecast, length: int, censored: bool) -> None:
        self.order.append("observe")
        self.taught.append((forecast, length, censored))

    def pending(self, flights: Iterable[tuple[Forecast, int]]) -> None:
        self.flights.append(list(flights))

    def rebuild(self, rows: Iterable[tuple[Sequence[int], int, bool]]) -> int:
        self.order.append("rebuild")
        self.remembered += [(tuple(prompt), length, cut) for prompt, length, cut in rows]
        return len(self.remembered)

    def reload(self) -> ForecasterSnapshot:
        self.reloads += 1
        return self.told


@asynccontextmanager
async def forecasting(
    tmp_path: Path, teller: Teller | None = None, script: Script | None = None, **changes: Any
) -> AsyncIterator[Box]:
    """A box whose forecaster is that one."""
    teller = teller or Teller()
    found = Forecasts(lambda: teller)
    found.start()
    assert await found.opened(10)
    yield make_box(tmp_path, script, forecasts=found, **changes)
    await found.close()


def long_answer(submit: Submit) -> Sequence[Step]:
    """Sixteen tokens, with what the model's distribution told on the way."""
    reading_s = 0.2  # of the prompt: the forecast is made meanwhile
    steps: list[Step] = [Started(submit.id, time.monotonic(), 0), reading_s]
    for choice in range(submit.n):
        for at in range(16):
            if submit.stream:
                steps.append(Delta(submit.id, choice, "a", (97,)))
            if (at + 1) % 8 == 0 and submit.signals:
                steps.append(Signals(submit.id, choice, at + 1, -float(at), 1.5, -0.25))
        if not submit.stream:
            steps.append(Delta(submit.id, choice, "a" * 16, (97,) * 16))
        end = counts(len(submit.prompt), 16)
        steps.append(Finished(submit.id, choice, "stop", "eos", "", end))
    return steps
