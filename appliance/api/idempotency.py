"""Idempotency-Key: after a lost connection a client asks again and gets the first answer, instead
of a second key."""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from appliance.api.faults import Conflict
from appliance.api.trace import trace_of
from appliance.errors import BadRequest

KEPT_S = 600.0
MOST = 1000
"""Answers that are kept at a time; beyond them the oldest goes."""
HEADER = "Idempotency-Key"

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(slots=True)
class _Held:
    """One key, from its first request on."""

    until: float
    digest: bytes
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
        """What `make` answers, or answered to the same key, path and body within ten minutes. What
        it raises is not kept. Raises BadRequest, Conflict."""
        key = request.headers.get(HEADER)
        if key is None:
            return await make()
        if not _KEY.fullmatch(key):
            raise BadRequest(
                f"{HEADER}: 1 to 255 printable ASCII characters, no spaces",
                param=HEADER,
                code="invalid_value",
            )
        held = self._place(request, key, body)
        async with held.alone:
            if held.body is None:
                answer = await make()
                held.status, held.media = answer.status_code, answer.media_type
                held.body = bytes(answer.body)
                return answer
        told = {"Idempotent-Replayed": "true"}
        return Response(held.body, held.status, told, media_type=held.media)

    def _place(self, request: Request, key: str, body: bytes) -> _Held:
        now, digest = self._clock(), hashlib.sha256(body).digest()
        for name in [name for name, held in self._held.items() if held.until <= now]:
            del self._held[name]
        name = (trace_of(request).key_id, request.scope["path"], key)
        held = self._held.get(name)
        if held is None:
            while len(self._held) >= MOST:
                del self._held[next(iter(self._held))]
            held = self._held[name] = _Held(now + KEPT_S, digest)
        elif held.digest != digest:
            raise Conflict(
                f"the {HEADER} {key[:64]!r} was used for another request within the last ten "
                "minutes: take a new one",
                param=HEADER,
                code="idempotency_key_reused",
            )
        return held
