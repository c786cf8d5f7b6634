"""The box over HTTP, as any client meets it."""

import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.study.errors import StudyError
from appliance.trusted import of_file

TIMEOUT_S = 900.0
"""For one answer, its time in the queue included."""
TRIES = 30
"""Of one request, while the box is busy, restarts its engine, or is not there for a moment."""
LONGEST_WAIT_S = 30.0
_AGAIN = frozenset({429, 500, 502, 503, 504})
_MOST_ERROR = 65536


@dataclass(frozen=True, slots=True)
class Served:
    """What the box serves."""

    model: str
    sha256: str
    context: int
    """Tokens that prompt and answer may take together."""


class NotAnswered(Exception):
    """The box refused this one request, and would again."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{message} ({code or status})")
        self.status = status
        self.code = code


class _Later(Exception):
    """Not now: `wait_s` until the next try, where the box told."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Makes an error of what would be followed."""


class Box:
    """A running box. Its methods may be called from any thread."""

    def __init__(
        self,
        url: str,
        key: str = "",
        cacert: str | None = None,
        sleep: Callable[[float], object] = time.sleep,
        looked: str = "",
    ) -> None:
        """`looked`: where no address was given, what was looked for on this machine. `sleep` is for
        tests. Raises StudyError for a URL or a CA file of no use."""
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise StudyError(f"{url!r} is no URL of a box: give --url http://ADDRESS:PORT")
        if not (key.isascii() and key.isprintable()):
            raise StudyError("the key holds a character that no key has: copy it again")
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        context = _trust(cacert) if self.url.startswith("https:") else None
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),  # which would be shown the key, as would
            _NoRedirect(),  # whoever a redirect names
            urllib.request.HTTPSHandler(context=context),
        )
        self._sleep = sleep
        self._looked = f" ({looked})" if looked else ""
        self._lock = threading.Lock()
        self._model = "default"

    def served(self) -> Served:
        """What is served now; later requests name that model. Raises StudyError at once where no
        box answers."""
        try:
            found = self._once("GET", "/v1/models", None)["data"][0]
            meta = found["meta"]
            served = Served(str(found["id"]), str(meta["sha256"]), int(meta["n_ctx"]))
        except (_Later, NotAnswered) as error:
            raise StudyError(self._unreachable(error)) from None
        except (KeyError, TypeError, IndexError, ValueError):
            raise StudyError(
                f"{self.url} is not a Steelyard box: give its address as --url"
            ) from None
        with self._lock:
            self._model = served.model
        return served

    def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One answer, at low priority. Raises NotAnswered where this request will never do, and
        StudyError where none will."""
        whole = {"model": self._model, "service_tier": "flex", **body}
        return self.ask("POST", "/v1/chat/completions", whole)

    def detokenize(self, tokens: list[int]) -> str:
        """The text of these tokens, as the model's vocabulary spells it."""
        return str(self.ask("POST", "/detokenize", {"tokens": tokens})["content"])

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Tries until there is an answer. Raises as `chat`."""
        wait_s, why = 0.5, ""
        for _ in range(TRIES):
            try:
                return self._once(method, path, body)
            except _Later as error:
                why = str(error)
                self._sleep(min(error.wait_s or wait_s, LONGEST_WAIT_S))
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        raise StudyError(
            f"the box at {self.url} did not answer in {TRIES} tries: {why}. When it does, run the "
            "same command again: it goes on where it stopped"
        )

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, method=method, headers=self._headers
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise _meaning(error) from None
        except ssl.SSLError as error:
            raise StudyError(_untrusted(self.url, error)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLError):
                raise StudyError(_untrusted(self.url, reason)) from None
            raise _Later(str(reason) or type(reason).__name__) from None

    def _unreachable(self, error: Exception) -> str:
        if isinstance(error, NotAnswered):
            return f"the box at {self.url} refuses: {error}"
        return (
            f"no box answers at {self.url}{self._looked}: {error}. Start it (`steelyard serve`) "
            "or give --url; `study tokens` and `study bytes` need none"
        )


def _trust(cacert: str | None) -> ssl.SSLContext:
    try:
        return of_file(cacert or "")
    except (OSError, ssl.SSLError) as error:
        raise StudyError(f"{cacert} cannot be used as a CA's certificate: {error}") from None


def _untrusted(url: str, error: ssl.SSLError) -> str:
    return (
        f"no trusted connection to {url}: {error}. `steelyard tls export-ca FILE` on the box, then "
        "--cacert FILE here"
    )


def _meaning(error: urllib.error.HTTPError) -> Exception:
    """What an answer other than 200 asks for."""
    code, message = _error_of(error)
    if error.code in (401, 403) and code != "exclusive_not_allowed":
        return StudyError(
            f"{message}. A study needs a key with scope infer: export STEELYARD_API_KEY=sk-..., or "
            "--key-file"
        )
    if code == "insufficient_quota":
        return StudyError(f"{message}. The study goes on when the same command is run again")
    if error.code in _AGAIN and error.headers.get("x-should-retry") != "false":
        return _Later(message, _seconds(error.headers.get("Retry-After")))
    return NotAnswered(error.code, code, message)


def _error_of(error: urllib.error.HTTPError) -> tuple[str, str]:
    try:
        found = json.loads(error.read(_MOST_ERROR))["error"]
        return str(found.get("code") or ""), str(found["message"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", f"the box answered {error.code}"


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.1, float(text)) if text is not None else None
    except ValueError:
        return None
