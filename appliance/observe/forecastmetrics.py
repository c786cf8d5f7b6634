"""How forecasts do, as metrics. What is unknown has no sample: no 0, no NaN."""

from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from appliance.forecast.told import Forecast, ForecasterSnapshot

KEEP = 1 - 1 / 256
"""Of the loss so far, at each answer: the newest few hundred count."""
_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip

_TENTHS = tuple(tenth / 10 for tenth in range(1, 11))


class Forecasting(Protocol):
    """`forecasts.Forecasts` is the real one."""

    on_answer: Callable[[float], None]
    on_end: Callable[[Forecast, int], None]
    on_verdict: Callable[[float], None]

    @property
    def enabled(self) -> bool: ...

    @property
    def failed(self) -> int: ...

    @property
    def skipped(self) -> int: ...

    @property
    def snapshot(self) -> ForecasterSnapshot: ...


def pinball(tau: float, told: float, length: float) -> float:
    """The loss, in tokens, of having told `told` as the tau-quantile of `length`."""
    return (length - told) * tau if length >= told else (told - length) * (1 - tau)


class ForecastMetrics:
    """A collector; `ended` belongs to the event loop."""

    def __init__(self, registry: CollectorRegistry, of: Forecasting) -> None:
        self._losses = {"0.1": 0.0, "0.5": 0.0, "0.9": 0.0, "0.99": 0.0}
        self._weight = 0.0
        self._seconds = Histogram(
            "steelyard_forecast_seconds",
            "Making one forecast, waiting for the thread left out.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._verdicts = Histogram(
            "steelyard_forecast_confidence_after",
            "How likely answers that have ended are right, as the quality head tells it.",
            buckets=_TENTHS,
            registry=registry,
        )
        self.follow(of)
        registry.register(self)

    def follow(self, of: Forecasting) -> None:
        """Whose forecasts are told of from now on."""
        self._of = of
        of.on_answer = self._seconds.observe
        of.on_end = self.ended
        of.on_verdict = self._verdicts.observe

    def ended(self, forecast: Forecast, length: int) -> None:
        """An answer has come to its own end, or to its limit."""
        self._weight = self._weight * KEEP + 1
        told = (forecast.p10, forecast.p50, forecast.p90, forecast.p99)
        for name, tokens in zip(self._losses, told, strict=True):
            loss = pinball(float(name), tokens, length)
            self._losses[name] = self._losses[name] * KEEP + loss

    def collect(self) -> Iterator[Metric]:
        now = self._of.snapshot
        info = {
            "version": now.version,
            "state": now.state,
            "provider": now.provider,
            "precision": now.precision,
            "encoder": now.encoder,
        }
        yield InfoMetricFamily("steelyard_forecast", "What forecasts.", info)
        yield self._pinball()
        yield _known(
            "steelyard_forecast_coverage_ratio",
            "Of the newest answers, those within their 90 % bound.",
            now.coverage,
        )
        yield _known(
            "steelyard_forecast_sharp_coverage_ratio",
            "The same of their second forecasts, made once the prompt was read.",
            now.sharp_coverage,
        )
        yield _known(
            "steelyard_forecast_sharp_pinball_loss",
            "Mean pinball loss of the newest second forecasts over all quantiles, in tokens.",
            now.sharp_pinball,
        )
        yield _known(
            "steelyard_forecast_bias_ratio",
            "Lengths are multiplied by exp of this now: 0 is no bias.",
            now.bias if now.observed else None,
        )
        yield CounterMetricFamily(
            "steelyard_forecast_failures",
            "Forecasts and lessons that failed; serving went on.",
            now.failed + self._of.failed,
        )
        yield CounterMetricFamily(
            "steelyard_forecast_skipped",
            "Requests that kept the rough estimate: too many waited.",
            self._of.skipped,
        )

    def _pinball(self) -> Metric:
        about = "Mean pinball loss of the newest answers, in tokens."
        found = GaugeMetricFamily("steelyard_forecast_pinball_loss", about, labels=["quantile"])
        if self._weight:
            for name, loss in self._losses.items():
                found.add_metric([name], loss / self._weight)
        return found


def _known(name: str, about: str, value: float | None) -> Metric:
    found = GaugeMetricFamily(name, about)
    if value is not None:
        found.add_metric([], value)
    return found
