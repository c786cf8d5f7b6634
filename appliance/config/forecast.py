"""The settings of the forecaster and of its calibration (docs/forecast.md)."""

from dataclasses import dataclass
from typing import Literal

from appliance.config.setting import setting


@dataclass(frozen=True, slots=True)
class ForecastConfig:
    """What a request will cost, told before it runs, and how that is learned (docs/forecast.md)."""

    enabled: bool = setting(True, "Forecast requests. Off, none is, and nothing is learned.")
    precision: Literal["int8", "fp32"] = setting(
        "int8", "Which of a forecaster's two networks runs: the quantised one or the exact one."
    )
    providers: tuple[str, ...] = setting(
        (),
        "Where the network may run, first choice first. Empty: `tensorrt`, `cuda`, `cpu`, the "
        "first that this machine has.",
        high=3,
        pattern=r"tensorrt|cuda|cpu",
        form='of `"tensorrt"`, `"cuda"`, `"cpu"`',
    )
    calibrate_at: str = setting(
        "",
        "When to calibrate by itself, each day: local time such as `02:30`. Empty: never.",
        pattern=r"([01]\d|2[0-3]):[0-5]\d",
        form="a local time from `00:00` to `23:59`",
    )
    calibrate_minutes: int = setting(
        240,
        "Minutes after which a calibration that the box began by itself generates no more; it "
        "learns from what it has, and the next one goes on from there.",
        low=1,
        high=1440,
    )
    calibrate_min_new: int = setting(
        200,
        "Answers that must be new in the ledger, or still to be generated, for the box to begin "
        "a calibration by itself.",
        low=1,
        high=1_000_000,
    )
    calibrate_prompts: str = setting(
        "",
        "JSONL file with prompts to generate answers for. Empty: a calibration that the box "
        "began, or the console, learns from the ledger alone.",
        path=True,
    )
    samples: int = setting(2, "Answers generated to each prompt.", low=1, high=64)
    max_tokens: int = setting(
        512,
        "Limit of a generated answer. Longer ones are learned from as cut off, not as short.",
        low=8,
        high=32768,
    )
    temperature: float = setting(0.7, "Temperature of generated answers.", low=0, high=5)
    top_p: float = setting(0.95, "top_p of generated answers.", low=0, high=1)
    idle_share: float = setting(
        0.5,
        "Share of `engine.max_sequences` that a calibration fills while nobody else asks. While "
        "others wait, it holds.",
        low=0.01,
        high=1,
    )
