"""Frames of `GET /events`, read with the standard library alone so that `status` starts at once."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

import msgspec

from appliance.commands.calling import Refused, Unheard, address, authorization, connect, unheard
from appliance.frames import Frame, decode

if TYPE_CHECKING:
    from tui.sse import Event

TIMEOUT_S = 5.0
"""Without a frame for so long, the box is lost."""
_MOST_ERROR = 65536
_KNOWN = ("live", "rows", "state")

__all__ = ["Refused", "Unheard", "listen"]


def listen(
    url: str, key: str, cacert: str, query: str, timeout_s: float = TIMEOUT_S
) -> Iterator[Frame]:
    """The frames as they come, until the box ends the answer. Raises Unheard."""
    parts = address(url)
    headers = {"Accept": "text/event-stream", **authorization(key)}
    try:
        with closing(connect(parts, cacert, url, timeout_s)) as connection:
            yield from _frames(connection, parts, headers, query, url)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise unheard(error, url) from None


def _frames(
    connection: http.client.HTTPConnection,
    parts: SplitResult,
    headers: dict[str, str],
    query: str,
    url: str,
) -> Iterator[Frame]:
    from tui.sse import Events, TooLarge

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
