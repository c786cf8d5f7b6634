"""What a forecast costs: INT8 beside FP32, and milliseconds on this machine."""

import time
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from appliance.forecast import embedders, export, quantize, scores, sessions
from appliance.forecast.bootstrap import interval
from appliance.forecast.encoder import Encoder
from appliance.forecast.hazard import BINS, hazards_of
from bench.forecast_runs import Learned

Floats = NDArray[np.float64]


class Int8(msgspec.Struct, frozen=True, kw_only=True):
    """INT8 beside FP32, on the test rows."""

    provider: str
    crps_ratio: float
    crps_interval: tuple[float, float]
    """95 %, of the CRPS of INT8 less that of FP32, tokens."""
    quality_rmse: float
    """Of the chance that the quality logit stands for."""
    throughput_ratio: float
    """Rows per second INT8 / FP32, one row a call, measured in turns."""
    batch_ratio: float
    """The same, 256 rows a call."""


def int8(learned: Learned) -> Int8:
    """Raises sessions.Foreign: one of them does not run here as it should."""
    network, test = learned.trained.network, learned.rows["test"]
    files = {
        "fp32": export.fp32(network),
        "int8": quantize.int8(network, learned.rows["train"].x),
    }
    running = {name: sessions.start(network, files, precision=name) for name in ("fp32", "int8")}
    logits = {
        name: np.concatenate([one.logits(row[None]) for row in test.x])
        for name, one in running.items()
    }
    found = {
        name: scores.crps(hazards_of(values[:, :BINS]), test.lengths, learned.of.cap)
        for name, values in logits.items()
    }
    right = {name: _chance(values) for name, values in logits.items()}
    return Int8(
        provider=running["int8"].provider,
        crps_ratio=float(found["int8"].mean() / found["fp32"].mean()),
        crps_interval=interval(found["int8"] - found["fp32"], test.families),
        quality_rmse=float(np.sqrt(np.square(right["int8"] - right["fp32"]).mean())),
        throughput_ratio=_faster(running, test.x[:1], 500),
        batch_ratio=_faster(running, np.resize(test.x, (256, test.x.shape[1])), 50),
    )


def _chance(logits: NDArray[np.float32]) -> Floats:
    return np.asarray(1 / (1 + np.exp(-logits[:, BINS].astype(np.float64))))


def _faster(running: dict[str, sessions.Running], x: NDArray[np.float32], calls: int) -> float:
    """Nine turns of each; the median of the ratios."""
    ratios = []
    for _ in range(9):
        took = {name: _seconds(one, x, calls) for name, one in running.items()}
        ratios.append(took["fp32"] / took["int8"])
    return float(np.median(ratios))


def _seconds(one: sessions.Running, x: NDArray[np.float32], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        one.logits(x)
    return time.perf_counter() - start


class Cost(msgspec.Struct, frozen=True):
    """Milliseconds of one forecast, (p50, p99), on this machine."""

    embed: tuple[float, float]
    answer: tuple[float, float]
    """Features, neighbours and the network."""


def cost(learned: Learned, model: Path, most: int = 300) -> Cost:
    """Over test prompts, one at a time."""
    of, network = learned.of, learned.trained.network
    source = learned.fitted.pipeline.attached(embedders.embedder(of.embedder, model, Encoder()))
    embed, answer = [], []
    try:
        for row in [of.of("test")[0], *of.of("test")[:most]]:
            question = of.cases[row].question
            start = time.perf_counter()
            vector = source.embed(question)
            middle = time.perf_counter()
            seen = learned.fitted.pipeline.row(question, vector, learned.fitted.neighbours)
            network.forward(seen.values[None])
            embed.append(middle - start)
            answer.append(time.perf_counter() - middle)
    finally:
        source.close()
    return Cost(_spread(embed[1:]), _spread(answer[1:]))


def _spread(seconds: list[float]) -> tuple[float, float]:
    low, high = 1000 * np.quantile(seconds, (0.5, 0.99))
    return float(low), float(high)
