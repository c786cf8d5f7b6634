"""Forecasts, and what is learned as answers end. Owned by one thread; its snapshot is anyone's.

Nothing in here can stop serving: what goes wrong makes a forecast `global`, and is counted and
said in the snapshot.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from appliance.control.correction import Correction
from appliance.forecast.archive import Arrays
from appliance.forecast.bundle import BadForecaster, Manifest
from appliance.forecast.composing import blank, numbers
from appliance.forecast.computing import Computed, Computing, ready
from appliance.forecast.conformal import Table
from appliance.forecast.embedders import Embedder, embedder
from appliance.forecast.encoder import Encoder, EncoderError
from appliance.forecast.hazard import Lengths
from appliance.forecast.judge import Judge
from appliance.forecast.learning import Biases, Learning, within
from appliance.forecast.pace import Pace
from appliance.forecast.question import Question, Turn
from appliance.forecast.spelling import Spelling
from appliance.forecast.told import Forecast, ForecasterSnapshot
from appliance.forecast.versions import PACKAGED, Versions

__all__ = ["Forecast", "Forecaster", "ForecasterSnapshot", "Served"]

log = logging.getLogger(__name__)

PUBLISH_EVERY = 32
"""Answers between two snapshots, where nothing ends."""
NO_FORECASTER = (
    "there is no forecaster for this model yet: lengths are learned as answers end; "
    "run `steelyard calibrate`"
)


Corrections = Callable[[str, str], Correction]
"""By version and route: the bias, where the control loop keeps it."""


@dataclass(frozen=True, slots=True)
class Served:
    """The model that is forecast for."""

    name: str
    sha256: str
    path: Path
    state_dir: Path
    packaged: Path = PACKAGED


class Forecaster:
    """One model's. Every method but `snapshot` belongs to the thread that owns it."""

    def __init__(
        self,
        served: Served,
        make_embedder: Callable[[str], Embedder],
        *,
        providers: Sequence[str] = (),
        precision: str = "auto",
        runtime: Any = None,
        spelling: Callable[[], Spelling] | None = None,
        corrections: Corrections | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Opens nothing yet: `open` or `reload` does. `spelling` opens the model's vocabulary.
        Without `corrections` it keeps its own."""
        self._versions = Versions(served.state_dir, served.sha256, served.packaged)
        self._start = partial(
            ready,
            make_embedder=make_embedder,
            providers=providers,
            precision=precision,
            runtime=runtime,
        )
        self._open_spelling = spelling or partial(Spelling.of, served.path)
        self._spelling: Spelling | None = None
        self._speechless = False
        """The vocabulary cannot be read, so the ledger's prompts have no words."""
        self._corrections = corrections
        self._clock = clock
        self._learning = Learning()
        self._computing: Computing | None = None
        self._problem = NO_FORECASTER
        self._encoding, self._answering = Pace(), Pace()
        self._answered = self._observed = self._failed = 0
        self._snapshot = ForecasterSnapshot(state="global", problem=NO_FORECASTER)

    @classmethod
    def open(
        cls,
        served: Served,
        *,
        encoder: Encoder | None = None,
        providers: Sequence[str] = (),
        precision: str = "auto",
        corrections: Corrections | None = None,
    ) -> "Forecaster":
        """Never raises for what is in a forecaster's file: the snapshot says why it is not used.
        `encoder`: the daemon's, shared. `providers`: of tensorrt, cuda, cpu, first choice first;
        none: the best that is there. `precision`: int8, fp32; auto, or what it
        does not have: as it was made."""
        shared = encoder if encoder is not None else Encoder()
        make = partial(embedder, model=served.path, encoder=shared)
        found = cls(served, make, providers=providers, precision=precision, corrections=corrections)
        found.reload()
        return found

    @property
    def snapshot(self) -> ForecasterSnapshot:
        """For any thread."""
        return self._snapshot

    @property
    def manifest(self) -> Manifest | None:
        """Of the forecaster in use; None for the global one."""
        return self._computing.bundle.manifest if self._computing is not None else None

    @property
    def refine(self) -> Arrays | None:
        """Arrays for the in-flight refinement (refine.py); None where there are none."""
        return self._computing.bundle.refine if self._computing is not None else None

    @property
    def judge(self) -> Judge | None:
        """Tells how likely an answer is right, once it has ended; None where nobody can. Who gets
        it may keep it: any thread."""
        return self._computing.judge if self._computing is not None else None

    def reload(self) -> ForecasterSnapshot:
        """Looks again which version is in use, and goes over to it. What was learned of lengths is
        kept; corrections of the former version are not, and `rebuild` is to be called again."""
        self.close()
        self._problem = NO_FORECASTER
        try:
            found = self._versions.load()
            if found is not None:
                self._computing = self._start(found[1])
                self._problem = ""
        except BadForecaster as error:
            self._problem = str(error)
            log.warning("forecasts are global: %s", error)
        except Exception as error:  # a fault of ours must not keep the box from starting
            self._problem = f"the forecaster failed to open ({error!r}): run `steelyard calibrate`"
            log.exception("forecasts are global")
        self._learning.restart(self._table(), self._biases(), self._table(stage=1))
        return self._publish()

    def close(self) -> None:
        """Gives back the files it holds; forecasts are global from then on."""
        if self._computing is not None:
            self._computing.close()
        self._computing = None

    def answer(self, question: Question) -> Forecast:
        """Never raises; well under a millisecond besides the embedding."""
        started = self._clock()
        self._answered += 1
        try:
            computed, encoded = self._computed(question)
            forecast = self._told(question, computed)
            self._answering.add(self._clock() - started - encoded)
        except Exception:
            self._fault("a forecast was made from nothing")
            forecast = blank(question)
        if self._answered % PUBLISH_EVERY == 1:
            self._publish()
        return forecast

    def sharpen(self, forecast: Forecast, values: bytes) -> Forecast:
        """The forecast made anew now that the model has read the prompt; `values` as the engine
        tells them (engine.reports.FirstLogits). The same one where that tells nothing more. Never
        raises."""
        try:
            raw = self._sharper(forecast, values)
            if raw is None:
                return forecast
            tracker = self._learning.tracker(True, forecast.route, stage=1)
            told = numbers(raw, tracker, forecast.max_tokens, made=True)
            return replace(forecast, **told, before=forecast)
        except Exception:
            self._fault("a forecast was not made sharper")
            return forecast

    def observe(self, forecast: Forecast, length: int, censored: bool) -> None:
        """The request of that forecast has ended after `length` tokens; `censored`: it did not end
        by itself (limit, cancel, deadline, stop string). Never raises. Length 0 is passed over."""
        if length < 1:
            return
        try:
            self._observe(forecast, length, censored)
        except Exception:  # learning less is better than serving less
            self._fault("an answer was not learned from")
        self._publish()

    def pending(self, flights: Iterable[tuple[Forecast, int]]) -> None:
        """All requests that run now, and their tokens so far: each is known to be longer. Replaces
        what the last call told. A few times a second is enough. Never raises."""
        try:
            self._learning.running(self._own(flights))
        except Exception:
            self._fault("running requests were not learned from")

    def rebuild(self, rows: Iterable[tuple[Sequence[int], int, bool]]) -> int:
        """Earlier answers from the ledger, oldest first: (prompt token ids, length, censored).
        They fill the neighbours and the global distribution. Returns how many were of use. May be
        called bit by bit; never raises."""
        used = 0
        for prompt, length, censored in rows:
            if length < 1:
                continue
            try:
                self._learning.recall(length, censored)
                self._remember_place(prompt, length, censored)
                used += 1
            except Exception:
                self._fault("a row of the ledger was not learned from")
        self._publish()
        return used

    def _computed(self, question: Question) -> tuple[Computed | None, float]:
        """What the network says, None where it cannot; and the seconds the embedding took."""
        if self._computing is None or question.max_tokens < 1:
            return None, 0.0
        started = self._clock()
        encoded = 0.0
        try:
            embedding = self._computing.embed(question)
            encoded = self._clock() - started
            self._encoding.add(encoded)
            return self._computing.compute(question, embedding), encoded
        except Exception:  # whatever a question does to us, it is answered
            self._fault("a forecast became global")
            return None, encoded

    def _sharper(self, forecast: Forecast, values: bytes) -> Lengths | None:
        if self._computing is None or forecast.seen is None or forecast.before is not None:
            return None
        return self._computing.sharpen(forecast.seen, values) if self._is_own(forecast) else None

    def _told(self, question: Question, computed: Computed | None) -> Forecast:
        made = computed is not None
        raw = computed.raw if computed is not None else self._learning.everywhere(question.route)
        tracker, limit = self._learning.tracker(made, question.route), max(0, question.max_tokens)
        manifest = self.manifest if made else None
        return Forecast(
            **numbers(raw, tracker, limit, made=made),
            version=manifest.name if manifest is not None else "",
            max_tokens=limit,
            route=question.route,
            confidence=computed.confidence if computed is not None else None,
            claim=manifest.quality.claim if manifest is not None else "confidence",
            serial=self._answered,
            place=computed.place if computed is not None else None,
            seen=computed.seen if computed is not None else None,
        )

    def _observe(self, forecast: Forecast, length: int, censored: bool) -> None:
        if not self._is_own(forecast):  # it was told by a version no longer in use
            self._learning.remember(forecast.route, length, censored)
            return
        self._learning.observe(forecast, length, censored)
        if forecast.place is not None and self._computing is not None:
            self._computing.neighbours.add(forecast.place, math.log(length), censored)
        self._observed += 1

    def _is_own(self, forecast: Forecast) -> bool:
        manifest = self.manifest
        return forecast.version in ("", manifest.name if manifest is not None else "")

    def _own(self, flights: Iterable[tuple[Forecast, int]]) -> list[tuple[Forecast, int]]:
        return [(forecast, tokens) for forecast, tokens in flights if self._is_own(forecast)]

    def _remember_place(self, prompt: Sequence[int], length: int, censored: bool) -> None:
        turns = self._turns(prompt) if self._computing is not None else ()
        if self._computing is not None and turns:
            place = self._computing.place(Question(turns, tuple(prompt)))
            self._computing.neighbours.add(place, math.log(length), censored)

    def _turns(self, prompt: Sequence[int]) -> tuple[Turn, ...]:
        """What was said; nothing where it cannot be known."""
        if self._spelling is None and not self._speechless:
            try:
                self._spelling = self._open_spelling()
            except EncoderError as error:
                self._speechless = True
                log.warning("earlier prompts do not become neighbours: %s", error)
        return self._spelling.turns(prompt) if self._spelling is not None else ()

    def _fault(self, what: str) -> None:
        """Counted; said in the log once."""
        self._failed += 1
        if self._failed == 1:
            log.exception("%s; further ones are counted only", what)

    def _table(self, stage: int = 0) -> Table | None:
        manifest = self.manifest
        if manifest is None:
            return None
        return manifest.first_conformal if stage else manifest.conformal

    def _biases(self) -> Biases | None:
        manifest = self.manifest
        if manifest is None or self._corrections is None:
            return None
        return partial(self._corrections, manifest.name)

    def _publish(self) -> ForecasterSnapshot:
        made = self._computing is not None
        routes = self._learning.routes(made)
        coverage = self._learning.coverage()
        calibrated = within(coverage)
        self._snapshot = ForecasterSnapshot(
            state="global" if not made else ("ok" if calibrated else "uncalibrated"),
            coverage=coverage,
            pinball=self._learning.pinball(),
            sharp_coverage=self._learning.coverage(stage=1),
            sharp_pinball=self._learning.pinball(stage=1),
            bias=routes[0].bias if routes else 0.0,
            encode_ms=self._encoding.percentiles_ms(),
            answer_ms=self._answering.percentiles_ms(),
            answered=self._answered,
            observed=self._observed,
            failed=self._failed,
            routes=routes,
            problem=self._problem if calibrated or not made else _uncalibrated(coverage),
            **_facts(self._computing),
        )
        return self._snapshot


def _facts(computing: Computing | None) -> dict[str, Any]:
    """What a snapshot tells of the forecaster itself."""
    if computing is None:
        return {}
    manifest = computing.bundle.manifest
    skill = manifest.scores.get("skill")
    return {
        "version": manifest.name,
        "provider": computing.running.provider,
        "precision": computing.running.precision,
        "degraded": computing.running.degraded,
        "encoder": manifest.embedder,
        "skill": float(skill) if isinstance(skill, (int, float)) else None,
        "neighbours": len(computing.neighbours),
        "sharpens": computing.sharper is not None,
        "calibration": manifest.conformal,
        "calibration_first": manifest.first_conformal,
    }


def _uncalibrated(coverage: float | None) -> str:
    return (
        f"lately {100 * (coverage or 0.0):.0f} % of answers were within their 90 % bound, not 85 "
        "to 95 %; bounds are being corrected. Should it last, run `steelyard calibrate`"
    )
