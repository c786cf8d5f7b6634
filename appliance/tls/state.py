"""What TLS serves now. A new certificate or client CA takes effect for new connections, without a
restart: the context is replaced whole. What cannot be used leaves the old one in place."""

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from appliance.config import WILDCARDS, Config
from appliance.tls.certificates import DAY, covers, days_left, fingerprint, names_of, normal
from appliance.tls.context import make_context
from appliance.tls.errors import TlsError
from appliance.tls.given import read_given
from appliance.tls.names import wanted_names
from appliance.tls.own import OwnCertificates

log = logging.getLogger(__name__)

FOLDER = "tls"
LOOK_S = 5.0
"""How often files are looked at for changes, and certificates for their end."""
WARN_DAYS = 21
"""The box renews its own at 30; then the operator must do something."""

_Signature = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Serving:
    """A certificate in use."""

    context: ssl.SSLContext
    certificate: x509.Certificate
    signature: _Signature


class TlsState:
    """The certificate in use and what keeps it fresh. `refresh` may run in a thread; all else reads
    one reference."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Callable[[], float] = time.time,
        names: Callable[[Config], Sequence[str]] = wanted_names,
    ) -> None:
        """Makes what is missing. Raises TlsError."""
        self._config = config
        self._clock = clock
        self._names = names
        self._trouble = ""
        given = config.tls.cert
        self.own = None if given else OwnCertificates(config.server.state_dir / FOLDER)
        self._cert = self.own.cert if self.own else Path(given)
        self._key = self.own.key if self.own else Path(config.tls.key)
        self._make()
        self._serving = self._load()
        log.info("TLS: %s", self._told())

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._serving.context

    @property
    def certificate(self) -> x509.Certificate:
        return self._serving.certificate

    @property
    def ca(self) -> Path | None:
        """The CA certificate that clients need; None with certificates from the configuration."""
        return self.own.ca if self.own else None

    def days_left(self, wall: float) -> float:
        """Until the certificate ends."""
        return days_left(self.certificate, wall)

    def seconds_left(self) -> float:
        return self.days_left(self._clock()) * DAY

    def problem(self, wall: float) -> str:
        """Why the certificate in use will not do for long, or is not the one in the files; empty
        when all is well."""
        if self._trouble:
            return self._trouble
        left = self.days_left(wall)
        if left >= WARN_DAYS:
            return ""
        ends = f"the certificate ends in {left:.0f} days" if left >= 0 else "it has ended"
        return f"{ends}: replace {self._cert}"

    def name_for(self, host: str) -> str:
        """A name for `host` that a client on this machine finds in the certificate."""
        host = WILDCARDS.get(normal(host), normal(host))
        names = names_of(self.certificate)
        if covers({normal(name) for name in names}, host):
            return host
        return next((name for name in names if not name.startswith("*")), host)

    # -- keeping it fresh ------------------------------------------------------------------------

    async def watch(self) -> None:
        """Refreshes for ever; not even a bug of ours may end it, years before it is noticed."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await asyncio.to_thread(self.refresh)
            except Exception:
                log.exception("TLS: looking after the certificate failed by a bug of ours")

    def refresh(self) -> None:
        """Renews and reads again what needs it. A failure is logged, and nothing changes."""
        try:
            self._make()
            if self._signature() != self._serving.signature:
                self._serving = self._load()
                log.info("TLS: new connections get %s", self._told())
            self._trouble = ""
        except TlsError as error:
            if str(error) != self._trouble:
                log.error("TLS: %s. The certificate that was in use stays so", error)
            self._trouble = str(error)

    def _make(self) -> None:
        if self.own:
            self.own.ensure(self._names(self._config), self._clock())

    def _load(self) -> Serving:
        try:
            with self.own.locked() if self.own else contextlib.nullcontext():
                return self._read()
        except OSError as error:
            raise TlsError(f"{error.filename}: {error.strerror}") from None

    def _read(self) -> Serving:
        tls = self._config.tls
        signature = self._signature()  # first: what changes meanwhile is read again
        names = tls.names if self.own is None else ()
        certificate = read_given(str(self._cert), str(self._key), names, self._clock())
        required = tls.client_auth == "required"
        context = make_context(self._cert, self._key, tls.client_ca, required=required)
        return Serving(context, certificate, signature)

    def _signature(self) -> _Signature:
        """Changes when one of the files does."""
        files = [self._cert, self._key]
        if self._config.tls.client_ca:
            files.append(Path(self._config.tls.client_ca))
        return tuple(map(_stat, files))

    def _told(self) -> str:
        found = self.certificate
        return (
            f"a certificate for {', '.join(names_of(found)) or 'no name'}, good until "
            f"{found.not_valid_after_utc:%Y-%m-%d}, SHA-256 {fingerprint(found)}"
        )


def _stat(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)
