"""Which box to believe: a CA's file, the machine's CAs, or a certificate the operator confirmed.

A confirmed certificate is kept whole, and TLS itself then accepts that one and no other: the key
is never sent to anything else.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HANDSHAKE_S = 5.0
_END = "-----END CERTIFICATE-----"


class CaFileUnusable(Exception):
    """The file named with --cacert cannot be read or holds no certificate."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The certificate that a box shows, for the operator to confirm."""

    box: str
    """host:port."""
    fingerprint: str
    """SHA-256 in hex, in pairs, as `steelyard tls show` prints it."""
    pem: str
    changed: bool
    """Another one was confirmed for that box before."""


def known_file() -> Path:
    """Where confirmed certificates are remembered."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "steelyard" / "known_boxes.json"


def box_of(url: str) -> str:
    """The host:port that `url` leads to; one that leads nowhere stays what it is."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return url
    return f"{(parts.hostname or '').lower()}:{port}"


class Trust:
    """The TLS side of one console."""

    def __init__(self, url: str, *, ca: str = "", file: Path | None = None) -> None:
        self._box = box_of(url)
        self._ca = ca
        self._file = file or known_file()
        self._here: str | None = None

    def context(self) -> ssl.SSLContext:
        """What to connect with. Raises CaFileUnusable."""
        if self._ca:
            return _of_ca(self._ca)
        pem = self._here or self._known().get(self._box)
        with contextlib.suppress(ssl.SSLError, ValueError):  # a damaged one confirms nothing
            if pem:
                return _of_one(str(pem))
        return ssl.create_default_context()

    async def look(self) -> Shown:
        """The certificate that is shown now; nothing is sent but the handshake. Raises OSError."""
        host, _, port = self._box.rpartition(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        async with asyncio.timeout(HANDSHAKE_S):
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            try:
                der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            finally:
                writer.transport.abort()
        return Shown(
            self._box,
            hashlib.sha256(der).digest().hex(":").upper(),
            ssl.DER_cert_to_PEM_cert(der),
            self._box in self._known(),
        )

    def confirm(self, shown: Shown) -> None:
        """From now on that certificate is believed, in this run even if the file can't be kept.

        Raises OSError if it cannot be remembered."""
        self._here = shown.pem
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps({**self._known(), shown.box: shown.pem}, indent=2)
        fresh = self._file.with_suffix(f".{os.getpid()}")
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(self._file)

    def _known(self) -> dict[str, Any]:
        """What was confirmed before; a file that is damaged confirms nothing."""
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _of_ca(file: str) -> ssl.SSLContext:
    """Believes the CAs in the file; where a server's certificate stands first in it, that one."""
    try:
        context = ssl.create_default_context(cafile=file)
        first, end, _ = Path(file).read_text("ascii", "replace").partition(_END)
        one = _of_one(first + end) if end else context
        return context if one.cert_store_stats()["x509_ca"] else one
    except OSError as error:
        told = f"{file}: {error.strerror or error}"
    raise CaFileUnusable(told)


def _of_one(pem: str) -> ssl.SSLContext:
    """Accepts exactly that certificate, whoever signed it and whatever names it has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem)
    return context
