"""Frames of `GET /events`, read with the standard library alone so that `status` starts at once."""

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from appliance.frames import Frame, decode

if TYPE_CHECKING:
    from tui.sse import Event

TIMEOUT_S = 5.0
"""Without a frame for so long, the box is lost."""
_MOST_ERROR = 65536
_KNOWN = ("live", "rows", "state")


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


def listen(
    url: str, key: str, cacert: str, query: str, timeout_s: float = TIMEOUT_S
) -> Iterator[Frame]:
    """The frames as they come, until the box ends the answer. Raises Unheard."""
    parts = _parts(url)
    if not (key.isascii() and key.isprintable()):
        raise Refused("status.bad_key")
    try:
        with closing(_connection(parts, cacert, url, timeout_s)) as connection:
            yield from _frames(connection, parts, key, query, url)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise _unheard(error, url) from None


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise Unheard("link.url", url)
    return parts


def _connection(
    parts: SplitResult, cacert: str, url: str, timeout_s: float
) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    from tui.trust import CaFileUnusable, Trust

    try:
        context = Trust(url, ca=cacert).context()
    except CaFileUnusable as error:
        raise Unheard("link.ca", str(error)) from None
    return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)


def _frames(
    connection: http.client.HTTPConnection, parts: SplitResult, key: str, query: str, url: str
) -> Iterator[Frame]:
    from tui.sse import Events, TooLarge

    headers = {"Accept": "text/event-stream"} | ({"Authorization": f"Bearer {key}"} if key else {})
    connection.request("GET", f"{parts.path.rstrip('/')}/events?{query}", headers=headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise _said(answer.status, answer.read(_MOST_ERROR), url)
    if "text/event-stream" not in answer.headers.get("Content-Type", ""):
        raise Unheard("link.other", url)
    events = Events()
    while piece := answer.read1(65536):
        try:
            yield from (_frame(event) for event in events.feed(piece) if event.name in _KNOWN)
        except TooLarge:
            raise Unheard("link.other", url) from None


def _frame(event: "Event") -> Frame:
    try:
        return decode.decode(event.data)
    except msgspec.MsgspecError as error:
        raise Unheard("link.schema", str(error)) from None


def _said(status: int, body: bytes, url: str) -> Unheard:
    """What an answer other than 200 means."""
    code, message = _error_of(body)
    if status == 401:
        return Refused("link.key")
    if status == 403:
        return (
            Refused("link.scope", "admin")
            if code == "insufficient_scope"
            else _told(status, message, code, url, Refused)
        )
    if status == 421:
        return Unheard("link.host", url)
    if status == 400 and b"HTTPS" in body:
        return Unheard("link.encrypted", url)
    if 300 <= status < 400 or (status == 404 and not code):
        return Unheard("link.other", url)
    return _told(status, message, code, url, Unheard)


def _told(status: int, message: str, code: str, url: str, kind: type[Unheard]) -> Unheard:
    return (
        kind("link.said", message, code or str(status))
        if message
        else kind("link.status", str(status), url)
    )


def _error_of(body: bytes) -> tuple[str, str]:
    """Code and message of the box's own errors; empty where it is something else."""
    try:
        found: Any = json.loads(body)["error"]
        return str(found.get("code") or ""), str(found["message"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""


def _unheard(error: Exception, url: str) -> Unheard:
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
