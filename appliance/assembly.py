"""From the configuration to the parts of the box."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from appliance.accounting import Accounting
from appliance.accounts.keys import FILE_NAME
from appliance.adapters import adapters_of
from appliance.board.channels import channels_of
from appliance.board.snapshot import BoardSnapshot
from appliance.compensation import Compensation, Write
from appliance.config import Config
from appliance.control.budgets import Forecasting
from appliance.control.correction import ControlSnapshot, Correction
from appliance.control.replay import Entry
from appliance.engine.commands import Load
from appliance.forecast.forecaster import Corrections, Forecaster, Served
from appliance.forecasts import Forecasts
from appliance.ledger import corrections as log
from appliance.ledger.lengths import Past, read_past
from appliance.models import ModelFile
from appliance.prepare.chatml import CHATML
from appliance.prepare.client import Preparer
from appliance.prepare.messages import PrepareLimits
from appliance.snapshot import EngineSnapshot
from appliance.steering import Steering, forecast_error
from appliance.supervisor import Supervisor
from appliance.threads import usable_cores
from appliance.ticker import Ticker
from appliance.watchdog import Policy, Tolerance


def load_of(config: Config, path: Path, journal_dir: Path | None = None) -> Load:
    """The engine's orders, with what the configuration leaves to the box filled in."""
    engine = config.engine
    threads = engine.threads or usable_cores()
    return Load(
        model_path=str(path),
        n_ctx=engine.context,
        max_sequences=engine.max_sequences,
        n_batch=engine.batch,
        n_ubatch=engine.ubatch,
        threads=threads,
        threads_batch=engine.threads_batch or threads,
        n_gpu_layers=engine.gpu_layers,
        flash_attention=engine.flash_attention,
        kv_type=engine.kv_type,
        cached_sequences=engine.cached_sequences,
        draft_tokens=engine.draft_tokens,
        prefill_tokens=engine.prefill_tokens,
        mlock=engine.mlock,
        lora=tuple((adapter.path, adapter.scale) for adapter in config.model.lora),
        journal_dir=str(journal_dir) if journal_dir is not None else "",
    )


def supervisor_of(
    config: Config,
    model: ModelFile,
    journal_dir: Path | None = None,
    before: EngineSnapshot | None = None,
) -> Supervisor:
    """Without `journal_dir` no token is written down: for self-tests. `before`: of the supervisor
    that it follows. Raises BadModel for a LoRA adapter that cannot be used."""
    engine = config.engine
    policy = Policy(
        running=Tolerance(engine.step_timeout_s, engine.memory_growth_mb << 20),
        start_timeout_s=engine.start_timeout_s,
        deaths=engine.restarts,
        window_s=engine.restart_window_s,
        require_gpu=engine.require_gpu,
    )
    load = load_of(config, model.path, journal_dir)
    adapters = adapters_of(config, model)
    load = replace(load, lora=tuple((str(each.path), each.scale) for each in adapters))
    return Supervisor(load, policy, log_level=config.logging.level, before=before)


def preparer_of(config: Config, model: ModelFile) -> Preparer:
    """The prepare process, within the configured limits."""
    limits = config.limits
    return Preparer(
        str(model.path),
        PrepareLimits(
            template_s=limits.template_s,
            grammar_compile_s=limits.grammar_compile_s,
            prepare_s=limits.prepare_s,
            grammar_bytes=limits.grammar_bytes,
            tools=limits.tools,
            context=config.engine.context,
            waiting=limits.queue_requests + config.engine.max_sequences,
        ),
        # The packaged model answers better without the system prompt in its own template.
        model.chat_template or (CHATML if model.packaged else None),
    )


def steering_of(
    config: Config,
    supervisor: Supervisor,
    forecasts: Forecasts,
    control: Callable[[], ControlSnapshot],
) -> Steering:
    """What decides on budgets and order, from what the box sees of itself."""
    forecasts.pressed = lambda: supervisor.queue.waiting > 0
    return Steering(
        config.control,
        engine=lambda: supervisor.snapshot,
        batch=lambda: supervisor.orders.batch,
        starts=lambda: supervisor.orders.starts,
        forecaster=lambda: Forecasting(forecasts.snapshot.state, forecasts.last_nan),
        usual=lambda: forecasts.usual,
        tell=supervisor.orders.steer,
        error=lambda: forecast_error(control()),
    )


REMEMBERED = 4096
"""Final rows of the ledger that the forecaster reads again at start."""


def forecasts_of(
    config: Config,
    model: ModelFile,
    *,
    remembers: bool,
    corrections: Corrections | None = None,
) -> Forecasts:
    """Forecasts as configured. `remembers`: there is a ledger to read."""
    settings, state_dir = config.forecast, config.server.state_dir
    if not settings.enabled:
        return Forecasts()

    def make() -> Forecaster:
        served = Served(model.name, model.sha256, model.path, state_dir)
        return Forecaster.open(
            served,
            providers=settings.providers,
            precision=settings.precision,
            corrections=corrections,
        )

    def past() -> Iterator[Past]:
        return read_past(state_dir / FILE_NAME, model.sha256, REMEMBERED)

    return Forecasts(make, past if remembers else lambda: iter(()))


def compensated(
    config: Config,
    model: ModelFile,
    accounting: Accounting | None,
    board: Callable[[], BoardSnapshot],
) -> tuple[Forecasts, Compensation]:
    """Forecasts, and the control loop's part that corrects them."""

    def corrections(version: str, route: str) -> Correction:
        return compensation.correction(version, route)

    forecasts = forecasts_of(
        config, model, remembers=accounting is not None, corrections=corrections
    )
    compensation = Compensation(
        model.name,
        forecaster=lambda: forecasts.snapshot,
        write=_log_of(accounting) if accounting is not None else None,
        sensors=lambda: channels_of(board()),
    )
    forecasts.on_length, forecasts.on_flights = compensation.observe, compensation.running
    return forecasts, compensation


def _log_of(accounting: Accounting) -> Write:
    def write(entries: Sequence[Entry]) -> "Future[int]":
        return accounting.ledger.run(partial(log.add, entries=entries, wall_ns=time.time_ns()))

    return write


def ticker_of(compensation: Compensation, steering: Steering) -> Ticker:
    """The control loop: windows and corrections first, then what follows from them."""
    return Ticker(work=[("corrections", compensation.tick), ("steering", steering.tick)])


BEHIND = 5
"""Niceness of the engine where the control loop cannot be ahead of all else."""


def begin_ticking(ticker: Ticker, supervisor: Supervisor) -> None:
    """Before the engine starts."""
    if ticker.start() != "rr":
        supervisor.niceness = BEHIND
        ticker.niced()
