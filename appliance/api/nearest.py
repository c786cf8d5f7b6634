"""The route that somebody meant who asked for one that is not there."""

import re
from collections.abc import Collection

from appliance.alike import alike

MOST_CHARS = 64
"""Of a path that is compared; a longer one is no slip of the pen."""
_ALIKE = 0.8
_CHAT = "/v1/chat/completions"
_ELSEWHERE = {
    "/": "/docs",
    "/messages": _CHAT,
    "/api/chat": _CHAT,
    "/api/generate": "/v1/completions",
    "/api/tags": "/v1/models",
    "/api/embed": "/v1/embeddings",
    "/api/embeddings": "/v1/embeddings",
    "/embedding": "/v1/embeddings",
    "/v2/rerank": "/v1/rerank",
    "/healthz": "/health",
    "/livez": "/health",
    "/ready": "/readyz",
}
"""What other servers call it, without a leading /v1."""


def nearest(path: str, known: Collection[str]) -> str:
    """One of `known`, or empty: an address given with /v1 where the client adds it, or without,
    a slash too many, another server's name for it, a typing error."""
    if len(path) > MOST_CHARS:
        return ""
    plain = re.sub("/+", "/", path.lower()).rstrip("/") or "/"
    bare = re.sub("^(/v1)+(?=/|$)", "", plain) or "/"
    for meant in (plain, f"/v1{bare}", bare, _ELSEWHERE.get(bare, "")):
        if meant in known:
            return meant
    return alike(plain, sorted(known), _ALIKE)
