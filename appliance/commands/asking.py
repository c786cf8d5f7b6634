"""One question of the command line to a box over HTTP, and why it got no answer."""

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

from appliance.commands.chained import operator
from appliance.commands.requests import NotDone

_TIMEOUT_S = 60.0
_MOST = 1 << 20


def ask(url: str, body: dict[str, Any] | None, key: str, cacert: str | None) -> dict[str, Any]:
    """What the box answers to a POST, or to a GET where there is no body. Raises NotDone."""
    headers = {"Content-Type": "application/json", "X-Operator": _operator()}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    context = ssl.create_default_context(cafile=cacert) if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:
            return _object(answer.read(_MOST))
    except urllib.error.HTTPError as error:
        raise NotDone(_refusal(error)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NotDone(f"the box does not answer at {url}: {reason}. Give --url") from None


def _operator() -> str:
    """As headers carry it: UTF-8 in the guise of Latin-1."""
    return operator().encode("utf-8", "replace").decode("latin-1")


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("it answers something else than a box")
    return found


def _refusal(error: urllib.error.HTTPError) -> str:
    """The box's own words, and what they need."""
    try:
        told = str(json.loads(error.read(_MOST))["error"]["message"])
    except (ValueError, KeyError, TypeError):
        told = f"the box answered {error.code}"
    name = "STEELYARD_ADMIN_KEY" if "/admin/" in (error.url or "") else "STEELYARD_API_KEY"
    needs = f". Export the key as {name}" if error.code == 401 else ""
    return f"{told}{needs}"
