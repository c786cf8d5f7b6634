"""The box that runs on this state directory, asked over HTTP as any client would.

It is found without being told: by the lock that it holds, and the port that it listens on. On TLS
it is trusted for the very certificate in its files, so that the key is shown to nobody else.
"""

import http.client
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from appliance.banner import base_url
from appliance.config import Config
from appliance.config.secured import tls_on
from appliance.doctor.sockets import Holder, locked_by
from appliance.doctor.standing import standing
from appliance.trusted import of_file, of_first

LOCK = "daemon.lock"
TIMEOUT_S = 10.0
MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one question. `status` 0: no answer, and `why` says why."""

    status: int
    body: bytes = b""
    why: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def refused(self) -> bool:
        """For want of a key with the right scope."""
        return self.status in (401, 403)

    @property
    def json(self) -> dict[str, Any]:
        """The object in it; empty where it is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


Trust = Callable[[], ssl.SSLContext]


class Box:
    """One daemon, or none."""

    def __init__(self, holder: Holder | None, url: str, key: str, trust: Trust) -> None:
        """`holder`: of the lock on the state directory. `url` empty: there is nothing to ask."""
        self.holder = holder
        self.url = url
        self.key = key
        self.hidden = False
        """This user does not see whether one runs: the state directory is another's."""
        self._trust = trust
        self._known: dict[str, Answer] = {}

    @classmethod
    def none(cls) -> Self:
        return cls(None, "", "", ssl.create_default_context)

    @classmethod
    def find(cls, config: Config, *, url: str = "", key: str = "", cacert: str = "") -> Self:
        """By what it holds on this machine, unless `url` says where it is."""
        holder, hidden = None, False
        try:
            holder = locked_by(config.server.state_dir / LOCK)
        except PermissionError:
            hidden = True
        if not url and (hidden or holder is not None):
            host, port = standing(holder, config.server)
            url = base_url(host, port, tls=tls_on(config)) if port else ""
        found = cls(holder, url.rstrip("/"), key, lambda: _trust(config, cacert))
        found.hidden = hidden
        return found

    @property
    def runs(self) -> bool:
        """A daemon holds the state directory, or answers where we were told to ask."""
        return self.holder is not None or bool(self.url and self.get("/health").ok)

    def get(self, path: str) -> Answer:
        """The answer, asked for once in the life of this object."""
        if path not in self._known:
            self._known[path] = self._ask(path)
        return self._known[path]

    @cached_property
    def props(self) -> dict[str, Any]:
        """`/props`; empty where it cannot be had."""
        answer = self.get("/props")
        return answer.json if answer.ok else {}

    @cached_property
    def ready(self) -> dict[str, Any]:
        """`/readyz`, ready or not; empty where it cannot be had."""
        answer = self.get("/readyz")
        return answer.json if answer.status in (200, 503) else {}

    def _ask(self, path: str) -> Answer:
        if not self.url:
            return Answer(0, why="no box runs here")
        answer = self._once(path)
        if self.holder is not None and _wants_tls(answer):
            # It was told another `--host` than the configuration's, one of the network.
            self.url = self.url.replace("http:", "https:", 1)
            answer = self._once(path)
        return answer

    def _once(self, path: str) -> Answer:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            connection = self._connection()
            try:
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                return Answer(answer.status, answer.read(MOST_BYTES))
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(0, why=_why(error))

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, parts.port, timeout=TIMEOUT_S, context=self._trust()
            )
        return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)


def _wants_tls(answer: Answer) -> bool:
    error = answer.json.get("error") if answer.status == 400 else None
    return isinstance(error, dict) and error.get("code") == "tls_required"


def _trust(config: Config, cacert: str) -> ssl.SSLContext:
    """Raises OSError where the certificate cannot be read."""
    if cacert:
        return of_file(cacert)
    own = config.server.state_dir / "tls" / "server.pem"
    return of_first(Path(config.tls.cert) if config.tls.cert else own)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not the one in the files: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
