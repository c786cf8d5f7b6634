"""Prometheus metrics. Names are a public interface: `llamacpp:*` as llama-server has them, and
`steelyard:*` with the meaning of vLLM's metrics of the same name.

What the engine counts is read from its last snapshot, so a scrape never waits for the engine.
"""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from appliance.control.correction import ControlSnapshot
from appliance.observe.controlmetrics import ControlMetrics
from appliance.observe.forecastmetrics import Forecasting, ForecastMetrics
from appliance.observe.hostsensors import HostSensors
from appliance.observe.pulse import Pulse
from appliance.observe.sensormetrics import SensorMetrics
from appliance.snapshot import EngineSnapshot, QueueSnapshot, SteeringSnapshot

if TYPE_CHECKING:
    from appliance.ledger.rows import Costs
    from appliance.ledger.writer import LedgerSnapshot

# One more series per metric, which no dashboard of ours reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_BETWEEN = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_REQUEST = (
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0,
    60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)


class Metrics:
    """All metrics of one daemon."""

    def __init__(
        self,
        *,
        version: str,
        llama_commit: str,
        model: str,
        engine: Callable[[], EngineSnapshot] = EngineSnapshot,
        queue: Callable[[], QueueSnapshot] = QueueSnapshot,
        currency: str = "USD",
        ledger: "Callable[[], LedgerSnapshot] | None" = None,
        certificate_s: Callable[[], float] | None = None,
        sensors: HostSensors | None = None,
        forecasts: Forecasting | None = None,
        steering: Callable[[], SteeringSnapshot] = SteeringSnapshot,
        control: Callable[[], ControlSnapshot] = ControlSnapshot,
    ) -> None:
        """`currency` is in the name of the cost counter. Without a `ledger`, or `forecasts`, there
        are no metrics of it."""
        self.pulse = Pulse()
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_Snapshots(engine, queue))
        registry.register(ControlMetrics(engine, steering, control))
        self._build = {"version": version, "llama_commit": llama_commit, "model": model}
        registry.register(_Build(self._build))
        self.requests = Counter(
            "steelyard:requests", "Requests answered.", ("route", "outcome"), registry=registry
        )
        self._cost = Counter(
            f"llm_token_cost_{currency.lower()}",
            "Standard cost of requests since the daemon started.",
            ("model", "stage", "tenant"),
            registry=registry,
        )
        registry.register(_Ledger(ledger))
        registry.register(SensorMetrics(sensors or HostSensors()))
        self._forecasts = (
            ForecastMetrics(registry, forecasts)
            if forecasts is not None and forecasts.enabled
            else None
        )
        Gauge(
            "steelyard:tls_certificate_expires_seconds",
            "Until the TLS certificate ends; NaN without TLS.",
            registry=registry,
        ).set_function(certificate_s or (lambda: math.nan))
        self.ttft = _histogram(registry, "time_to_first_token_seconds", _TTFT)
        self.inter_token = _histogram(registry, "inter_token_latency_seconds", _BETWEEN)
        self.queue_time = _histogram(registry, "request_queue_time_seconds", _REQUEST)
        self.latency = _histogram(registry, "e2e_request_latency_seconds", _REQUEST)
        self.prompt_tokens = _histogram(registry, "request_prompt_tokens", _TOKENS)
        self.generation_tokens = _histogram(registry, "request_generation_tokens", _TOKENS)

    def serves(self, model: str, forecasts: Forecasting) -> None:
        """Another model from now on, and what forecasts for it. Counters go on."""
        self._build["model"] = model
        if self._forecasts is not None:
            self._forecasts.follow(forecasts)

    def add(self, collector: Collector) -> None:
        """What a part tells that not every box has."""
        self._registry.register(collector)

    def request_done(self, route: str, outcome: str) -> None:
        """Every request, whatever it was."""
        self.requests.labels(route, outcome).inc()

    def first_token(self, ms: float, now: float) -> None:
        """A request's first token, as soon as there is one."""
        self.pulse.ttft.add(ms, now)

    def between(self, seconds: float, now: float) -> None:
        """From one token of a stream to the next."""
        self.inter_token.observe(seconds)
        self.pulse.between.add(seconds * 1000, now)

    def generated(
        self,
        *,
        prompt_tokens: int,
        completion_tokens: int,
        queue_s: float,
        ttft_s: float,
        latency_s: float,
        now: float,
    ) -> None:
        """A request that reached the model."""
        self.prompt_tokens.observe(prompt_tokens)
        self.generation_tokens.observe(completion_tokens)
        self.queue_time.observe(queue_s)
        self.ttft.observe(ttft_s)
        self.latency.observe(latency_s)
        self.pulse.latency.add(latency_s * 1000, now)

    def cost(self, model: str, tenant: str, costs: "Costs") -> None:
        """A request's cost, when its final row is made."""
        for stage in ("prefill", "decode", "cached", "idle"):
            self._cost.labels(model, stage, tenant).inc(getattr(costs, stage) / 1e9)

    def text(self) -> bytes:
        """The exposition, in Prometheus' text format."""
        return generate_latest(self._registry)


_MEANINGS = {
    "time_to_first_token_seconds": "From the request's arrival to its first token.",
    "inter_token_latency_seconds": "Between tokens of streams with one choice.",
    "request_queue_time_seconds": "Waiting for the engine.",
    "e2e_request_latency_seconds": "From the request's arrival to its last token.",
    "request_prompt_tokens": "Prompt tokens per request.",
    "request_generation_tokens": "Tokens generated per request, over all choices.",
}


def _histogram(registry: CollectorRegistry, name: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(f"steelyard:{name}", _MEANINGS[name], buckets=buckets, registry=registry)


class _Build:
    def __init__(self, build: dict[str, str]) -> None:
        self._build = build

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("steelyard:build", "What is running.", self._build)


class _Snapshots:
    """The engine's and the queue's state as metrics."""

    def __init__(
        self, engine: Callable[[], EngineSnapshot], queue: Callable[[], QueueSnapshot]
    ) -> None:
        self._engine = engine
        self._queue = queue

    def collect(self) -> Iterator[Metric]:
        engine, queue = self._engine(), self._queue()
        for name, about, counted in _counters(engine):
            yield CounterMetricFamily(name, about, counted)
        for name, about, value in _gauges(engine, queue):
            yield GaugeMetricFamily(name, about, value)
        states = GaugeMetricFamily("steelyard:engine_state", "1 for the state.", labels=["state"])
        for state in ("starting", "ready", "backoff", "stopping", "failed"):
            states.add_metric([state], float(engine.state == state))
        yield states


class _Ledger:
    """The ledger's state as metrics."""

    def __init__(self, ledger: "Callable[[], LedgerSnapshot] | None") -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        now = self._ledger() if self._ledger is not None else None
        yield CounterMetricFamily(
            "steelyard:usage_unrecorded",
            "Final rows that the ledger could not take. Anything but 0 is a defect.",
            now.set_apart if now is not None else 0,
        )
        for name, about, value in _ledger_gauges(now) if now is not None else ():
            yield GaugeMetricFamily(name, about, value)


_Row = tuple[str, str, float]


def _ledger_gauges(now: "LedgerSnapshot") -> Iterator[_Row]:
    yield "steelyard:ledger_up", "1 while the ledger can be written.", float(now.ok)
    yield "steelyard:ledger_rows", "Entries ever chained.", now.rows
    yield "steelyard:ledger_queued", "Rows not yet on disk.", now.waiting
    yield "steelyard:ledger_commit_seconds", "The last commit.", now.commit_ms / 1000
    intact = float(not now.chain_broken)
    yield "steelyard:ledger_chain_ok", "1 while the chain's end is what it should be.", intact


def _counters(engine: EngineSnapshot) -> Iterator[_Row]:
    """llama-server's counters, and ours. `_total` is added by the exposition."""
    stats = engine.stats
    yield "llamacpp:prompt_tokens", "Prompt tokens computed.", stats.prompt_tokens
    yield "llamacpp:prompt_tokens_cached", "Prompt tokens reused.", stats.cached_tokens
    yield "llamacpp:prompt_seconds", "Time on prompts.", stats.prompt_seconds
    yield "llamacpp:tokens_predicted", "Tokens generated.", stats.predicted_tokens
    yield "llamacpp:tokens_predicted_seconds", "Time on generation.", stats.predicted_seconds
    yield "llamacpp:n_decode", "Engine steps.", stats.steps
    yield "llamacpp:spec_decode_num_draft_tokens", "Tokens drafted.", stats.drafted_tokens
    yield "llamacpp:spec_decode_num_accepted_tokens", "Drafts kept.", stats.accepted_tokens
    yield "steelyard:engine_restarts", "Restarts of the engine.", engine.restarts
    yield "steelyard:num_preemptions", "Sequences put back for want of cells.", stats.preemptions
    yield "steelyard:kv_evictions", "Cached sequences given up.", stats.evictions
    yield "steelyard:engine_compute_seconds", "Time inside llama_decode.", stats.compute_seconds
    yield "steelyard:engine_busy_seconds", "Time of the busy engine loop.", stats.loop_seconds


def _gauges(engine: EngineSnapshot, queue: QueueSnapshot) -> Iterator[_Row]:
    stats = engine.stats
    yield "llamacpp:n_tokens_max", "The most KV cells ever in use.", stats.tokens_max
    prompt_rate = _ratio(stats.prompt_tokens, stats.prompt_seconds)
    yield "llamacpp:prompt_tokens_seconds", "Mean prompt tokens per second.", prompt_rate
    rate = _ratio(stats.predicted_tokens, stats.predicted_seconds)
    yield "llamacpp:predicted_tokens_seconds", "Mean generated tokens per second.", rate
    yield "llamacpp:requests_processing", "Requests running.", queue.running
    yield "llamacpp:requests_deferred", "Requests waiting.", queue.waiting
    busy = _ratio(stats.busy_sequences, stats.steps)
    yield "llamacpp:n_busy_slots_per_decode", "Mean sequences per step.", busy
    yield "steelyard:num_requests_running", "Requests running.", queue.running
    yield "steelyard:num_requests_waiting", "Requests waiting.", queue.waiting
    yield "steelyard:queue_tokens", "Prompt tokens of waiting requests.", queue.waiting_tokens
    yield "steelyard:queue_oldest_seconds", "Age of the oldest waiting.", queue.oldest_wait_s
    yield "steelyard:kv_cells", "KV cells in all.", stats.kv_total
    yield "steelyard:kv_cells_used", "KV cells in use, kept ones included.", stats.kv_used
    yield "steelyard:kv_cells_cached", "KV cells kept for reuse.", stats.kv_cached
    needed = _ratio(stats.kv_used - stats.kv_cached, stats.kv_total)
    yield "steelyard:kv_cache_usage_perc", "Of running sequences; 1: full.", needed
    yield "steelyard:engine_last_step_seconds", "The last step.", stats.last_step_ms / 1000
    yield "steelyard:engine_up", "1 while the engine serves.", float(engine.state == "ready")
    yield "steelyard:engine_resident_memory_bytes", "Memory of the engine.", engine.rss_bytes


def _ratio(of: float, to: float) -> float:
    return of / to if to else 0.0
