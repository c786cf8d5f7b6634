"""What a route takes beside its body, as OpenAPI lists it: parts of the path, queries, headers."""

import re
from typing import Any

from appliance.api.routes import Route

_SPAN = {
    "from": "First day (UTC), such as 2026-01-31. None: of the month.",
    "to": "Last day (UTC). None: today.",
}
_BY = {"by": "key, tenant, scenario, model, day: several with commas."}
_PAGE = {
    "cursor": "Go on from here: `next` of the last answer.",
    "limit": "Entries, 500 at most.",
}
_QUERIES: dict[tuple[str, str], dict[str, str]] = {
    ("GET", "/admin/audit/conflicts"): {
        "before": "Go on below this entry: `before` of the last answer.",
    },
    ("GET", "/admin/history"): {
        **_PAGE,
        **{name: f"Only of this {name}." for name in ("key", "tenant", "scenario", "outcome")},
        "since": "Not before this day or time (UTC).",
        "until": "Before this day or time (UTC).",
    },
    ("GET", "/admin/actions"): {**_PAGE, "action": "Only this one, such as `key.create`."},
    ("GET", "/events"): {
        "frames": "live, rows, state: several with commas. None: all.",
        "once": "1: one frame of each kind, and the end.",
    },
    ("GET", "/admin/log"): {
        "level": "The least: debug, info, warning, error, critical.",
        "filter": "Part of a line.",
        "after": "Go on after this line: `next` of the last answer.",
        "limit": "Lines, 2000 at most.",
    },
    ("GET", "/slots"): {"fail_on_no_slot": "1: answer 503 when no slot is idle."},
    ("GET", "/v1/usage"): {"days": "Also each of the last so many days, 1 to 366."},
    ("DELETE", "/admin/keys/{id}"): {"force": "1: also the last valid admin key."},
    ("GET", "/admin/cost"): _BY | _SPAN,
    ("GET", "/admin/usage"): _BY | _SPAN,
}
"""By method and path: each query parameter with what it means."""
_REPEATABLE = (("POST", "/admin/keys"), ("POST", "/admin/keys/{id}/rotate"))
"""Answers with a secret: who lost one asks again under the same Idempotency-Key."""
_UNBOUNDED = ("/v1/embeddings", "/v1/rerank")
"""They run beside the engine, and deadlines are kept between its steps."""


_OURS = ("/admin", "/events", "/v1/usage")
"""Begins of paths that nobody else's client knows: there, a parameter too many is a mistake."""


def queries_of(route: Route) -> tuple[str, ...] | None:
    """The query parameters that the route takes; None where others than these are let pass."""
    if not route.path.startswith(_OURS):
        return None
    return tuple(_QUERIES.get((route.method, route.path), ()))


def parameters_of(route: Route) -> list[dict[str, Any]]:
    """OpenAPI's `parameters` of the route's operation."""
    asked = (route.method, route.path)
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)", route.path)
    ]
    found += [
        {"name": name, "in": "query", "schema": {"type": "string"}, "description": about}
        for name, about in _QUERIES.get(asked, {}).items()
    ]
    if asked in _REPEATABLE:
        text = {"type": "string", "minLength": 1, "maxLength": 255}
        about = "Sent again within ten minutes, it gets the same answer."
        found.append(_header("Idempotency-Key", text, about))
    if route.generates and route.path not in _UNBOUNDED:
        whole = {"type": "integer", "minimum": 1, "maximum": 86_400_000}
        about = "The most milliseconds that the request may take; deadline_s goes before it."
        found.append(_header("X-Request-Timeout-Ms", whole, about))
    return found


def _header(name: str, schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": schema, "description": about}
