"""One question of the command line to a box over HTTP, and why it got no answer."""

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import SplitResult

from appliance.commands.calling import Unheard, address, authorization, connect, unheard
from appliance.commands.chained import operator
from appliance.commands.exits import NotDone
from appliance.commands.reaching import Reached

_TIMEOUT_S = 60.0
_MOST = 1 << 20


def ask(
    at: Reached, path: str, body: dict[str, Any] | None, key: str, method: str = ""
) -> dict[str, Any]:
    """What the box answers to a POST, to a GET where there is no body, or to `method`. Raises
    NotDone."""
    url, method = f"{at.url.rstrip('/')}{path}", method or ("GET" if body is None else "POST")
    try:
        return _asked(url, body, key, at.cacert, method)
    except Unheard as error:
        from tui.words import Words

        words = Words("en")
        looked = f" {words('status.looked', at.looked)}" if at.looked else ""
        raise NotDone(f"{words(error.key, *error.told)}{looked}") from None


def _asked(
    url: str, body: dict[str, Any] | None, key: str, cacert: str, method: str
) -> dict[str, Any]:
    """Raises Unheard, NotDone."""
    parts = address(url)
    box = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    headers = {"Content-Type": "application/json", "X-Operator": _operator(), **authorization(key)}
    data = None if body is None else json.dumps(body).encode()
    try:
        with closing(connect(parts, cacert, box, _TIMEOUT_S)) as connection:
            connection.request(method, _target(parts), data, headers)
            answer = connection.getresponse()
            status, told = answer.status, answer.read(_MOST)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise unheard(error, box) from None
    if 200 <= status < 300:
        return _object(told, box)
    raise NotDone(_refusal(status, told, parts.path, box))


def _target(parts: SplitResult) -> str:
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _operator() -> str:
    """As headers carry it: UTF-8 in the guise of Latin-1."""
    return operator().encode("utf-8", "replace").decode("latin-1")


def _object(data: bytes, box: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise NotDone(f"what answers at {box} says something else than a box: check --url")
    return found


def _refusal(status: int, data: bytes, path: str, box: str) -> str:
    """The box's own words, and what they need."""
    try:
        told = str(json.loads(data)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"what answers at {box} said {status} and no reason: is it a box? Check --url"
    name = "STEELYARD_ADMIN_KEY" if "/admin/" in path else "STEELYARD_API_KEY"
    needs = f". Export the key as {name}" if status == 401 else ""
    return f"{told}{needs}"
