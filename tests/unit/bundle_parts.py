"""Small real parts of a forecaster, for the tests of what is made of them."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace as changed
from numpy.typing import NDArray

from appliance.forecast import export, features, quantize
from appliance.forecast.bundle import SUFFIX, Bundle, Manifest, Quality
from appliance.forecast.conformal import TAUS, Group, Table
from appliance.forecast.embedders import Embedder
from appliance.forecast.encoder import EncoderError
from appliance.forecast.features import Outcome, Pipeline
from appliance.forecast.first import LOGITS, First, Reader
from appliance.forecast.forecaster import Forecaster, Served
from appliance.forecast.hazard import EDGES, Lengths
from appliance.forecast.network import HIDDEN, OUTPUTS, Network
from appliance.forecast.projection import Scaling
from appliance.forecast.question import Question, Turn

MODEL = "ab" * 32
OTHER_MODEL = "cd" * 32
EMBEDDER = "tokens-8-8"
DIMENSIONS = 12

Floats32 = NDArray[np.float32]


class Hashed:
    """An embedder whose vectors are made from a prompt's tokens."""

    name = EMBEDDER
    dimensions = DIMENSIONS

    def embed(self, question: Question) -> Floats32:
        seed = hashlib.sha256(repr(question.prompt[:64]).encode()).digest()
        vector = np.frombuffer(seed[:DIMENSIONS], dtype=np.uint8).astype(np.float32) - 127.0
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)

    def close(self) -> None:
        pass


def hashed(name: str) -> Embedder:
    return Hashed()


def question(text: str = "Tell me a story.", *, max_tokens: int = 512, **other: Any) -> Question:
    ids = tuple(text.encode("utf-8", "surrogatepass"))
    return Question(turns=(Turn("user", text),), prompt=ids, max_tokens=max_tokens, **other)


def texts(n: int) -> list[str]:
    verbs = ("Explain", "List", "Translate", "Write a poem about", "Summarise")
    return [f"{verbs[i % 5]} thing {i} of {i * i % 17} words" for i in range(n)]


def make_fitted(n: int = 40) -> features.Fitted:
    questions = [question(text) for text in texts(n)]
    embeddings = np.array([Hashed().embed(one) for one in questions])
    rng = np.random.default_rng(0)
    answers = [[Outcome(int(length), False)] for length in rng.integers(5, 300, n)]
    return features.fit(questions, embeddings, answers, np.arange(n), embedder=EMBEDDER)


def make_network(inputs: int, seed: int = 0) -> Network:
    """Untrained; answers of some 90 tokens."""
    rng = np.random.default_rng(seed)

    def weights(before: int, after: int) -> Floats32:
        return (rng.normal(size=(before, after)) * np.sqrt(1 / before)).astype(np.float32)

    return Network(
        weights(inputs, HIDDEN[0]),
        np.zeros(HIDDEN[0], dtype=np.float32),
        weights(HIDDEN[0], HIDDEN[1]),
        np.zeros(HIDDEN[1], dtype=np.float32),
        weights(HIDDEN[1], OUTPUTS),
        np.linspace(-4, -1, OUTPUTS).astype(np.float32),
    )


def make_table(offset: float = 0.0) -> Table:
    return Table((Group("", 500, 0, (offset,) * len(TAUS), (True,) * len(TAUS)),))


def make_manifest(pipeline: Pipeline) -> Manifest:
    return Manifest(
        name="test-1",
        created="2026-11-30T00:00:00Z",
        model_sha256=MODEL,
        model_name="tiny",
        features=features.VERSION,
        embedder=EMBEDDER,
        inputs=pipeline.width,
        quality=Quality("confidence", 1.0, 0.0, True),
        conformal=make_table(),
        first_conformal=make_table(),
        scores={"skill": 0.66},
    )


def make_first(inputs: int, seed: int = 0) -> First:
    """Untrained, for a forecaster that reads `inputs` features."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(LOGITS, 3)).astype(np.float32)
    blank = Scaling(np.zeros(LOGITS, np.float32), np.ones(LOGITS, np.float32))
    reader = Reader(blank, weights, Scaling(np.zeros(3, np.float32), np.ones(3, np.float32)))
    network = make_network(inputs + 3, seed + 1)
    return First(reader, network, export.fp32(network))


def first_logits(seed: int = 0) -> bytes:
    """As the engine tells them."""
    drawn = np.random.default_rng(seed).normal(-15, 4, LOGITS)
    return np.minimum(drawn, 0).astype("<f4").tobytes()


_MADE: dict[int, Bundle] = {}


def make_bundle(seed: int = 0, **changes: Any) -> Bundle:
    """`changes`: of the manifest."""
    if seed not in _MADE:
        _MADE[seed] = _make(seed)
    made = _MADE[seed]
    return replace(made, manifest=changed(made.manifest, **changes))


def _make(seed: int) -> Bundle:
    fitted = make_fitted()
    network = make_network(fitted.pipeline.width, seed)
    return Bundle(
        make_manifest(fitted.pipeline),
        fitted.pipeline,
        fitted.neighbours,
        network,
        export.fp32(network),
        quantize.int8(network, fitted.matrix),
        {"weights": np.arange(4.0)},
        b"<p>report</p>",
        b"{}",
        make_first(fitted.pipeline.width, seed),
    )


def packaged(directory: Path, bundle: Bundle | None = None) -> Path:
    """A directory with that bundle as the packaged one."""
    home = directory / "packaged"
    home.mkdir(exist_ok=True)
    if bundle is not None:
        (home / f"one{SUFFIX}").write_bytes(bundle.pack())
    return home


def make_forecaster(
    directory: Path,
    bundle: Bundle | None = None,
    *,
    make_embedder: Callable[[str], Embedder] = hashed,
    **settings: Any,
) -> Forecaster:
    """With that bundle as the packaged one; opened."""
    served = Served("tiny", MODEL, directory / "no.gguf", directory, packaged(directory, bundle))
    found = Forecaster(served, make_embedder, **settings)
    found.reload()
    return found


def lognormal(median: float, sigma: float) -> Lengths:
    """log L is normal."""
    places = [(np.log(max(end, 1e-9)) - np.log(median)) / sigma for end in EDGES]
    left = np.array([max(0.5 - 0.5 * erf(z / sqrt(2)), 1e-9) for z in places])
    return Lengths(np.clip(1.0 - left[1:] / left[:-1], 1e-6, 1 - 1e-6))


class Failing(Hashed):
    """An embedder that fails where it is told to."""

    def __init__(self, fails: Callable[[Question], bool]) -> None:
        self._fails = fails

    def embed(self, question: Question) -> Any:
        if self._fails(question):
            raise EncoderError("model.onnx has SHA-256 1 instead of 2: install its package again")
        return super().embed(question)
