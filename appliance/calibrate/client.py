"""A calibration's side of HTTP: one request at a time and thread, to the box's own daemon."""

import contextlib
import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from appliance.calibrate.answers import Sampling, Wanted
from appliance.calibrate.pace import Load
from appliance.calibrate.seeds import seed_of
from appliance.forecast.dataset import Answered, Signal
from appliance.trusted import of_file

TIMEOUT_S = 900.0
"""For a whole answer: the box queues a flex request behind everybody else's."""
SHORT_S = 10.0
SCENARIO = "calibration"


class BoxAway(Exception):
    """The box does not answer, or has no room now: later again. Says why."""


class Refused(Exception):
    """The box will not answer this request, however often it is asked. Says why."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Facts:
    """What the box is."""

    model: str
    model_sha256: str
    template: str
    places: int


class Client:
    """Asks one box. Any thread may call; each call has a connection of its own."""

    def __init__(self, url: str, key: str = "", cacert: str = "") -> None:
        """Raises ValueError when `url` is no URL of HTTP."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no URL such as http://127.0.0.1:8421")
        self.url = url
        self._host, self._port = parts.hostname, parts.port
        self._tls = of_file(cacert) if parts.scheme == "https" else None
        self._key = key
        self._signals = True
        self._open: set[http.client.HTTPConnection] = set()
        self._guard = threading.Lock()
        self._ended = False

    def use(self, key: str) -> None:
        """Another key from now on."""
        self._key = key

    def facts(self) -> Facts:
        """Raises BoxAway, Refused."""
        found = self._ask("GET", "/props", timeout_s=SHORT_S)
        return Facts(
            model=str(found.get("model_alias", "")),
            model_sha256=str(found.get("model_sha256", "")),
            template=str(found.get("chat_template", "")),
            places=int(found.get("total_slots", 1)),
        )

    def load(self) -> Load:
        """Raises BoxAway, Refused."""
        status, body = self._exchange("GET", "/metrics", b"", SHORT_S)
        if status != 200:
            raise _failure(status, body)
        return Load(
            running=_metric(body, b"llamacpp:requests_processing"),
            waiting=_metric(body, b"llamacpp:requests_deferred"),
        )

    def answer(self, wanted: Wanted, sampling: Sampling) -> Answered:
        """One answer, generated now. Raises BoxAway, Refused."""
        seed = seed_of(wanted.prompt.id, wanted.sample)
        body = self._body(wanted, sampling, seed)
        try:
            found = self._ask("POST", "/v1/chat/completions", body)
        except Refused as error:
            if not ("return_signals" in body and "return_signals" in str(error)):
                raise
            self._signals = False  # a daemon that cannot tell them
            found = self._ask("POST", "/v1/chat/completions", self._body(wanted, sampling, seed))
        return _answered(wanted, sampling, seed, found)

    def _body(self, wanted: Wanted, sampling: Sampling, seed: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": "default",
            "messages": msgspec.to_builtins(wanted.prompt.messages),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed,
            "service_tier": "flex",
            "metadata": {"scenario": SCENARIO},
            "return_token_ids": True,
        }
        return {**body, "return_signals": True} if self._signals else body

    def abort(self) -> None:
        """Ends every call that waits, with BoxAway; the box then drops those requests."""
        with self._guard:
            self._ended = True
            waiting = tuple(self._open)
        for connection in waiting:
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(2)

    # -- HTTP ------------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[str, Any]:
        status, data = self._exchange(
            method, path, b"" if body is None else msgspec.json.encode(body), timeout_s
        )
        if status != 200:
            raise _failure(status, data)
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise Refused(
                status,
                "not_a_box",
                f"what answers at {self.url} is not a steelyard: check the URL",
            ) from None

    def _exchange(self, method: str, path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        connection = self._connection(timeout_s)
        try:
            self._enter(connection)
            connection.request(method, path, body or None, self._headers(bool(body)))
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise BoxAway(
                f"the box does not answer at {self.url}: {error or type(error).__name__}"
            ) from error
        finally:
            with self._guard:
                self._open.discard(connection)
            connection.close()

    def _enter(self, connection: http.client.HTTPConnection) -> None:
        connection.connect()
        with self._guard:
            if self._ended:
                raise ConnectionAbortedError("the calibration stops")
            self._open.add(connection)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=self._tls
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def _headers(self, has_body: bool) -> dict[str, str]:
        headers = {"Content-Type": "application/json"} if has_body else {}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers


def _failure(status: int, body: bytes) -> Exception:
    """429 and 5xx pass, everything else stays."""
    try:
        error = json.loads(body[: 1 << 16])["error"]
        message, code = str(error["message"]), str(error.get("code") or "")
    except (ValueError, KeyError, TypeError):
        message, code = f"the box answered {status}", ""
    if status == 429 or status >= 500:
        return BoxAway(message)
    return Refused(status, code, message)


def _metric(body: bytes, name: bytes) -> int:
    for line in body.splitlines():
        if line.startswith(name) and line[len(name) : len(name) + 1] in (b" ", b"{"):
            return int(float(line.rsplit(b" ", 1)[1]))
    return 0


def _answered(wanted: Wanted, sampling: Sampling, seed: int, found: Mapping[str, Any]) -> Answered:
    choice, usage = found["choices"][0], found["usage"]
    return Answered(
        id=wanted.prompt.id,
        sample=wanted.sample,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_tokens,
        seed=seed,
        finish_reason=str(choice["finish_reason"]),
        prompt_tokens=int(usage["prompt_tokens"]),
        completion_tokens=int(usage["completion_tokens"]),
        token_ids=tuple(choice.get("token_ids") or ()),
        text=str(choice["message"].get("content") or ""),
        signals=_signals(choice),
        first=tuple(choice.get("first_logits") or ()),
    )


def _signals(choice: Mapping[str, Any]) -> tuple[Signal, ...]:
    given = choice.get("signals") or ()
    return msgspec.convert(given, tuple[Signal, ...]) if given else ()
