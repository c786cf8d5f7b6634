"""Looks at the box for its consoles: counters ten times a second while one listens, everything else
once a second, always, so that alarms and the past are there whoever looks.

Belongs to the event loop; what the ledger's file must be asked is read on a thread.
"""

import asyncio
import logging
import os
import platform
import sqlite3
import time
from collections import deque
from pathlib import Path

from appliance.accounts.keys import FILE_NAME, Key, KeysError
from appliance.api.box import Box
from appliance.api.calibrating import Calibrating
from appliance.api.console_shapes import Past
from appliance.api.facts import facts_of, waiting_by_key
from appliance.api.forecastpast import read_judged
from appliance.api.info import degraded, readiness
from appliance.api.kept import read_kept
from appliance.api.live import live_of
from appliance.api.rows import rows_of
from appliance.api.sources import Kept, Measured, Slow, Sources, Speeds
from appliance.api.standing import settings_of, switch_jobs
from appliance.api.standing import state_of as standing_of
from appliance.api.verifying import Verifying
from appliance.frames import Live, Rows, State
from appliance.ledger.errors import LedgerError
from appliance.observe.alarms import Alarms
from appliance.observe.conditions import Facts, conditions
from appliance.observe.window import WINDOW_S, Meter

log = logging.getLogger(__name__)

PAST_S = 900
"""Fifteen minutes, one look a second."""
PAST = (
    "out_tok_s", "prefill_tok_s", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms",
    "e2e_p50_ms", "e2e_p99_ms", "running", "waiting", "kv_a_pct", "kv_b_pct", "prefix_hit_pct",
    "step_ms", "refused_min", "failed_min", "temp_c", "power_w",
)  # fmt: skip
"""The numbers of `live` that are kept."""
_SPEED_S = 5.0
"""Of tokens per second: over a whole minute, a plot of the last minute would be flat."""
_RESTARTS_S = 300.0
_KEYS_S = 5.0
_SPREAD_S = 0.5
"""How often percentiles are worked out: their windows hardly move faster."""


class Watch:
    """What is known of the box, one owner of it all."""

    def __init__(self, box: Box) -> None:
        self.alarms = Alarms()
        self.verifying = Verifying(box.config.server.state_dir / FILE_NAME)
        self.calibrating = Calibrating(box.config, box.model.sha256, box.forecasts.reload)
        self.boot_id = f"{box.books.identity.boot_id[:8]}-{int(box.started_at * 1000):x}"
        self._box = box
        self._host = platform.node()
        self._settings = settings_of(box.config)
        self._out, self._prefill = Meter(_SPEED_S), Meter(_SPEED_S)
        self._computed, self._cached = Meter(WINDOW_S, 0.5), Meter(WINDOW_S, 0.5)
        self._restarts = Meter(_RESTARTS_S, 0.5)
        self._energy, self._made = Meter(WINDOW_S, 0.5), Meter(WINDOW_S, 0.5)
        self._ticks, self._overruns = Meter(WINDOW_S, 0.5), Meter(WINDOW_S, 0.5)
        self._speeds = Speeds()
        self._spread_at = 0.0
        self._slow = Slow()
        self._keys_at = 0.0
        self._engine: tuple[int, float] = (0, 0.0)
        """The engine's process, and since when it is that one."""
        self._kept = Kept()
        self._shown = self.alarms.active()
        self._seq = 0
        self._past: deque[tuple[int, Live]] = deque(maxlen=PAST_S)
        self._recalled: tuple[str, int] = ("", 0)
        """The model whose forecasts were looked up in the ledger, and since when it was in."""
        box.metrics.pulse.forecasts.serves(box.model.sha256, time.time_ns())

    def serves(self, box: Box) -> None:
        """Another model is in: its box is looked at from now on."""
        self._box, self._settings = box, settings_of(box.config)
        self.calibrating.serves(box.model.sha256, box.forecasts.reload)
        box.metrics.pulse.forecasts.serves(box.model.sha256, time.time_ns())

    # -- frames ----------------------------------------------------------------------------------

    def live(self, now: float, wall: float) -> Live:
        """The frame of now."""
        self._see(now)
        return live_of(self.sources(now, wall))

    def number(self) -> None:
        """The next `live` is another one: all that are told the same have the same number."""
        self._seq += 1

    def rows(self, now: float, wall: float) -> Rows:
        return rows_of(self._box, self._slow.keys, now, wall)

    def state(self, now: float, wall: float) -> State:
        return standing_of(
            self._box,
            self.sources(now, wall),
            settings=self._settings,
            jobs=(
                *self.verifying.jobs,
                *self.calibrating.jobs,
                *switch_jobs(self._box.switch.state),
            ),
            bad_row=self.verifying.now.bad_row,
        )

    def past(self) -> Past:
        """The last fifteen minutes."""
        lives = [live for _, live in self._past]
        values = {name: [getattr(live, name) for live in lives] for name in PAST}
        return Past(every_ms=1000, last_ms=lives[-1].at_ms if lives else 0, values=values)

    def sources(self, now: float, wall: float) -> Sources:
        """This moment."""
        box = self._box
        return Sources(
            now=now,
            wall_ms=int(wall * 1000),
            seq=self._seq,
            boot_id=self.boot_id,
            host=self._host,
            version=box.version,
            currency=box.config.cost.currency,
            engine=box.supervisor.snapshot,
            queue=box.supervisor.queue,
            queue_most=box.config.limits.queue_requests,
            ledger=box.ledger.snapshot,
            draining=box.admission.draining or box.switch.state.away,
            switching=box.switch.state.away,
            slow=self._slow,
            kept=self._kept,
            speeds=self._speeds,
            measured=self._measured(now),
            steering=box.steering(),
            control=box.control(),
            board=box.board(),
            forecaster=box.forecasts.snapshot,
            alarms=self._shown,
            verified=self.verifying.ok,
        )

    # -- looking ---------------------------------------------------------------------------------

    def look(self, now: float, wall: float) -> None:
        """Once a second: what is slow to find out, alarms, the past."""
        self._look_slow(now)
        if self._box.switch.state.phase == "none":
            self.calibrating.look(wall)
        live = self.live(now, wall)
        self._shown = self.alarms.update(conditions(self._facts(now, wall)), now, int(wall * 1000))
        self._past.append((live.at_ms, live))

    def changed(self) -> None:
        """An operator has seen or snoozed an alarm."""
        self._shown = self.alarms.active()

    async def read(self) -> None:
        """What the ledger's file says. A failure leaves what was known."""
        if not self._box.ledger.snapshot.recording:
            return
        path = self._box.config.server.state_dir / FILE_NAME
        try:
            self._kept = await asyncio.to_thread(read_kept, path)
            await self._recall(path)
        except (LedgerError, sqlite3.Error) as error:
            log.debug("the ledger could not be asked for the console: %s", error)

    async def _recall(self, path: Path) -> None:
        """What came of forecasts before this start: once."""
        history = self._box.metrics.pulse.forecasts
        of = history.model, history.since_ns
        if of != self._recalled:
            found = await asyncio.to_thread(read_judged, path, *of)
            if of == (history.model, history.since_ns):  # another may have come in meanwhile
                self._recalled = of
                for one in found:
                    history.add(one)

    def _facts(self, now: float, wall: float) -> Facts:
        box = self._box
        waiting = waiting_by_key(box.supervisor.tickets.values())
        bad_row = self.verifying.now.bad_row
        return facts_of(self.sources(now, wall), box.config, box.keys.today(), waiting, bad_row)

    def _see(self, now: float) -> None:
        """The counters as they stand."""
        engine, pulse = self._box.supervisor.snapshot, self._box.metrics.pulse
        stats = engine.stats
        self._out.see(stats.predicted_tokens, now)
        self._prefill.see(stats.prompt_tokens, now)
        self._computed.see(stats.prompt_tokens, now)
        self._cached.see(stats.cached_tokens, now)
        self._restarts.see(engine.restarts, now)
        self._energy.see(self._box.sensors.meter.computing_uj, now)
        self._made.see(stats.predicted_tokens, now)
        ticker = self._box.control().ticker
        self._ticks.see(ticker.ticks + ticker.skipped, now)
        self._overruns.see(ticker.overruns + ticker.skipped, now)
        fresh = now - self._spread_at >= _SPREAD_S
        if fresh:
            self._spread_at = now
        last, span = self._speeds, min(WINDOW_S, max(1.0, time.time() - self._box.started_at))
        self._speeds = Speeds(
            out_tok_s=self._out.per_s(),
            prefill_tok_s=self._prefill.per_s(),
            prefix_hit_pct=self._hits(),
            restarts_5min=int(self._restarts.gain()),
            ttft=_percentiles(pulse.ttft.quantiles(_SHARES, now)) if fresh else last.ttft,
            between=_percentiles(pulse.between.quantiles(_SHARES, now)) if fresh else last.between,
            latency=_percentiles(pulse.latency.quantiles(_SHARES, now)) if fresh else last.latency,
            refused_min=pulse.refused.count(now),
            queue_full_min=pulse.queue_full.count(now),
            failed_min=pulse.failed.count(now),
            overrun_pct=self._overrun_pct(),
            ended_s=pulse.ended.count(now) / span,
        )

    def _measured(self, now: float) -> Measured:
        sensors, tokens, uj = self._box.sensors, self._made.gain(), self._energy.gain()
        power_w = sensors.power_w(now)
        known = power_w is not None and tokens > 0 and uj > 0
        return Measured(
            power_w=power_w,
            temp_c=sensors.temp_c(now),
            j_per_tok=float(f"{uj / 1e6 / tokens:.3g}") if known else None,
            readings=sensors.readings(now),
            too_hot=sensors.too_hot(now),
            energy_from=sensors.energy_from() if self._box.config.sensors.enabled else "",
        )

    def _overrun_pct(self) -> float | None:
        ticks = self._ticks.gain()
        return round(100 * self._overruns.gain() / ticks, 3) if ticks else None

    def _hits(self) -> float | None:
        cached = self._cached.gain()
        total = cached + self._computed.gain()
        return 100 * cached / total if total > 0 else None

    def _look_slow(self, now: float) -> None:
        box, keys = self._box, self._slow.keys
        if now - self._keys_at >= _KEYS_S or not keys:
            self._keys_at, keys = now, _keys(box)
        pid = box.supervisor.snapshot.pid
        if pid != self._engine[0]:
            self._engine = pid, now
        free, total = _disk(box.config.server.state_dir)
        self._slow = Slow(
            ready=readiness(box)[0],
            degraded=tuple(degraded(box)),
            disk_free=free,
            disk_total=total,
            tls_days=box.tls.days_left(time.time()) if box.tls is not None else None,
            keys=keys,
            engine_up_s=now - self._engine[1],
        )


_SHARES = (0.5, 0.99)


def _percentiles(found: list[float | None]) -> tuple[float | None, float | None]:
    low, high = (round(value, 2) if value is not None else None for value in found)
    return low, high


def _keys(box: Box) -> tuple[Key, ...]:
    try:
        return box.keys.list()
    except KeysError:
        return ()


def _disk(path: Path) -> tuple[int | None, int | None]:
    """Free bytes and all."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None, None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
