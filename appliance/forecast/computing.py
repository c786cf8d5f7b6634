"""A forecaster at work: its features, its embedder and its network, proven once before use."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.bundle import BadForecaster, Bundle, Quality
from appliance.forecast.embedders import Embedder, TokenMean
from appliance.forecast.encoder import EncoderError
from appliance.forecast.first import LOGITS, logits_of
from appliance.forecast.hazard import BINS, Lengths
from appliance.forecast.judge import Judge, judge_of
from appliance.forecast.neighbours import Neighbours
from appliance.forecast.question import Question, Turn
from appliance.forecast.sessions import Foreign, Running, start

Vector = NDArray[np.float32]

PROBE = Question(turns=(Turn("user", "How long is a steelyard?"),), prompt=(1, 2, 3), max_tokens=64)
"""What is asked before a forecaster is used, so that what fails fails then."""


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """What the network says of one question."""

    raw: Lengths
    confidence: float | None
    place: Vector
    """Among the neighbours."""
    seen: Vector
    """What the network read."""


@dataclass(frozen=True, slots=True, eq=False)
class Computing:
    """One forecaster, ready. One owner."""

    bundle: Bundle
    neighbours: Neighbours
    embedder: Embedder
    running: Running
    sharper: Running | None = None
    """Of the network that reads first logits; None: this forecaster has none."""
    judge: Judge | None = None
    """Of answers that have ended; None: this forecaster has none."""

    def embed(self, question: Question) -> Vector:
        """Raises EncoderError."""
        return self.embedder.embed(question)

    def place(self, question: Question) -> Vector:
        """Where a prompt lies among its neighbours. Raises EncoderError."""
        return self.bundle.pipeline.place(question, self.embed(question))

    def compute(self, question: Question, embedding: Vector) -> Computed:
        """Raises ArithmeticError where the network gives no numbers."""
        row = self.bundle.pipeline.row(question, embedding, self.neighbours)
        logits = _run(self.running, row.values)
        confidence = _confidence(self.bundle.manifest.quality, float(logits[BINS]))
        return Computed(Lengths.from_logits(logits[:BINS]), confidence, row.place, row.values)

    def sharpen(self, seen: Vector, values: bytes) -> Lengths | None:
        """What the network says that also knows the first logits; None where there is none. Raises
        BadFirst, ArithmeticError."""
        first = self.bundle.first
        if first is None or self.sharper is None:
            return None
        read = first.reader.features_of(logits_of(values))
        return Lengths.from_logits(_run(self.sharper, np.concatenate((seen, read)))[:BINS])

    def close(self) -> None:
        self.embedder.close()
        if self.judge is not None:
            self.judge.close()


def ready(
    bundle: Bundle,
    make_embedder: Callable[[str], Embedder],
    *,
    providers: Sequence[str],
    precision: str,
    runtime: Any = None,
) -> Computing:
    """`precision`: int8, fp32; what the bundle does not have, or auto: as it was made. Raises
    BadForecaster: a part of it cannot work here."""
    manifest = bundle.manifest
    models = {"fp32": bundle.fp32} | ({"int8": bundle.int8} if bundle.int8 is not None else {})
    # One without INT8 was made so because INT8 cost too much: that is no fault of the box.
    wanted = precision if precision in models else manifest.precision
    try:
        running = start(
            bundle.network, models, providers=providers, precision=wanted, runtime=runtime
        )
        sharper = None
        if bundle.first is not None:
            models = {"fp32": bundle.first.fp32}
            sharper = start(bundle.first.network, models, providers=providers, runtime=runtime)
        embedder = bundle.pipeline.attached(make_embedder(manifest.embedder))
    except Foreign as error:
        raise BadForecaster(f"its ONNX model is foreign: {error}; calibrate again") from error
    except EncoderError as error:
        raise BadForecaster(f"its embedder {manifest.embedder} does not work: {error}") from error
    # Its own copy: what is added while serving must not be in the bundle.
    neighbours = Neighbours.from_arrays(bundle.neighbours.arrays())
    # What only files are made of is not kept: it would be megabytes for nothing.
    slim = replace(
        bundle, neighbours=neighbours, fp32=b"", int8=None, report_html=b"", report_json=b""
    )
    judge = judge_of(bundle.refine, partial(_apart, embedder))
    found = Computing(slim, neighbours, embedder, running, sharper, judge)
    _prove(found)
    return found


def _apart(source: Embedder) -> TokenMean | None:
    """The same for answers, which are known by their tokens alone; None: it reads words."""
    return source.apart() if isinstance(source, TokenMean) else None


def _prove(computing: Computing) -> None:
    try:
        found = computing.compute(PROBE, computing.embed(PROBE))
        computing.sharpen(found.seen, bytes(4 * LOGITS))
    except Exception as error:  # any fault of any part of it: it is not used
        computing.close()
        name = computing.bundle.manifest.embedder
        raise BadForecaster(
            f"it fails at its first question, with the embedder {name} ({error}): put right what "
            "this names, or run `steelyard calibrate`"
        ) from error


def _run(running: Running, row: Vector) -> Vector:
    """Raises ArithmeticError where the network gives no numbers."""
    logits: Vector = running.logits(row[None])[0]
    if not math.isfinite(logits.sum()):
        raise ArithmeticError("the network gave what is not a number")
    return logits


def _confidence(quality: Quality, logit: float) -> float | None:
    if not quality.known:
        return None
    z = min(max(quality.slope * logit + quality.intercept, -30.0), 30.0)
    return 1.0 / (1.0 + math.exp(-z))
