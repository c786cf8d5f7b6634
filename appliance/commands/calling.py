"""A connection to a box from the command line, and what it means when there is none.

It goes straight to the box: a proxy of the environment, or whoever a redirect names, would be shown
the key.
"""

import http.client
import socket
import ssl
from urllib.parse import SplitResult, urlsplit


class Unheard(Exception):
    """Nothing was heard of the box. `key` and `told` are of the console's catalogue (words_link.py,
    words_status.py)."""

    refused = False

    def __init__(self, key: str, *told: str) -> None:
        super().__init__(key, *told)
        self.key = key
        self.told = told


class Refused(Unheard):
    """The key is missing, wrong, expired, or lacks a scope."""

    refused = True


def address(url: str) -> SplitResult:
    """The parts of a box's URL. Raises Unheard where it is none."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise Unheard("link.url", url)
    return parts


def authorization(key: str) -> dict[str, str]:
    """The header that shows the key; none for an empty one. Raises Refused where it is no key."""
    if not (key.isascii() and key.isprintable()):
        raise Refused("status.bad_key")
    return {"Authorization": f"Bearer {key}"} if key else {}


def connect(
    parts: SplitResult, cacert: str, url: str, timeout_s: float
) -> http.client.HTTPConnection:
    """To the box at `url`, and to no proxy. `cacert` may be empty. Raises Unheard."""
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    from tui.trust import CaFileUnusable, Trust

    try:
        context = Trust(url, ca=cacert).context()
    except CaFileUnusable as error:
        raise Unheard("link.ca", str(error)) from None
    return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)


def unheard(error: Exception, url: str) -> Unheard:
    """What a broken connection means."""
    text = str(error).strip() or type(error).__name__
    match error:
        case ssl.SSLCertVerificationError():
            return Unheard("status.certificate", error.verify_message or text)
        case ssl.SSLError() if "WRONG_VERSION" in text or "HTTP_REQUEST" in text:
            return Unheard("link.clear", url)
        case ssl.SSLError():
            return Unheard("link.tls", url, text)
        case socket.gaierror():
            return Unheard("link.name", url)
        case ConnectionRefusedError():
            return Unheard("link.refused", url)
        case TimeoutError():
            return Unheard("link.timeout", url)
        case http.client.HTTPException():
            return Unheard("link.no_http", url)
        case UnicodeError():
            return Unheard("link.url", url)
    return Unheard("link.failed", url, text)
