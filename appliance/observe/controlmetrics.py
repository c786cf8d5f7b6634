"""The control loop as metrics: pools, order, fallback, ticks."""

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from appliance.control.budgets import FALLBACKS
from appliance.control.correction import ControlSnapshot
from appliance.engine.reports import Stats
from appliance.snapshot import EngineSnapshot, SteeringSnapshot

_POLICIES = ("fcfs", "expected-cost", "shuffled")


class ControlMetrics:
    """Read from snapshots at each scrape."""

    def __init__(
        self,
        engine: Callable[[], EngineSnapshot],
        steering: Callable[[], SteeringSnapshot] = SteeringSnapshot,
        control: Callable[[], ControlSnapshot] = ControlSnapshot,
    ) -> None:
        self._engine, self._steering, self._control = engine, steering, control

    def collect(self) -> Iterator[Metric]:
        stats, steering, control = self._engine().stats, self._steering(), self._control()
        yield from _pools(stats, steering)
        for name, about, counted in _counters(stats):
            yield CounterMetricFamily(name, about, counted)
        yield GaugeMetricFamily("steelyard:peak_tau", "Quantile of peaks.", steering.tau)
        longest = stats.wait_max_s
        yield GaugeMetricFamily("steelyard:queue_longest_seconds", "In the engine.", longest)
        yield _chosen("steelyard:queue_order", "order", _POLICIES, steering.order)
        yield _chosen("steelyard:queue_fallback", "reason", tuple(FALLBACKS), steering.fallback)
        yield from _ticks(control)
        yield from _corrections(control)


def _pools(stats: Stats, steering: SteeringSnapshot) -> Iterator[Metric]:
    a_cells, b_cells = steering.parted(stats.kv_total)
    rows = (
        ("cells", "KV cells of the pool.", a_cells, b_cells),
        ("cells_used", "Of what runs.", stats.a_used, stats.b_used),
        ("cells_predicted", "Of what runs, at its predicted peak.", stats.a_peak, stats.b_peak),
        ("cells_borrowed", "Beyond its own.", max(0, stats.a_used - a_cells), stats.borrowed),
    )
    for name, about, a, b in rows:
        found = GaugeMetricFamily(f"steelyard:pool_{name}", about, labels=["pool"])
        found.add_metric(["a"], a)
        found.add_metric(["b"], b)
        yield found
    evicted = CounterMetricFamily(
        "steelyard:pool_evictions", "Running sequences put back for want of cells.", labels=["pool"]
    )
    evicted.add_metric(["a"], max(0, stats.preemptions - stats.b_evictions))
    evicted.add_metric(["b"], stats.b_evictions)
    yield evicted


def _counters(stats: Stats) -> Iterator[tuple[str, str, float]]:
    overflows = "Times that cells ran out although the predicted peak had fitted."
    yield "steelyard:pool_overflows", overflows, stats.overflows
    yield "steelyard:states_saved", "Sequences put back with their state kept.", stats.saved
    yield "steelyard:states_restored", "States put back instead of computed.", stats.restored


def _chosen(name: str, label: str, values: tuple[str, ...], now: str) -> Metric:
    """1 for the one that holds."""
    found = GaugeMetricFamily(name, "1 for the one in force.", labels=[label])
    for value in values:
        found.add_metric([value], float(value == now))
    return found


def _ticks(control: ControlSnapshot) -> Iterator[Metric]:
    ticker = control.ticker
    yield CounterMetricFamily("steelyard:ticks", "Of the control loop.", ticker.ticks)
    yield CounterMetricFamily(
        "steelyard:tick_overruns", "Deadlines not kept.", ticker.overruns + ticker.skipped
    )
    late = GaugeMetricFamily(
        "steelyard:tick_late_seconds", "Of the newest ticks.", labels=["quantile"]
    )
    late.add_metric(["0.5"], ticker.late_p50_s)
    late.add_metric(["0.99"], ticker.late_p99_s)
    yield late
    yield GaugeMetricFamily("steelyard:tick_cost_seconds", "p99 of the work.", ticker.cost_p99_s)


def _corrections(control: ControlSnapshot) -> Iterator[Metric]:
    """Of the token channels, of which there are few (compensation.MOST_CHANNELS); the board's have
    metrics of their own."""
    ratio = GaugeMetricFamily(
        "steelyard:correction_log_ratio",
        "Lengths are multiplied by exp of this now.",
        labels=["channel"],
    )
    samples = GaugeMetricFamily(
        "steelyard:correction_samples", "Answers in the window.", labels=["channel"]
    )
    steps = CounterMetricFamily(
        "steelyard:correction_steps", "Gradient steps taken.", labels=["channel"]
    )
    for one in control.channels:
        if one.kind == "tokens":
            ratio.add_metric([one.channel], one.correction.filtered)
            samples.add_metric([one.channel], one.correction.n)
            steps.add_metric([one.channel], one.correction.steps)
    yield from (ratio, samples, steps)
    logged = "Corrections in the ledger's log."
    yield CounterMetricFamily("steelyard:corrections_logged", logged, control.logged)
    lost = "Corrections that it could not take."
    yield CounterMetricFamily("steelyard:corrections_unlogged", lost, control.unlogged)
