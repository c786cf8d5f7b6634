"""Whom a client of ours believes on TLS: a CA, or one certificate, the box's very own, whatever
name the box is called by."""

import ssl
from pathlib import Path

_END = "-----END CERTIFICATE-----"


def of_file(file: str) -> ssl.SSLContext:
    """Believes the CAs in the file; where a server's certificate stands first in it, that one.
    Empty: the machine's CAs. Raises OSError where it cannot be read."""
    if not file:
        return ssl.create_default_context()
    context = of_first(Path(file))
    if not context.cert_store_stats()["x509_ca"]:
        return context
    return ssl.create_default_context(cafile=file)


def of_first(file: Path) -> ssl.SSLContext:
    """Believes the first certificate of the file, which is the server's, and no other: those after
    it have signed for others, too. Raises OSError where it cannot be read."""
    text = file.read_text("ascii", "replace")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=text[: text.index(_END) + len(_END)])
    except ValueError:
        raise ssl.SSLError(f"{file} holds no certificate") from None
    return context
