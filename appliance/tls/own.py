"""The box's own CA and server certificate, as files in `state_dir/tls`.

The daemon and the command line write here, so each holds a lock, and files are replaced whole. The
key of a pair is written before its certificate: a certificate that is there is complete.
"""

import logging
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from appliance import durable
from appliance.tls.certificates import (
    Pair,
    due,
    make_ca,
    make_server,
    missing_names,
    names_of,
)
from appliance.tls.errors import TlsError
from appliance.tls.files import locked, make_folder

log = logging.getLogger(__name__)


class OwnCertificates:
    """Keeps a CA and a server certificate in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = folder / "ca.pem"
        self.ca_key = folder / "ca-key.pem"
        self.cert = folder / "server.pem"
        self.key = folder / "server-key.pem"

    def ensure(self, names: Sequence[str], wall: float, *, renew: bool = False) -> None:
        """Makes what is missing, about to end or for other names; with `renew` a new server
        certificate in any case. Raises TlsError."""
        try:
            make_folder(self._folder)
            with self.locked():
                self._ensure(names, wall, renew)
        except OSError as error:
            raise TlsError(
                f"certificates cannot be written to {self._folder}: {error.strerror}. Make room "
                "there and let the daemon's user write, or set tls.cert and tls.key"
            ) from None

    def locked(self) -> AbstractContextManager[None]:
        """Keeps others from writing here."""
        return locked(self._folder / "lock")

    def load_ca(self) -> x509.Certificate | None:
        """The CA's certificate, if there is one. Raises TlsError."""
        try:
            return _certificate(self.ca)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TlsError(f"{self.ca} cannot be read: {error.strerror}") from None
        except ValueError:
            raise TlsError(f"{self.ca} is damaged. {_ADVICE}") from None

    def _ensure(self, names: Sequence[str], wall: float, renew: bool) -> None:
        ca = self._usable_ca(wall)
        why = "asked for" if renew else self._why_new(ca, names, wall)
        if why:
            self._write(make_server(ca, names, wall), self.cert, self.key)
            log.info("made a server certificate for %s (%s)", ", ".join(names), why)

    def _usable_ca(self, wall: float) -> Pair:
        if not self.ca.exists():
            return self._new_ca(wall)
        ca = self._read(self.ca, self.ca_key)
        why = due(ca.certificate, wall)
        if not why:
            return ca
        log.warning("the box's CA cannot be used any more: %s", why)
        return self._former_ca(wall) or self._new_ca(wall)

    def _former_ca(self, wall: float) -> Pair | None:
        """The one before, if that is good now: the clock was wrong when it was replaced."""
        cert, key = _former(self.ca), _former(self.ca_key)
        if not cert.exists() or due((pair := self._read(cert, key)).certificate, wall):
            return None
        log.warning("the CA that was there before is good, so it is used again")
        self._write_ca(pair)
        return pair

    def _new_ca(self, wall: float) -> Pair:
        if self.ca.exists():
            self._write(self._read(self.ca, self.ca_key), _former(self.ca), _former(self.ca_key))
            log.warning("a new CA is made: clients need it (`steelyard tls export-ca`)")
        ca = make_ca(socket.gethostname(), wall)
        self._write_ca(ca)
        return ca

    def _why_new(self, ca: Pair, names: Sequence[str], wall: float) -> str:
        if not self.cert.exists():
            return "there was none"
        try:
            server = self._read(self.cert, self.key).certificate
            server.verify_directly_issued_by(ca.certificate)
        except TlsError:
            return "the one there was damaged"
        except (ValueError, TypeError, InvalidSignature):
            return "another CA had signed the one there"
        missing = missing_names(server, names)
        return f"not for {', '.join(missing)}" if missing else due(server, wall)

    def _read(self, cert: Path, key: Path) -> Pair:
        try:
            certificate = _certificate(cert)
            certificate.public_key(), names_of(certificate)  # read only when asked for
            private = serialization.load_pem_private_key(key.read_bytes(), None)
        except OSError as error:
            raise TlsError(f"{error.filename}: {error.strerror}. {_ADVICE}") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise TlsError(f"{cert} or {key} is damaged. {_ADVICE}") from None
        if isinstance(private, ec.EllipticCurvePrivateKey) and (
            private.public_key() == certificate.public_key()
        ):
            return Pair(certificate, private)
        raise TlsError(f"{cert} and {key} do not belong together. {_ADVICE}")

    def _write_ca(self, pair: Pair) -> None:
        # Where it ends half-way there is no CA, rather than one whose key is another's.
        self.ca.unlink(missing_ok=True)
        self._write(pair, self.ca, self.ca_key)

    def _write(self, pair: Pair, cert: Path, key: Path) -> None:
        private = pair.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        public = pair.certificate.public_bytes(serialization.Encoding.PEM)
        durable.replace(key, private, 0o600, give=True)
        durable.replace(cert, public, 0o644, give=True)


_ADVICE = (
    "Restore the folder from a copy; or move it away, and a new CA is made, which clients then need"
)


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _former(path: Path) -> Path:
    return path.with_name(f"former-{path.name}")
