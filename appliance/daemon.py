"""The daemon: builds the box, serves until told to stop, stops in stages.

Stages of a stop: nothing new is admitted; what runs may end within `server.drain_s`; what is left
gets an error event; then the sockets close and the children end. A second signal skips the wait.
"""

import asyncio
import contextlib
import fcntl
import logging
import math
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from appliance import __version__, buildinfo
from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.admission import Admission
from appliance.api.app import create_app
from appliance.api.box import Box
from appliance.api.protocol import bounded
from appliance.banner import banner, base_url
from appliance.config import Config, is_loopback
from appliance.engine.messages import Load
from appliance.errors import Unavailable
from appliance.models import ModelFile, check
from appliance.observe import logs
from appliance.observe.metrics import Metrics
from appliance.prepare.client import PrepareError, Preparer
from appliance.prepare.messages import PrepareLimits
from appliance.prepare.template import CHATML
from appliance.sdnotify import notify
from appliance.supervisor import EngineCannotStart, Policy, Supervisor
from appliance.threads import usable_cores
from appliance.watchdog import Tolerance

_log = logging.getLogger(__name__)

FAILED = 1
GAVE_UP = 70
"""The engine cannot be kept alive: non-zero, so that systemd restarts the daemon."""
_DRAIN_STEP_S = 0.05
_CLOSE_S = 5.0
SAME_SIGNAL_S = 0.5


class CannotServe(Exception):
    """The daemon cannot start; the message is for the operator."""


def serve(config: Config) -> int:
    """Runs the box until SIGTERM, SIGINT or the engine's end; returns the exit status. Raises
    BadModel and KeysError before anything is started."""
    config.server.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    stop_logs = logs.configure(config.logging)
    try:
        with _only_daemon(config.server.state_dir):
            model = check(config)
            return uvloop.run(Daemon(config, model).run())
    except (CannotServe, EngineCannotStart, PrepareError) as error:
        _log.critical("cannot serve: %s", error)
        return FAILED
    finally:
        stop_logs()


def selftest(config: Config) -> int:
    """Loads the model in a child and proves one decode; prints what came of it."""
    config.server.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    model = check(config)
    return asyncio.run(_selftest(config, model))


async def _selftest(config: Config, model: ModelFile) -> int:
    supervisor = _supervisor(config, model)
    try:
        await supervisor.start()
    except EngineCannotStart as error:
        print(f"failed: {error}")
        return FAILED
    ready = supervisor.snapshot.ready
    await supervisor.stop()
    assert ready is not None
    print(
        f"ok: {model.name} ({ready.model_desc}) loaded and decoded in {ready.load_seconds:.1f} s, "
        f"{ready.layers_offloaded} of {ready.n_layers} layers on a GPU"
    )
    for reason in ready.degraded:
        print(f"degraded: {reason}")
    return 0


@contextlib.contextmanager
def _only_daemon(state_dir: Path) -> Iterator[None]:
    """Two daemons on one state directory would both write its files."""
    with open(state_dir / "daemon.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotServe(
                f"another steelyard serve uses {state_dir}: stop it, or give this one its own "
                "server.state_dir"
            ) from None
        yield


def load_of(config: Config, path: Path) -> Load:
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
    )


def _supervisor(config: Config, model: ModelFile) -> Supervisor:
    engine = config.engine
    policy = Policy(
        running=Tolerance(engine.step_timeout_s, engine.memory_growth_mb << 20),
        start_timeout_s=engine.start_timeout_s,
        deaths=engine.restarts,
        window_s=engine.restart_window_s,
        require_gpu=engine.require_gpu,
    )
    return Supervisor(load_of(config, model.path), policy, log_level=config.logging.level)


def _preparer(config: Config, model: ModelFile) -> Preparer:
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


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: the daemon stops in stages."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Daemon:
    """One run of the box. Belongs to one event loop."""

    def __init__(self, config: Config, model: ModelFile) -> None:
        self._config = config
        self._model = model
        self._keys = KeyStore(config.server.state_dir / FILE_NAME)
        self._supervisor = _supervisor(config, model)
        self._preparer = _preparer(config, model)
        self._admission = Admission(
            self._supervisor,
            max_requests=config.limits.queue_requests,
            max_tokens=config.limits.queue_tokens,
            max_running=config.engine.max_sequences,
        )
        self._signals = 0
        self._last_signal = -math.inf
        self._told = asyncio.Event()
        self._gave_up = False

    async def run(self) -> int:
        """Startup, main loop, shutdown."""
        listener = self._listen()
        try:
            if not await self._start_children():
                return 0
            server, serving = await self._start_http(listener)
            await self._announce(listener)
            await self._until_told(serving)
            await self._drain()
            server.should_exit = True
            await serving
        finally:
            listener.close()
            await self._preparer.stop()
            await self._supervisor.stop()
        return GAVE_UP if self._gave_up else 0

    # -- startup ---------------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        server = self._config.server
        host = server.host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, server.port))
        except OSError as error:
            listener.close()
            raise CannotServe(
                f"cannot listen on {server.host}:{server.port}: {error.strerror}. Stop what "
                "listens there, or set server.port"
            ) from None
        return listener

    async def _start_children(self) -> bool:
        """False when told to stop before they were ready: a large model takes minutes."""
        self._take_signals()
        self._supervisor.on_give_up = self._on_give_up
        starting = asyncio.gather(
            self._supervisor.start(), self._preparer.start(), return_exceptions=True
        )
        if await self._until_told(starting):
            for failure in starting.result():
                if failure is not None:
                    raise failure  # the engine's first: it knows best what is wrong with a model
            return True
        _log.warning("told to stop before the box was ready")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False

    async def _start_http(
        self, listener: socket.socket
    ) -> tuple[uvicorn.Server, asyncio.Task[None]]:
        server = _Server(
            uvicorn.Config(
                create_app(self._box()),
                http=bounded(self._config.limits.header_bytes),
                loop="none",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=2048,
                timeout_graceful_shutdown=int(_CLOSE_S),
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if serving.done():
            await serving
            raise CannotServe("the HTTP server did not start: see the log above")
        return server, serving

    def _box(self) -> Box:
        build = buildinfo.installed()
        metrics = Metrics(
            version=__version__,
            llama_commit=build.llama_commit,
            model=self._model.name,
            engine=lambda: self._supervisor.snapshot,
            queue=lambda: self._supervisor.queue,
        )
        return Box(
            config=self._config,
            keys=self._keys,
            preparer=self._preparer,
            supervisor=self._supervisor,
            admission=self._admission,
            model=self._model,
            metrics=metrics,
            started_at=time.time(),
            version=__version__,
            llama_commit=build.llama_commit,
        )

    async def _announce(self, listener: socket.socket) -> None:
        """Ready: the first admin key is made only now, so that a failed start cannot lose it."""
        host, port = self._config.server.host, listener.getsockname()[1]
        secret = await asyncio.to_thread(self._keys.create_first)
        open_box = self._config.auth.loopback_open and is_loopback(host) and self._keys.empty
        url = base_url(host, port)
        print(banner(url, secret, self._model.name, key_needed=not open_box), flush=True)
        notify(f"READY=1\nSTATUS=serving {self._model.name} at {url}")
        _log.info("ready: serving %s at %s", self._model.name, url)

    # -- main loop -------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        """The second signal forces; one that follows at once is the first, told twice (`make`
        passes on what the whole group was sent)."""
        now = time.monotonic()
        if now - self._last_signal >= SAME_SIGNAL_S:
            self._signals += 1
            self._last_signal = now
        self._told.set()

    def _on_give_up(self, reason: str) -> None:
        self._gave_up = True
        self._told.set()

    async def _until_told(self, doing: asyncio.Future[Any]) -> bool:
        """Waits until told to stop. True when `doing` ended first; raises what it raised."""
        told = asyncio.create_task(self._told.wait())
        await asyncio.wait([told, doing], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if doing.done():
            await doing
        return doing.done()

    # -- shutdown --------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """What runs may end; then, or at a second signal, the rest gets an error."""
        self._admission.drain(True)
        open_requests = len(self._supervisor.tickets)
        limit = self._config.server.drain_s
        notify(f"STOPPING=1\nSTATUS=draining {open_requests} requests")
        if open_requests:
            _log.info("draining %d requests for at most %g s", open_requests, limit)
        give_up_at = time.monotonic() + limit
        while self._supervisor.tickets and self._signals < 2 and time.monotonic() < give_up_at:
            await asyncio.sleep(_DRAIN_STEP_S)
        left = len(self._supervisor.tickets)
        if left:
            _log.warning("ending %d requests that did not finish in time", left)
        self._supervisor.fail_all(
            Unavailable("the box is shutting down", retry_after=30, code="shutting_down")
        )
