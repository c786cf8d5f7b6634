"""All figures of one calibration: report.json, and what its table and plots are drawn from."""

import msgspec

from appliance.calibrate.extras import Bound, Int8
from appliance.calibrate.incumbent import Duel
from appliance.calibrate.sharper import SharperReport
from appliance.forecast.evaluate import Comparison
from appliance.forecast.qualityfit import QualityReport
from appliance.forecast.refinescore import RefineReport


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """[p10, p50, p90, actual, cut] of one test answer."""

    p10: float
    p50: float
    p90: float
    actual: int
    cut: bool


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Read `comparison` first."""

    created: str
    model: str
    model_sha256: str
    embedder: str
    features: int
    parameters: int
    seed: int
    prompts: dict[str, int]
    """By part: train, validation, calibration, test."""
    answers: dict[str, int]
    sources: dict[str, int]
    """Answers of each."""
    cut: float
    """Share of all answers that were cut off."""
    train_seconds: float
    curve: tuple[float, ...]
    without: tuple[str, ...]
    """Baselines that could not be had here."""
    comparison: Comparison
    levels: tuple[Bound, ...]
    test: tuple[Answer, ...]
    refinement: RefineReport | None
    refinement_problem: str
    quality_before: QualityReport | None
    """Of the network's quality logit."""
    quality_after: QualityReport | None
    """Of what is told once the answer has ended."""
    quality_problem: str
    int8: Int8 | None
    int8_problem: str
    precision: str
    sharper: SharperReport | None = None
    """The second forecast, made when the prompt was read; None: nothing to make it of."""
    sharper_problem: str = ""
    guarantee: str = ""
    """What may be claimed of the 90 % bound as calibrated; empty in files of before."""
    duel: Duel | None
    """None: there was no version in use."""

    @property
    def wins(self) -> bool:
        """Whether it is worth installing."""
        return self.comparison.wins and (self.duel is None or self.duel.won)

    @property
    def why(self) -> str:
        """The verdict in a sentence."""
        fought = self.duel
        if not self.comparison.wins or fought is None:
            return self.comparison.why
        figures = f"CRPS {fought.new_crps:.1f} against {fought.crps:.1f} of {fought.version}"
        if fought.won:
            return f"{self.comparison.why}; {figures}"
        seen = ", which has learned from some of these prompts" if fought.seen else ""
        return f"the version in use is as good: {figures}{seen}"
