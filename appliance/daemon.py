"""The daemon: builds the box, serves until told to stop, stops in stages.

Stages of a stop: nothing new is admitted; what runs may end within `server.drain_s`; what is left
gets an error event; then the sockets close and the children end. A second signal skips the wait.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
import uvloop

from appliance import __version__, assembly, buildinfo
from appliance.accounting import Accounting, Unrecorded
from appliance.accounts.cost import Costing, PrefillPace, Rates
from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.accounts.usage import quotas_of
from appliance.admission import Admission
from appliance.alone import CannotServe, only_daemon
from appliance.api.app import create_app
from appliance.api.box import Box
from appliance.api.protocol import bounded
from appliance.banner import banner, base_url
from appliance.board.duty import Duty
from appliance.board.reader import BoardReader
from appliance.board.service import BoardService
from appliance.board.simulated import simulated
from appliance.config import Config, is_loopback
from appliance.control.correction import ControlSnapshot
from appliance.errors import Unavailable
from appliance.ledger.books import Books, Identity, boot_id, texts_of
from appliance.ledger.entry import Energy
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import RequestRow
from appliance.listener import listen
from appliance.models import ModelFile, check
from appliance.observe import logs
from appliance.observe.hostsensors import HostSensors, readers_of_machine
from appliance.observe.metrics import Metrics
from appliance.observe.readings import Reader
from appliance.prepare.client import PrepareError
from appliance.sdnotify import notify
from appliance.supervisor import EngineCannotStart
from appliance.tls import TlsError, TlsState, in_clear, tls_on
from appliance.trim import be_frugal

_log = logging.getLogger(__name__)

FAILED = 1
GAVE_UP = 70
"""The engine cannot be kept alive: non-zero, so that systemd restarts the daemon."""
_DRAIN_STEP_S = 0.05
_CLOSE_S = 5.0
_FORECASTER_S = 10.0
"""Seconds that the box waits for its forecaster once the engine is ready."""
SAME_SIGNAL_S = 0.5


def serve(config: Config, *, simulate_board: bool = False) -> int:
    """Runs the box until SIGTERM, SIGINT or the engine's end; returns the exit status. Raises
    BadModel and KeysError before anything is started."""
    be_frugal()
    stop_logs = logs.configure(config.logging)
    try:
        state_dir = config.server.state_dir
        with only_daemon(state_dir), simulated(simulate_board, state_dir) as device:
            model = check(config)
            return uvloop.run(Daemon(config, model, device).run())
    except (CannotServe, EngineCannotStart, LedgerError, PrepareError, TlsError) as error:
        _log.critical("cannot serve: %s", error)
        return FAILED
    finally:
        stop_logs()


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: the daemon stops in stages."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Daemon:
    """One run of the box. Belongs to one event loop."""

    def __init__(self, config: Config, model: ModelFile, board_device: str = "") -> None:
        """`board_device`: the line of a simulated board, in place of the configured one."""
        self._config = config
        self._model = model
        self._keys = KeyStore(config.server.state_dir / FILE_NAME)
        self._tls = TlsState(config) if tls_on(config) else None
        self._watching: asyncio.Task[None] | None = None
        self._build = buildinfo.installed()
        self._accounting = self._open_accounting()
        journal_dir = self._accounting.journal_dir if self._accounting is not None else None
        self._supervisor = assembly.supervisor_of(config, model, journal_dir)
        self._preparer = assembly.preparer_of(config, model)
        self._admission = Admission(
            self._supervisor,
            max_requests=config.limits.queue_requests,
            max_tokens=config.limits.queue_tokens,
            max_running=config.engine.max_sequences,
        )
        self._books: Books | None = None
        readers: tuple[Reader, ...] = readers_of_machine() if config.sensors.enabled else ()
        self._board = BoardService(
            config.board,
            device=board_device,
            simulated=bool(board_device),
            restart_s=config.engine.start_timeout_s,
            engine=lambda: self._supervisor.snapshot,
            slow=self._slow,
        )
        if self._board.snapshot.device:
            readers = (*readers, BoardReader(lambda: self._board.snapshot))
        self._sensors = HostSensors(readers, poll_s=config.sensors.poll_s)
        self._forecasts, self._compensation = assembly.compensated(
            config, model, self._accounting, lambda: self._board.snapshot
        )
        self._steering = assembly.steering_of(
            config, self._supervisor, self._forecasts, self._compensation.tokens
        )
        self._ticker = assembly.ticker_of(self._compensation, self._steering)
        self._signals = 0
        self._last_signal = -math.inf
        self._told = asyncio.Event()
        self._gave_up = False
        self._end_feed: Callable[[], None] = lambda: None
        """Consoles listen until they are told that the box stops."""

    async def run(self) -> int:
        """Startup, main loop, shutdown."""
        listener = listen(self._config)
        try:
            if not await self._start_children():
                return 0
            if self._accounting is not None:
                self._accounting.keep(lambda: self._supervisor.snapshot.pid)
            server, serving = await self._start_http(listener)
            self._sensors.start(self._load)
            self._start_board()
            await self._announce(listener)
            if self._tls is not None:
                self._watching = asyncio.create_task(self._tls.watch(), name="tls")
            await self._until_told(serving)
            await self._drain()
            self._end_feed()
            server.should_exit = True
            await serving
        finally:
            listener.close()
            self._sensors.stop()
            await asyncio.to_thread(self._board.stop)
            await asyncio.to_thread(self._ticker.stop)
            await self._forecasts.close()
            if self._watching is not None:
                self._watching.cancel()
            await self._preparer.stop()
            await self._supervisor.stop()
            await self._close_accounts()
        return GAVE_UP if self._gave_up else 0

    # -- startup ---------------------------------------------------------------------------------

    def _open_accounting(self) -> Accounting | None:
        """None when it is switched off, which only measurements should do. Raises LedgerError."""
        if os.environ.get("STEELYARD_LEDGER") == "off":
            _log.warning("the ledger is off (STEELYARD_LEDGER=off): nothing is counted")
            return None
        return Accounting(self._config.server.state_dir, self._config.ledger, self._identity(""))

    def _identity(self, template: str) -> Identity:
        return Identity(
            model=self._model.name,
            model_sha256=self._model.sha256,
            template_sha256=hashlib.sha256(template.encode()).hexdigest(),
            build=f"{__version__} llama.cpp {self._build.llama_commit}",
            boot_id=boot_id(),
        )

    async def _start_children(self) -> bool:
        """False when told to stop before they were ready: a large model takes minutes."""
        self._take_signals()
        self._forecasts.start()
        self._steering.start(asyncio.get_running_loop())
        assembly.begin_ticking(self._ticker, self._supervisor)
        self._supervisor.on_give_up = self._on_give_up
        starting = asyncio.gather(
            self._supervisor.start(), self._preparer.start(), return_exceptions=True
        )
        if await self._until_told(starting):
            for failure in starting.result():
                if failure is not None:
                    raise failure  # the engine's first: it knows best what is wrong with a model
            if not await self._forecasts.opened(_FORECASTER_S):
                _log.warning("the forecaster opens slowly: till it is there, estimates are rough")
            return True
        _log.warning("told to stop before the box was ready")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False

    async def _start_http(
        self, listener: socket.socket
    ) -> tuple[uvicorn.Server, asyncio.Task[None]]:
        app = create_app(self._box())
        self._end_feed = app.state.feed.end
        calibrating = app.state.feed.watch.calibrating
        calibrating.url, calibrating.cacert = self._address(listener)
        server = _Server(
            uvicorn.Config(
                app,
                http=bounded(self._config.limits, self._tls.context if self._tls else None),
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

    def _address(self, listener: socket.socket) -> tuple[str, str]:
        """Where we can be asked, and the file that proves it is us."""
        host, port = self._config.server.host, listener.getsockname()[1]
        if self._tls is None:
            return base_url(host, port), ""
        return base_url(self._tls.name_for(host), port, tls=True), str(self._tls.ca or "")

    def _box(self) -> Box:
        build = self._build
        ledger = self._accounting.ledger if self._accounting is not None else Unrecorded()
        template = self._preparer.snapshot().chat_template
        self._books = Books(
            ledger,
            self._identity(template),
            costing=Costing(Rates.of(self._config.cost), PrefillPace()),
            texts=texts_of(self._config.ledger),
            energy=self._energy,
        )
        metrics = Metrics(
            version=__version__,
            llama_commit=build.llama_commit,
            model=self._model.name,
            engine=lambda: self._supervisor.snapshot,
            queue=lambda: self._supervisor.queue,
            currency=self._config.cost.currency,
            ledger=lambda: ledger.snapshot,
            certificate_s=self._tls.seconds_left if self._tls else None,
            sensors=self._sensors,
            forecasts=self._forecasts,
            steering=lambda: self._steering.snapshot,
            control=self._control,
        )
        return Box(
            config=self._config,
            keys=self._keys,
            preparer=self._preparer,
            supervisor=self._supervisor,
            admission=self._admission,
            model=self._model,
            metrics=metrics,
            ledger=ledger,
            books=self._books,
            tls=self._tls,
            sensors=self._sensors,
            board=lambda: self._board.snapshot,
            board_keeper=self._board,
            forecasts=self._forecasts,
            steering=lambda: self._steering.snapshot,
            control=self._control,
            quotas=quotas_of(self._keys.path),
            started_at=time.time(),
            version=__version__,
            llama_commit=build.llama_commit,
        )

    def _slow(self, on: bool) -> None:
        """On the board's thread."""
        self._loop.call_soon_threadsafe(self._supervisor.slow, on)

    def _start_board(self) -> None:
        """Its duty begins when there is something to watch."""
        ledger = self._accounting.ledger if self._accounting is not None else Unrecorded()
        duty = Duty(self._admission, note=ledger.act, stop=self._told.set)
        self._loop = asyncio.get_running_loop()
        self._board.start(
            lambda told: self._loop.call_soon_threadsafe(duty.hear, told),
            lambda progress: self._loop.call_soon_threadsafe(duty.updated, progress),
        )

    def _control(self) -> ControlSnapshot:
        """The control loop's channels and its ticker."""
        return self._compensation.snapshot(self._ticker.snapshot, time.monotonic())

    def _load(self) -> tuple[int, bool]:
        """For the sensors: device time so far, and whether requests run."""
        stats, queue = self._supervisor.snapshot.stats, self._supervisor.queue
        return round(stats.compute_seconds * 1e9), queue.running > 0

    def _energy(self, row: RequestRow) -> Energy:
        """What a request drew that ends now."""
        return self._sensors.meter.claim(
            device_ns=row.prefill_ns + row.decode_ns,
            started=row.started_ns / 1e9,
            now=time.monotonic(),
        )

    async def _announce(self, listener: socket.socket) -> None:
        """Ready: the first admin key is made only now, so that a failed start cannot lose it."""
        host = self._config.server.host
        secret = await asyncio.to_thread(self._keys.create_first)
        open_box = self._config.auth.loopback_open and is_loopback(host) and self._keys.empty
        tls, warning = self._tls, in_clear(self._config)
        url, _ = self._address(listener)
        ca, name = tls.ca if tls else None, self._model.name
        print(
            banner(url, secret, name, key_needed=not open_box, ca=ca, warning=warning), flush=True
        )
        if warning:
            _log.warning("%s", warning)
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

    async def _close_accounts(self) -> None:
        """After the engine: its last words are in."""
        if self._books is not None:
            self._books.close()
        if self._accounting is not None:
            await self._accounting.close()

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
