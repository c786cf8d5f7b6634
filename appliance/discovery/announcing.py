"""The thread that keeps the box announced. Nothing of the box waits for it or fails with it."""

import contextlib
import logging
import os
import random
import selectors
import threading
import time
from collections.abc import Callable

from appliance.config import Config, is_loopback
from appliance.discovery.errors import BadPacket
from appliance.discovery.links import PORT, Link, Network, networks
from appliance.discovery.service import Service, service_of
from appliance.discovery.speaker import Speaker
from appliance.discovery.wire import MOST_BYTES, decode

log = logging.getLogger(__name__)

_LOOK_S = 15.0
"""Between two looks at the machine's addresses."""
_BURST = 64
"""Packets of one network that are read before the others have their turn."""
_STOP_S = 2.0


class Announcing:
    """`start` it when the box answers, `stop` it before it no longer does. Both may be called where
    nothing is to be announced."""

    def __init__(
        self,
        config: Config,
        version: str,
        *,
        find: Callable[[str], tuple[Network, ...]] = networks,
        link: Callable[[Network], Link] = Link,
    ) -> None:
        self._config, self._version = config, version
        self._find, self._link = find, link
        self._links: dict[Network, tuple[Link, Speaker]] = {}
        self._unusable: set[Network] = set()
        self._alone = False
        """No network is there."""
        self._wake = -1
        """Written to, it ends the thread."""
        self._thread: threading.Thread | None = None

    def start(self, port: int, *, tls: bool) -> None:
        """`port` is where the box listens."""
        host = self._config.server.host
        if not self._config.discovery.mdns or is_loopback(host):
            return
        service = service_of(self._config, port=port, tls=tls, version=self._version)
        woken, self._wake = os.pipe()
        self._thread = threading.Thread(
            target=self._run, args=(service, woken), name="discovery", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Says goodbye. Blocks for a moment."""
        if self._thread is not None:
            os.close(self._wake)
            self._thread.join(_STOP_S)
            self._thread = None

    # -- the thread ------------------------------------------------------------------------------

    def _run(self, service: Service, woken: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._selector.register(woken, selectors.EVENT_READ)
        try:
            self._serve(service)
        except Exception:  # a thread's top: the box goes on unannounced
            log.exception("the box is no longer announced on the network, by a fault of Steelyard")
        finally:
            for network in tuple(self._links):
                self._leave(network)
            self._selector.close()
            os.close(woken)

    def _serve(self, service: Service) -> None:
        look_at = 0.0
        while True:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_S
                self._follow(service, now)
            for network, (link, speaker) in tuple(self._links.items()):
                self._tell(network, link, speaker.due(now))
            wakes = [speaker.wake_at for _, speaker in self._links.values()]
            until = min([look_at, *(at for at in wakes if at is not None)])
            for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
                if key.data is None:
                    return
                self._hear(key.data)

    def _follow(self, service: Service, now: float) -> None:
        """Networks come and go."""
        host = self._config.server.host
        there = self._find(host.strip("[]"))
        for network in tuple(self._links):
            if network not in there:
                self._leave(network)
        self._unusable &= set(there)
        if not there and not self._alone:
            log.warning("the box is not announced: no network has an address of %s now", host)
        self._alone = not there
        for network in there:
            if network not in self._links and network not in self._unusable:
                self._join(network, service, now, [at for one in there for at in one.told])

    def _join(self, network: Network, service: Service, now: float, ours: list[str]) -> None:
        try:
            link = self._link(network)
        except OSError as error:
            self._unusable.add(network)
            log.warning(
                "the box is not announced on the network of %s: UDP port %d cannot be used (%s)",
                network.address,
                PORT,
                error.strerror,
            )
            return
        speaker = Speaker(service, network.told, now, random.random, ours)
        self._links[network] = (link, speaker)
        self._selector.register(link.socket, selectors.EVENT_READ, network)
        log.info("announced on the network of %s as %r", network.address, service.label)

    def _leave(self, network: Network) -> None:
        link, speaker = self._links.pop(network)
        self._selector.unregister(link.socket)
        if packet := speaker.goodbye():
            with contextlib.suppress(OSError):
                link.tell(packet)
        link.close()

    def _tell(self, network: Network, link: Link, packets: list[bytes]) -> None:
        try:
            for packet in packets:
                link.tell(packet)
        except OSError as error:  # its address may be gone: the next look will tell
            log.debug("nothing could be told on %s: %s", network.address, error)

    def _hear(self, network: Network) -> None:
        link, speaker = self._links[network]
        for _ in range(_BURST):
            try:
                data, sender = link.socket.recvfrom(MOST_BYTES + 1)
            except OSError:
                return
            if not network.near(sender[0]):
                continue
            with contextlib.suppress(BadPacket, OSError):
                legacy = sender[1] != PORT
                answer = speaker.hear(time.monotonic(), decode(data), legacy=legacy)
                if answer is not None:
                    link.reply(answer, sender)
