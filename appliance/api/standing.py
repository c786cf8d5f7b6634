"""The frame `state`: what changes seldom. Set-up, settings, the model, the chain, long jobs."""

from collections.abc import Sequence
from datetime import date

from appliance.accounts.keys import Key
from appliance.api.box import Box
from appliance.api.info import LOW_DISK_BYTES
from appliance.api.live import named
from appliance.api.sensing import board_of, sensors_of
from appliance.api.sources import Sources
from appliance.config import Config, is_loopback
from appliance.config.load import sections, settings
from appliance.config.show import toml
from appliance.forecast.told import ForecasterSnapshot
from appliance.frames import Chain, Forecaster, Job, Model, Process, State, Step
from appliance.observe.conditions import (
    DISK_LOW,
    EXPORT_DAYS,
    TICK_LATE_MS,
    TICK_OVERRUN_PCT,
    TLS_DAYS,
)
from appliance.snapshot import ModelSwitch

UNTOLD = frozenset({"tls.key", "ledger.redact"})
"""Settings that are nobody's business: where the private key lies, what must not be stored."""

Band = tuple[float | None, float | None]


def state_of(
    box: Box,
    now: Sources,
    *,
    settings: dict[str, str],
    jobs: Sequence[Job] = (),
    bad_row: int | None = None,
) -> State:
    """The frame of this moment."""
    return State(
        alarms=now.alarms,
        jobs=tuple(jobs),
        chain=chain_of(box, now, bad_row),
        setup=setup_of(box, now, box.keys.today()),
        bands=bands_of(box.config, now),
        model=model_of(box, now),
        process=Process(
            up_s=round(now.slow.engine_up_s),
            rss_mb=round(now.engine.rss_bytes / 2**20, 1),
            restarts=now.engine.restarts,
            last_failure=now.engine.last_failure,
        ),
        settings=settings,
        sensors=sensors_of(now.measured.readings, now.board),
        forecaster=forecaster_of(now.forecaster),
        board=board_of(now.board),
    )


def forecaster_of(now: ForecasterSnapshot) -> Forecaster:
    """How the forecaster does. Times are None before there are any."""
    encode, answer = now.encode_ms, now.answer_ms
    return Forecaster(
        version=now.version,
        state=now.state,
        provider=now.provider,
        precision=now.precision,
        encoder=now.encoder,
        skill=now.skill,
        coverage_pct=round(100 * now.coverage, 1) if now.coverage is not None else None,
        pinball_tok=round(now.pinball, 2) if now.pinball is not None else None,
        bias=round(now.bias, 4) if now.observed else None,
        encode_p50_ms=encode[0] if now.answered else None,
        encode_p99_ms=encode[1] if now.answered else None,
        answer_p50_ms=answer[0] if now.answered else None,
        answer_p99_ms=answer[1] if now.answered else None,
        answered=now.answered,
        observed=now.observed,
        failed=now.failed,
        neighbours=now.neighbours,
        problem=now.problem or now.degraded,
    )


def chain_of(box: Box, now: Sources, bad_row: int | None) -> Chain:
    """How the ledger stands, and three counts of completion tokens since the box started that
    must be equal whenever nothing runs."""
    ledger, pulse = now.ledger, box.metrics.pulse
    age = now.now - ledger.last_commit_at
    return Chain(
        rows=ledger.rows,
        seals=ledger.seals,
        bad_row=bad_row,
        age_ms=round(age * 1000) if ledger.last_commit_at else None,
        export_ms=now.kept.export_ms,
        tok_ledger=pulse.tokens_ledger if ledger.recording else None,
        tok_engine=now.engine.stats.predicted_tokens,
        tok_sent=pulse.tokens_sent,
        head=ledger.head,
        signer=now.kept.signer,
        ok=now.chain_ok,
    )


def bands_of(config: Config, now: Sources) -> dict[str, Band]:
    """Where a number should be, by its name in `live` without the unit's ending."""
    total = now.slow.disk_total
    return {
        "ttft_p99": (None, 2000.0),  # longer, and a chat seems not to answer
        "itl_p99": (None, 250.0),  # slower than people read: four words a second
        "e2e_p99": (None, 30_000.0),  # where clients' own time-outs begin
        "waiting": (None, config.limits.queue_requests / 2),  # beyond it: OVERLOAD
        "kv_a": (None, 85.0),  # fuller, and requests wait for cells, not for steps
        "kv_b": (None, 85.0),
        "tick_late_p99": (None, TICK_LATE_MS),
        "tick_overrun": (None, TICK_OVERRUN_PCT),
        "step": (None, 250.0),  # what ITL is made of
        "step_age": (None, config.engine.step_timeout_s * 500),  # half way to being killed
        "restarts_5min": (None, float(config.engine.restarts)),  # then the box gives up
        "refused": (None, 1.0),
        "failed": (None, 1.0),
        "disk_free": (round(total * DISK_LOW / 1e9, 2) if total else None, None),
        "tls": (TLS_DAYS, None),
        "export": (None, EXPORT_DAYS),  # days since the last one
        "coverage": (85.0, 95.0),  # of 90 % bounds: outside, they are not what they say
    }


def model_of(box: Box, now: Sources) -> Model:
    config, ready = box.config.engine, now.engine.ready
    return Model(
        name=box.model.name,
        sha256=box.model.sha256,
        template=box.books.identity.template_sha256,
        build=f"steelyard {box.version}, llama.cpp {box.llama_commit or 'unknown'}",
        kv=config.kv_type,
        ctx_tok=box.n_ctx,
        seqs=config.max_sequences,
        layers_asked=ready.layers_asked if ready is not None else max(config.gpu_layers, 0),
        layers_got=ready.layers_offloaded if ready is not None else 0,
    )


def switch_jobs(now: ModelSwitch) -> tuple[Job, ...]:
    """The switch to another model, while one runs; bytes, where those are known."""
    if now.phase == "none":
        return ()
    return (Job(kind="model", phase=now.phase, done=now.done, total=now.total or None),)


def settings_of(config: Config) -> dict[str, str]:
    """What is in effect, `section.key` to TOML; never a secret."""
    known = settings()
    return {
        key: toml(getattr(getattr(config, name), known[key][1].name))
        for name, _ in sections()
        for key in known
        if key.startswith(f"{name}.") and key not in UNTOLD
    }


# -- the set-up list -----------------------------------------------------------------------------


def setup_of(box: Box, now: Sources, today: date) -> tuple[Step, ...]:
    """What makes a box fit for others than its own machine, step by step."""
    return (
        _engine(now),
        Step(step="model", state="ok", detail=f"{box.model.name}, {box.model.sha256[:12]}"),
        _admin_key(now.slow.keys, today),
        _app_key(now.slow.keys, today),
        _ledger(now),
        _network(box.config),
        _tls(box, now),
        _board(now),
        _forecaster(now.forecaster),
    )


def _forecaster(now: ForecasterSnapshot) -> Step:
    """The global one serves too, and calibrating gives a better one."""
    if now.state == "off":
        return Step(step="forecaster", state="skip", detail="off: forecast.enabled = false")
    if not now.version:
        why = "none for this model: steelyard calibrate makes one"
        return Step(step="forecaster", state="skip", detail=why)
    state = "ok" if now.state == "ok" else "todo"
    return Step(step="forecaster", state=state, detail=named(now))


def _board(now: Sources) -> Step:
    board, energy = now.board, now.measured.energy_from
    if board.state == "none":
        return Step(step="board", state="skip", detail=f"none; {energy}" if energy else "none")
    kind = "simulated, " if board.simulated else ""
    detail = f"{kind}{board.state}, firmware {board.firmware or '?'}"
    if board.trouble:
        return Step(step="board", state="todo", detail=board.trouble)
    return Step(step="board", state="ok" if board.present else "wait", detail=detail)


def _engine(now: Sources) -> Step:
    ready = now.engine.ready
    if now.engine.state != "ready" or ready is None:
        return Step(step="engine", state="wait", detail=now.engine.last_failure or "loading")
    return Step(step="engine", state="ok", detail=f"decodes, loaded in {ready.load_seconds:.1f} s")


def _admin_key(keys: Sequence[Key], today: date) -> Step:
    live = [key for key in keys if "admin" in key.scopes and key.live(today)]
    if not live:
        return Step(step="admin_key", state="todo", detail="none: steelyard keys create --scope")
    longest = max(live, key=lambda key: key.expires or date.max)
    return Step(step="admin_key", state="ok", detail=_named(longest, today))


def _app_key(keys: Sequence[Key], today: date) -> Step:
    live = [key for key in keys if "infer" in key.scopes and key.live(today)]
    if not live:
        return Step(step="app_key", state="todo", detail="none: only this machine may ask")
    more = f" and {len(live) - 1} more" if len(live) > 1 else ""
    return Step(step="app_key", state="ok", detail=f"{_named(live[0], today)}{more}")


def _named(key: Key, today: date) -> str:
    left = "" if key.expires is None else f", {(key.expires - today).days} days left"
    return f"{key.name}{left}"


def _ledger(now: Sources) -> Step:
    if not now.ledger.recording:
        return Step(step="ledger", state="todo", detail="off: nothing is counted")
    if not now.ledger.ok:
        return Step(step="ledger", state="todo", detail=now.ledger.problem)
    free, total = now.slow.disk_free, now.slow.disk_total
    if free is not None and total and free < max(LOW_DISK_BYTES, DISK_LOW * total):
        detail = f"{_size(free)} of {_size(total)} are free: make room"
        return Step(step="ledger", state="todo", detail=detail)
    room = f", {_size(free)} free" if free is not None else ""
    return Step(step="ledger", state="ok", detail=f"commit {now.ledger.commit_ms:.0f} ms{room}")


def _size(size: int) -> str:
    """`56 MB`, `5.1 GB`, `41 GB`."""
    if size < 1e9:
        return f"{size / 1e6:.0f} MB"
    return f"{size / 1e9:.{int(size < 1e10)}f} GB".replace(".0 ", " ")


def _network(config: Config) -> Step:
    where = f"{config.server.host}:{config.server.port}"
    if is_loopback(config.server.host):
        return Step(step="network", state="todo", detail=f"{where} only: set server.host")
    return Step(step="network", state="ok", detail=where)


def _tls(box: Box, now: Sources) -> Step:
    if now.slow.tls_days is not None:
        good = box.tls is None or not box.tls.problem(now.wall_ms / 1000)
        detail = f"{now.slow.tls_days:.0f} days left"
        return Step(step="tls", state="ok" if good else "todo", detail=detail)
    if is_loopback(box.config.server.host):
        return Step(step="tls", state="wait", detail="waits for network")
    return Step(step="tls", state="todo", detail="off: keys and texts cross the network in clear")
