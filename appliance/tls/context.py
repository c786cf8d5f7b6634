"""What TLS the box speaks: 1.2 and 1.3, with forward secrecy and authenticated ciphers only."""

import ssl
from pathlib import Path

from appliance.tls.errors import TlsError

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; all of 1.3's are fine."""


def make_context(cert: Path, key: Path, client_ca: str, *, required: bool) -> ssl.SSLContext:
    """A server's context. Raises TlsError for files that OpenSSL refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:  # ssl.SSLError is one
        raise TlsError(f"{cert} with {key} cannot be used: {error.strerror or error}") from None
    if client_ca:
        _ask_for_certificates(context, client_ca, required)
    return context


def _ask_for_certificates(context: ssl.SSLContext, client_ca: str, required: bool) -> None:
    try:
        context.load_verify_locations(client_ca)
    except OSError as error:
        raise TlsError(
            f"tls.client_ca: {client_ca} cannot be used as a PEM file of CAs: "
            f"{error.strerror or error}"
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
