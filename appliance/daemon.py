"""The daemon: builds the box, serves until told to stop, stops in stages. What belongs to one model
is a service (service.py), which may be exchanged meanwhile (switching.py).

Stages of a stop: nothing new is admitted; what runs may end within `server.drain_s`; what is left
gets an error event; then the sockets close and the children end. A second signal skips the wait.
"""

import asyncio
import dataclasses
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import uvloop
from fastapi import FastAPI

from appliance import __version__, buildinfo, durable
from appliance.accounting import Accounting, Unrecorded
from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.accounts.usage import quotas_of
from appliance.admission import Admission
from appliance.alone import CannotServe, only_daemon
from appliance.api.app import create_app, put_in
from appliance.api.box import Box
from appliance.api.spans import Tell, telling
from appliance.backup import BackupError, finish
from appliance.banner import banner, base_url
from appliance.board.duty import Duty
from appliance.board.reader import BoardReader
from appliance.board.service import BoardService
from appliance.board.simulated import simulated
from appliance.config import Config, is_loopback
from appliance.discovery import Announcing
from appliance.errors import shutting_down
from appliance.ledger.entry import Energy
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import RequestRow
from appliance.listener import listen
from appliance.models import ModelFile, check
from appliance.observe import logs
from appliance.observe.hostsensors import HostSensors, readers_of_machine
from appliance.observe.metrics import Metrics
from appliance.observe.readings import Reader
from appliance.observe.tracing import spans_of
from appliance.prepare.client import PrepareError
from appliance.sdnotify import notify
from appliance.seat import Seat
from appliance.service import Around, Service, identity_of
from appliance.serving import start_http
from appliance.stage import BoxStage
from appliance.supervisor import EngineCannotStart
from appliance.switching import Switch
from appliance.tls import TlsError, TlsState, in_clear, tls_on
from appliance.trim import be_frugal
from appliance.watchdogfeed import WatchdogFeed, ask_for_start

log = logging.getLogger(__name__)

FAILED = 1
GAVE_UP = 70
"""The engine cannot be kept alive: non-zero, so that systemd restarts the daemon."""
SAME_SIGNAL_S = 0.5


def serve(config: Config, *, simulate_board: bool = False) -> int:
    """Runs the box until SIGTERM, SIGINT or the engine's end; returns the exit status. Raises
    BadModel and KeysError before anything is started."""
    be_frugal()
    stop_logs = logs.configure(config.logging)
    try:
        state_dir = config.server.state_dir
        with only_daemon(state_dir), simulated(simulate_board, state_dir) as device:
            finish(state_dir)
            durable.sweep(state_dir)
            model = check(config)
            return uvloop.run(Daemon(config, model, device).run())
    except (
        BackupError,
        CannotServe,
        EngineCannotStart,
        LedgerError,
        PrepareError,
        TlsError,
    ) as error:
        log.critical("cannot serve: %s", error)
        return FAILED
    finally:
        stop_logs()


class Daemon:
    """One run of the box. Belongs to one event loop."""

    def __init__(self, config: Config, model: ModelFile, board_device: str = "") -> None:
        """`board_device`: the line of a simulated board, in place of the configured one."""
        self._config = config
        self._keys = KeyStore(config.server.state_dir / FILE_NAME)
        self._tls = TlsState(config) if tls_on(config) else None
        self._watching: asyncio.Task[None] | None = None
        self._llama_commit = buildinfo.installed().llama_commit
        self._accounting = self._open_accounting(model)
        self._ledger = self._accounting.ledger if self._accounting is not None else Unrecorded()
        self._board = BoardService(
            config.board,
            device=board_device,
            simulated=bool(board_device),
            restart_s=config.engine.start_timeout_s,
            engine=lambda: self._seat.snapshot,
            slow=self._slow,
        )
        readers: tuple[Reader, ...] = readers_of_machine() if config.sensors.enabled else ()
        if self._board.snapshot.device:
            readers = (*readers, BoardReader(lambda: self._board.snapshot))
        self._sensors = HostSensors(readers, poll_s=config.sensors.poll_s)
        around = Around(
            config=config,
            llama_commit=self._llama_commit,
            accounting=self._accounting,
            ledger=self._ledger,
            board=lambda: self._board.snapshot,
            energy=self._energy,
            give_up=self._on_give_up,
        )
        self._seat = Seat(around, model)
        self._switch = Switch(BoxStage(around, self._seat, self._board))
        self._admission = Admission(
            self._seat,
            max_requests=config.limits.queue_requests,
            max_tokens=config.limits.queue_tokens,
            max_running=config.engine.max_sequences,
            closed=self._switch.refusal,
        )
        self._announcing = Announcing(config, __version__)
        self._spans = spans_of(config.traces, __version__)
        self._watchdog_feed = WatchdogFeed(config, lambda: self._seat.snapshot)
        self._signals = 0
        self._last_signal = -math.inf
        self._told = asyncio.Event()
        self._gave_up = False
        self._end_feed: Callable[[], None] = lambda: None
        """Consoles listen until they are told that the box stops."""

    async def run(self) -> int:
        """Startup, main loop, shutdown."""
        ask_for_start(self._config)
        listener = listen(self._config)
        try:
            if not await self._start_service():
                return 0
            if self._accounting is not None:
                self._accounting.keep(lambda: self._seat.snapshot.pid)
            app = self._app(listener)
            server, serving = await start_http(app, self._config, self._tls, listener)
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
            await asyncio.to_thread(self._announcing.stop)
            listener.close()
            await self._watchdog_feed.stop()
            await self._switch.close()
            self._sensors.stop()
            await asyncio.to_thread(self._board.stop)
            if self._spans is not None:
                await asyncio.to_thread(self._spans.stop)
            if self._watching is not None:
                self._watching.cancel()
            await self._seat.service.stop()
            if self._accounting is not None:
                await self._accounting.close()
        return GAVE_UP if self._gave_up else 0

    # -- startup ---------------------------------------------------------------------------------

    def _open_accounting(self, model: ModelFile) -> Accounting | None:
        """None when it is switched off, which only measurements should do. Raises LedgerError."""
        if os.environ.get("STEELYARD_LEDGER") == "off":
            log.warning("the ledger is off (STEELYARD_LEDGER=off): nothing is counted")
            return None
        identity = identity_of(model, self._llama_commit)
        return Accounting(self._config.server.state_dir, self._config.ledger, identity)

    async def _start_service(self) -> bool:
        """False when told to stop before it was ready: a large model takes minutes."""
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)
        starting = asyncio.create_task(self._seat.service.start(), name="start")
        if await self._until_told(starting):
            return True
        log.warning("told to stop before the box was ready")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False

    def _app(self, listener: socket.socket) -> FastAPI:
        app = create_app(self._box())
        self._end_feed = app.state.feed.end
        calibrating = app.state.feed.watch.calibrating
        calibrating.url, calibrating.cacert = self._address(listener)

        def changed(service: Service) -> None:
            former: Box = app.state.box
            former.metrics.serves(service.model.name, service.forecasts)
            put_in(app, dataclasses.replace(former, **_parts(service)))

        self._seat.on_change = changed
        return app

    def _address(self, listener: socket.socket) -> tuple[str, str]:
        """Where we can be asked, and the file that proves it is us."""
        host, port = self._config.server.host, listener.getsockname()[1]
        if self._tls is None:
            return base_url(host, port), ""
        return base_url(self._tls.name_for(host), port, tls=True), str(self._tls.ca or "")

    def _box(self) -> Box:
        service = self._seat.service
        metrics = Metrics(
            version=__version__,
            llama_commit=self._llama_commit,
            model=service.model.name,
            engine=lambda: self._seat.snapshot,
            queue=lambda: self._seat.queue,
            currency=self._config.cost.currency,
            ledger=lambda: self._ledger.snapshot,
            certificate_s=self._tls.seconds_left if self._tls else None,
            sensors=self._sensors,
            forecasts=service.forecasts,
            steering=lambda: self._seat.service.steering,
            control=lambda: self._seat.service.control,
        )
        return Box(
            keys=self._keys,
            tell=self._telling(metrics),
            admission=self._admission,
            metrics=metrics,
            ledger=self._ledger,
            tls=self._tls,
            sensors=self._sensors,
            board=lambda: self._board.snapshot,
            board_keeper=self._board,
            switch=self._switch,
            quotas=quotas_of(self._keys.path),
            started_at=time.time(),
            version=__version__,
            llama_commit=self._llama_commit,
            **_parts(service),
        )

    def _telling(self, metrics: Metrics) -> Tell | None:
        if self._spans is None:
            return None
        metrics.add(self._spans)
        return telling(self._spans.put, names=self._config.traces.names)

    def _slow(self, on: bool) -> None:
        """On the board's thread."""
        self._loop.call_soon_threadsafe(lambda: self._seat.service.supervisor.slow(on))

    def _start_board(self) -> None:
        """Its duty begins when there is something to watch."""
        duty = Duty(self._admission, note=self._ledger.act, stop=self._told.set)
        self._board.start(
            lambda told: self._loop.call_soon_threadsafe(duty.hear, told),
            lambda progress: self._loop.call_soon_threadsafe(duty.updated, progress),
        )

    def _load(self) -> tuple[int, bool]:
        """For the sensors: device time so far, and whether requests run."""
        return round(self._seat.snapshot.stats.compute_seconds * 1e9), self._seat.queue.running > 0

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
        ca, name = tls.ca if tls else None, self._seat.model.name
        print(
            banner(url, secret, name, key_needed=not open_box, ca=ca, warning=warning), flush=True
        )
        if warning:
            log.warning("%s", warning)
        self._watchdog_feed.start()
        notify(f"READY=1\nSTATUS=serving {name} at {url}")
        log.info("ready: serving %s at %s", name, url)
        self._announcing.start(listener.getsockname()[1], tls=tls is not None)

    # -- main loop -------------------------------------------------------------------------------

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
        limit, open_requests = self._config.server.drain_s, len(self._seat.tickets)
        notify(f"STOPPING=1\nSTATUS=draining {open_requests} requests")
        await self._switch.close()
        service = self._seat.service
        if open_requests:
            log.info("draining %d requests for at most %g s", open_requests, limit)
        left = await service.drain(limit, lambda: self._signals >= 2)
        if left:
            log.warning("ending %d requests that did not finish in time", left)
        service.supervisor.fail_all(shutting_down(retry_after=30))


def _parts(service: Service) -> dict[str, Any]:
    """What of the box belongs to one model."""
    return {
        "config": service.config,
        "model": service.model,
        "supervisor": service.supervisor,
        "preparer": service.preparer,
        "books": service.books,
        "adapters": service.adapters,
        "forecasts": service.forecasts,
        "steering": lambda: service.steering,
        "control": lambda: service.control,
    }
