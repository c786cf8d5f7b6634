"""`T`: a limit for a key that takes too much. The list opens at half of what the key uses now."""

from collections.abc import Mapping
from typing import Any

from tui.figures import count
from tui.screen import Ask, Call, Choose, Effect, Query, Tell
from tui.view import View

LIMITS = Query("/admin/keys", 10.0)
"""Whoever throttles needs it: new limits replace all of a key's limits, so the others go along."""
_SHARES = (0.75, 0.5, 0.25, 0.1)
_OPENS_AT = 1


def limits_of(data: Any) -> dict[str, Mapping[str, Any]]:
    """The limits of each valid key by its name, from the answer to LIMITS."""
    keys = data.get("keys", ()) if isinstance(data, dict) else ()
    return {
        str(key.get("name")): key["limits"]
        for key in keys
        if isinstance(key, dict) and isinstance(key.get("limits"), dict) and not key.get("revoked")
    }


def throttle(view: View, key: str, tok_min: int, limits: Mapping[str, Mapping[str, Any]]) -> Effect:
    """A list of rates for that key, then the question, then the call."""
    words, name = view.words, view.foreign(key)
    if key not in limits:
        return Tell(words("throttle.unknown", name))
    rates = [max(1, round(tok_min * share)) for share in _SHARES]
    options = [(str(rate), _label(view, rate, tok_min)) for rate in rates]
    options.append(("", words("throttle.none")))

    def then(value: str) -> Effect:
        return _ask(view, key, int(value) if value else None, limits[key])

    return Choose(words("throttle.title", name, tok_min), tuple(options), then, chosen=_OPENS_AT)


def _label(view: View, rate: int, tok_min: int) -> str:
    share = 100 * rate / tok_min if tok_min else 0
    return view.words("throttle.rate", count(rate), f"{share:.0f}")


def _ask(view: View, key: str, rate: int | None, limits: Mapping[str, Any]) -> Effect:
    words, name = view.words, view.foreign(key)
    what = words("throttle.none") if rate is None else f"{rate} tok/min"
    call = Call(
        "POST",
        f"/admin/keys/{key}/limits",
        {**limits, "tokens_per_min": rate},
        done=words("throttle.done", name, what),
    )
    lines = (words("throttle.ask", name, what), words("throttle.whom", name))
    return Ask(words("throttle.question", name), lines, call)
