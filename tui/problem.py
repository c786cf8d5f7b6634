"""Why the box cannot be reached or said no, in words with a remedy. Pure: errors in, words out."""

import asyncio
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from tui.sse import TooLarge
from tui.trust import CaFileUnusable


@dataclass(frozen=True, slots=True)
class Problem:
    """A key of the catalogue (words_link.py) and what it tells of."""

    key: str
    args: tuple[str, ...] = ()


def of_error(error: BaseException, url: str, *, heard: bool = False) -> Problem:
    """What `error`, raised on the way to `url`, means. `heard`: the box has been heard there, so
    that a connection which breaks off says nothing of what is at the other end."""
    if heard and isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
        return Problem("link.broke", (url,))
    for cause in _causes(error):
        if (found := _known(cause, url)) is not None:
            return found
    return Problem("link.failed", (url, _told(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The innermost first: it says most."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        inner = at.exceptions[0] if isinstance(at, BaseExceptionGroup) else None
        at = inner or at.__cause__ or at.__context__
    return reversed(chain)


def _known(error: BaseException, url: str) -> Problem | None:
    told = _told(error)
    match error:
        case ssl.SSLCertVerificationError():
            return Problem("link.certificate", (error.verify_message or told,))
        case ssl.SSLError() if "WRONG_VERSION" in told or "HTTP_REQUEST" in told:
            return Problem("link.clear", (url,))
        case ssl.SSLError():
            return Problem("link.tls", (url, told))
        case CaFileUnusable():
            return Problem("link.ca", (told,))
        case ConnectionRefusedError():
            return Problem("link.refused", (url,))
        case TimeoutError() | httpx.TimeoutException() | asyncio.CancelledError():
            return Problem("link.timeout", (url,))
        case OSError() if "Name or service" in told or "No address" in told or "resol" in told:
            return Problem("link.name", (url,))
        case httpx.InvalidURL() | httpx.UnsupportedProtocol() | UnicodeError() | OverflowError():
            return Problem("link.url", (url,))
        case httpx.RemoteProtocolError() | TooLarge():
            return Problem("link.no_http", (url,))
        case msgspec.MsgspecError():
            return Problem("link.schema", (told,))
    return None


def _told(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


def of_answer(status: int, body: bytes, url: str, scope: str = "") -> Problem | None:
    """What an answer other than 2xx means; None: it is one. `scope`: what the route needs."""
    if 200 <= status < 300:
        return None
    code, message = _error_of(body)
    match status:
        case 400 if code == "tls_required" or b"HTTPS" in body:
            return Problem("link.encrypted", (url,))
        case 401:
            return Problem("link.key")
        case 403 if code == "insufficient_scope":
            return Problem("link.scope", (scope or "admin", message))
        case 404 if not code:
            return Problem("link.other", (url,))
        case 421:
            return Problem("link.host", (url,))
    if 300 <= status < 400:
        return Problem("link.other", (url,))
    if not message:
        return Problem("link.status", (str(status), url))
    return Problem("link.said", (message, code or str(status)))


def _error_of(body: bytes) -> tuple[str, str]:
    """Code and message of the box's own errors; empty where the body is something else."""
    try:
        found: Any = json.loads(body)["error"]
        return str(found.get("code") or ""), str(found["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", ""
