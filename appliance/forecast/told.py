"""What a forecaster tells, about one request and about itself. Frozen: any thread may read it."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from appliance.forecast.conformal import Corrected, Table
from appliance.forecast.hazard import Lengths

State = Literal["ok", "global", "uncalibrated", "off"]
"""ok: a forecaster made for this model, and its bounds hold. global: none; one distribution for
all requests, learned as they end. uncalibrated: its 90 % bounds have lately held too often or too
seldom (conformal.py), and are being corrected. off: switched off in the configuration."""

Claim = Literal["quality", "confidence"]
"""quality: checked on tasks that can be checked, and better than its baselines. confidence: not."""


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What an answer may cost, told before it runs. Tokens count the end-of-generation token."""

    version: str
    """The name in the forecaster's manifest; empty where it is the global one."""
    state: State
    lengths: Lengths
    """Of the answer without a limit, corrected by all that was seen since."""
    p10: int
    p50: int
    p90: int
    p99: int
    mean: int
    """These five are of min(L, max_tokens): from 1 to max_tokens, the quantiles never falling.
    All 0 where max_tokens is."""
    max_tokens: int
    route: str
    confidence: float | None = None
    """0 to 1: that the answer will be good; None where nobody can tell."""
    claim: Claim = "confidence"
    serial: int = 0
    """Counts the forecasts of one forecaster."""
    corrected: Corrected | None = field(default=None, repr=False)
    """What the numbers are of: before and after correction; None where nothing is learned of it."""
    place: NDArray[np.float32] | None = field(default=None, repr=False)
    """Where its prompt lies among its neighbours; None where that is not known."""
    seen: NDArray[np.float32] | None = field(default=None, repr=False)
    """What the network read; None where it read nothing."""
    before: "Forecast | None" = field(default=None, repr=False)
    """What was told before the first token, of a forecast that was made with it."""

    @property
    def stage(self) -> int:
        """0: made of the request alone. 1: made when the model had read the prompt."""
        return int(self.before is not None)

    @property
    def at_first(self) -> "Forecast":
        """What was told before anything ran."""
        return self.before or self


@dataclass(frozen=True, slots=True)
class RouteSnapshot:
    """How the forecasts of one route have done since the start."""

    route: str
    observed: int
    coverage: float | None
    """Share of the newest answers that were within their 90 % bound; None before there are
    enough. Answers that were cut off count by what is to be expected of them."""
    bias: float
    """Natural logarithm of the factor that lengths are multiplied by now; 0 within its
    dead-band."""
    stage: int = 0
    """As Forecast.stage."""


@dataclass(frozen=True, slots=True)
class ForecasterSnapshot:
    """How the forecaster does. Replaced whole by the thread that owns it."""

    version: str = ""
    """"" is the global one."""
    state: State = "off"
    provider: str = ""
    """ONNX Runtime's name of what was seen to compute; "numpy" where no session is to be had;
    empty where no network runs."""
    precision: str = ""
    """int8, fp32; empty where no network runs."""
    encoder: str = ""
    """Name of the embedder in use; empty where there is none."""
    skill: float | None = None
    """Measured when it was made, on prompts of families it had not seen."""
    coverage: float | None = None
    """Of 90 % bounds, newest answers of all routes; None before there are enough."""
    pinball: float | None = None
    """Tokens: mean pinball loss of p10, p50, p90 and p99 over the newest answers."""
    bias: float = 0.0
    """As RouteSnapshot.bias, of the route with the most answers."""
    encode_ms: tuple[float, float] = (0.0, 0.0)
    """p50 and p99 of making the prompt's vector."""
    answer_ms: tuple[float, float] = (0.0, 0.0)
    """p50 and p99 of all the rest of a forecast."""
    sharpens: bool = False
    """It makes a second forecast of each request, when the model has read the prompt."""
    sharp_coverage: float | None = None
    """As `coverage`, of the second forecasts."""
    sharp_pinball: float | None = None
    """As `pinball`, of the second forecasts."""
    answered: int = 0
    observed: int = 0
    """Answers learned from since the start, the ledger's not counted."""
    failed: int = 0
    """Forecasts that came out global because making them failed."""
    neighbours: int = 0
    routes: tuple[RouteSnapshot, ...] = ()
    problem: str = ""
    """Why the state is not ok, and what to do."""
    degraded: str = ""
    """What was asked for and does not run, and what to do; the forecasts are as good."""
    calibration: Table | None = field(default=None, repr=False)
    """Of the bounds, before anything was served; None for the global one."""
    calibration_first: Table | None = field(default=None, repr=False)
    """The same of forecasts made when the model had read the prompt."""
