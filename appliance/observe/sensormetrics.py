"""The machine's sensors as metrics. What is unknown has no sample: no 0, no NaN."""

import time
from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from appliance.observe.hostsensors import HostSensors


class SensorMetrics:
    """A collector. Belongs to the event loop, as the sensors do."""

    def __init__(self, sensors: HostSensors) -> None:
        self._sensors = sensors

    def collect(self) -> Iterator[Metric]:
        now = time.monotonic()
        yield self._power(now)
        yield self._temperatures(now)
        yield self._energy()
        yield self._pending()

    def _power(self, now: float) -> Metric:
        about = "Drawn by all that is measured for energy; no sample: nothing is."
        power = GaugeMetricFamily("steelyard:power_watts", about)
        if (watts := self._sensors.power_w(now)) is not None:
            power.add_metric([], watts)
        return power

    def _temperatures(self, now: float) -> Metric:
        about = "Temperatures that can be read now."
        found = GaugeMetricFamily(
            "steelyard:temperature_celsius", about, labels=["sensor", "source"]
        )
        for one in self._sensors.readings(now):
            if one.unit == "C" and one.quality == "ok" and one.value is not None:
                found.add_metric([one.name, one.source], one.value)
        return found

    def _pending(self) -> Metric:
        about = "Measured while requests run, and nobody's until they end."
        pending = GaugeMetricFamily("steelyard:energy_pending_joules", about)
        if self._sensors.meter.source:
            pending.add_metric([], self._sensors.meter.pending_uj / 1e6)
        return pending

    def _energy(self) -> Metric:
        about = "Measured energy: of requests that have ended, and of nobody."
        found = CounterMetricFamily("steelyard:energy_joules", about, labels=["source", "kind"])
        for (source, kind), uj in sorted(self._sensors.meter.joules.items()):
            found.add_metric([source, kind], uj / 1e6)
        return found
