"""Certificate files and handshakes for tests, without a network."""

import ssl
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from appliance.tls.certificates import Pair, make_ca, make_server

NOW = time.time()
"""What OpenSSL holds certificates against cannot be injected."""
DAY = 86400.0


def write(pair: Pair, folder: Path, name: str, password: bytes | None = None) -> tuple[str, str]:
    """The pair as PEM files; gives their names."""
    folder.mkdir(parents=True, exist_ok=True)
    cert, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    cert.write_bytes(pair.certificate.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        pair.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption(),
        )
    )
    return str(cert), str(key)


def issue(
    folder: Path, name: str, names: Iterable[str], wall: float = NOW, ca: Pair | None = None
) -> tuple[str, str, str]:
    """A certificate for `names`: its file, its key's file, and its CA's."""
    ca = ca or make_ca("elsewhere", wall)
    ca_file, _ = write(ca, folder, f"{name}-ca")
    return (*write(make_server(ca, names, wall), folder, name), ca_file)


def issue_for_client(folder: Path, name: str) -> tuple[str, str, str]:
    """A certificate that a client shows: its file, its key's file, and its CA's."""
    ca = make_ca(name, NOW)
    key = ec.generate_private_key(ec.SECP256R1())
    day = timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(NOW, UTC) - day)
        .not_valid_after(datetime.fromtimestamp(NOW, UTC) + day)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    ca_file, _ = write(ca, folder, f"{name}-ca")
    return (*write(Pair(certificate, key), folder, name), ca_file)


def client_context(ca: str | Path, cert: str = "", key: str = "") -> ssl.SSLContext:
    """A careful client."""
    context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if cert:
        context.load_cert_chain(cert, key)
    return context


class Handshake:
    """A client and a server that talk through memory."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        self.client = client.wrap_bio(to_client, to_server, server_hostname=name)
        waiting = [self.client, self.server]
        while waiting:
            waiting = [side for side in waiting if not _went_on(side)]

    @property
    def subject_names(self) -> list[str]:
        """What the server's certificate is for."""
        found = self.client.getpeercert() or {}
        return [str(entry[1]) for entry in found.get("subjectAltName", ())]


def _went_on(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


P256 = bytes.fromhex("2a8648ce3d030107")
NONE = bytes.fromhex("2a8648ce3d03017f")
"""Of the same length, and no curve at all."""


def _pem(kind: str, der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).replace("CERTIFICATE", kind).encode()


def of_no_curve() -> tuple[bytes, bytes]:
    """A certificate and its key, as they would be on a curve that nobody knows."""
    pair = make_server(make_ca("elsewhere", NOW), ["box.local"], NOW)
    cert = pair.certificate.public_bytes(serialization.Encoding.DER)
    key = pair.key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    assert P256 in cert
    assert P256 in key
    return (
        _pem("CERTIFICATE", cert.replace(P256, NONE)),
        _pem("PRIVATE KEY", key.replace(P256, NONE)),
    )
