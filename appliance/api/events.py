"""GET /events: what consoles show, as server-sent events. See appliance/frames.py."""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from appliance.api.box import Box, box_of
from appliance.api.feed import KINDS, Feed, Kind, Listener
from appliance.api.trace import trace_of
from appliance.errors import BadRequest

_HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
_STILL_S = 2.0
"""How often it is looked whether the key is still good."""


async def events(request: Request) -> Response:
    """Frames `live` (ten a second), `rows` (two) and `state` (one), each whole, until the client
    leaves; a slow one misses frames. `?frames=live,state` for some of them alone; `?once=1`: one
    of each kind, and the end."""
    kinds, feed, trace = _kinds(request), feed_of(request), trace_of(request)
    if _once(request) or request.method == "HEAD":
        data = b"".join(told.data for told in feed.made(kinds))
        return Response(data, headers=_HEADERS, media_type="text/event-stream")
    listener = feed.listen(kinds, operator="admin" in trace.scopes)
    return _Stream(feed, listener, box_of(request), trace.key_id)


def feed_of(request: Request) -> Feed:
    found = request.app.state.feed
    assert isinstance(found, Feed)
    return found


def _kinds(request: Request) -> tuple[Kind, ...]:
    asked = request.query_params.get("frames", "")
    names = {name.strip() for name in asked.split(",")} - {""}
    for name in sorted(names):
        if name not in KINDS:
            raise BadRequest(
                f"frames: there is no {name[:40]!r}, only {', '.join(KINDS)}",
                param="frames",
                code="invalid_value",
            )
    return tuple(kind for kind in KINDS if kind in names) if names else KINDS


def _once(request: Request) -> bool:
    given = request.query_params.get("once", "0")
    if given not in ("0", "1"):
        raise BadRequest("once: must be 1 or 0", param="once", code="invalid_value")
    return given == "1"


class _Stream(Response):
    """Sends what its listener hears. Awaiting `send` is what makes a slow reader miss frames."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, listener: Listener, box: Box, key_id: str) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(_HEADERS)
        self._feed = feed
        self._listener = listener
        self._box = box
        self._key_id = key_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            look_at = time.monotonic() + _STILL_S
            while (data := await self._listener.next()) is not None:
                await send({"type": "http.response.body", "body": data, "more_body": True})
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + _STILL_S
                    if not self._still_allowed():
                        break
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watcher.cancel()
            self._feed.leave(self._listener)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._listener.end()

    def _still_allowed(self) -> bool:
        """A key that was revoked or has expired does not go on listening."""
        keys = self._box.keys
        if keys.problem:
            return True
        if not self._key_id:
            return keys.empty
        today = keys.today()
        return any(key.id == self._key_id and key.live(today) for key in keys.list())
