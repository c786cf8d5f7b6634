"""Cases with lengths that the prompt tells, and what a calibration makes of them."""

import math
import os
import random
from dataclasses import replace
from pathlib import Path

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from appliance.calibrate.cases import Case
from appliance.calibrate.fit import Made, Order, make
from appliance.calibrate.incumbent import InUse
from appliance.calibrate.status import Status, StatusFiles
from appliance.calibrate.teller import Ears, Teller
from appliance.forecast.dataset import Signal
from appliance.forecast.question import Question, Turn
from appliance.models import ModelFile
from tests.unit.api_box import HEADER
from tests.unit.calibrate_box import answered

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""As the command does: threads that wait for each other in loops take minutes on a busy machine."""
MODEL = ModelFile(Path("/models/tiny.gguf"), HEADER, "ab" * 32, "tiny")
ORDER = Order(embedder="none", seed=3)
TOPICS = ("rivers", "bread", "maps", "bells", "salt", "wool", "bridges", "clocks")


def case(number: int, words: int, *, signals: bool = True, source: str = "") -> Case:
    """A prompt that asks for so many words, and two answers of about so many tokens."""
    text = f"Write {words} words about {TOPICS[number % 8]}, number {number}."
    dice = random.Random(number)
    lengths = [max(2, round(words * math.exp(dice.gauss(0.3, 0.35)))) for _ in range(2)]
    answers = tuple(
        answered(
            f"p{number}", sample, min(length, 256), max_tokens=256,
            finish_reason="stop" if length < 256 else "length",
            signals=_signals(min(length, 256)) if signals else (),
        )
        for sample, length in enumerate(lengths)
    )  # fmt: skip
    question = Question((Turn("user", text),), tuple(range(10, 22)), max_tokens=256)
    return Case(f"p{number}", question, answers, source or f"s{number % 2}")


def _signals(length: int) -> tuple[Signal, ...]:
    return tuple(
        Signal(at, -1.0 if length - at < 8 else -8.0, 2.0, -1.0) for at in range(8, length, 8)
    )


def cases(count: int = 160, *, signals: bool = True) -> list[Case]:
    """`count` prompts that ask for 10 to 240 words."""
    dice = random.Random(7)
    wishes = [round(10 * 24 ** dice.random()) for _ in range(count)]
    return [case(number, words, signals=signals) for number, words in enumerate(wishes)]


def shuffled(of: list[Case]) -> list[Case]:
    """The same prompts, but with each other's answers: nothing can be learned from them."""
    order = list(range(len(of)))
    random.Random(1).shuffle(order)
    return [replace(one, answers=of[at].answers) for one, at in zip(of, order, strict=True)]


def teller(tmp_path: Path, told: list[Status] | None = None) -> Teller:
    ears = Ears(StatusFiles(tmp_path), (told if told is not None else []).append, lambda: "go")
    return Teller(ears, Status(state="running"))


def made_of(of: list[Case], tmp_path: Path, in_use: InUse | None = None) -> Made:
    with threadpool_limits(1):  # where scikit-learn was loaded before this module
        return make(of, MODEL, in_use, None, ORDER, teller(tmp_path))
