"""Idempotency-Key: after a lost connection a client asks again and gets the first answer, instead
of a second key.

Rules
1. Only answers are kept. An attempt that raises leaves nothing, so that its key is free for a
   corrected body; who waited for it with the same body makes the next attempt.
2. What is being done is never dropped, or it could be done twice.
"""

import asyncio
import hashlib
import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from appliance.api.faults import Conflict
from appliance.api.trace import trace_of
from appliance.errors import BadRequest, Unavailable

KEPT_S = 600.0
MOST = 1000
"""Keys that are held at a time; beyond them the oldest answer goes."""
HEADER = "Idempotency-Key"

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(slots=True)
class _Held:
    """One key, from its first request on."""

    digest: bytes
    users: int = 0
    """Requests that make the answer or wait for it."""
    until: float = math.inf
    """When the answer goes (monotonic s)."""
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    body: bytes | None = None
    media: str | None = None
    status: int = 200


class Answers:
    """The answers of requests that were sent with a key. Belongs to the event loop; in memory
    alone: they hold secrets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str, str], _Held] = {}

    async def once(
        self, request: Request, body: bytes, make: Callable[[], Awaitable[Response]]
    ) -> Response:
        """What `make` answers, or answered to the same key, path and body in the last ten minutes.
        What it raises is not kept. Raises BadRequest, Conflict, Unavailable."""
        key = request.headers.get(HEADER)
        if key is None:
            return await make()
        if not _KEY.fullmatch(key):
            raise BadRequest(
                f"{HEADER}: 1 to 255 printable ASCII characters, no spaces",
                param=HEADER,
                code="invalid_value",
            )
        name = (trace_of(request).key_id, request.scope["path"], key)
        held = self._place(name, hashlib.sha256(body).digest())
        held.users += 1
        try:
            async with held.alone:
                if held.body is None:
                    answer = await make()
                    held.status, held.media = answer.status_code, answer.media_type
                    held.body = bytes(answer.body)
                    held.until = self._clock() + KEPT_S
                    return answer
        finally:
            held.users -= 1
            if held.body is None and not held.users:
                del self._held[name]
        told = {"Idempotent-Replayed": "true"}
        return Response(held.body, held.status, told, media_type=held.media)

    def _place(self, name: tuple[str, str, str], digest: bytes) -> _Held:
        now = self._clock()
        for old in [old for old, held in self._held.items() if held.until <= now]:
            del self._held[old]
        held = self._held.get(name)
        if held is None:
            if len(self._held) >= MOST:
                self._drop_oldest()
            held = self._held[name] = _Held(digest)
        elif held.digest != digest:
            raise Conflict(
                f"the {HEADER} {name[2][:64]!r} was used for another request within the last ten "
                "minutes: take a new one",
                param=HEADER,
                code="idempotency_key_reused",
            )
        return held

    def _drop_oldest(self) -> None:
        for name, held in self._held.items():
            if held.body is not None:
                del self._held[name]
                return
        raise Unavailable(f"{MOST} requests with an {HEADER} are being done: ask again in a moment")
