"""In front of every route: which host was meant, which web page asks, and who it is.

It decides by `scope["path"]` alone, which is also what routes are chosen by; a crafted Host header
cannot make the two differ. Routes ask again whether the need they have is the one that was met.
"""

import ipaddress
import socket
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.accounts.keys import TENANT, Key, KeyStore
from appliance.accounts.limits import NONE
from appliance.accounts.tally import Holder
from appliance.api.auth import Need, is_local, refuse, secret_in
from appliance.api.faults import HeadersTooLarge, Misdirected, answer_fault
from appliance.api.trace import Trace, trace_of
from appliance.config import Config, is_loopback
from appliance.discovery import host_label
from appliance.errors import ApiError, BadRequest, Forbidden

EXPOSED = (
    "X-Request-Id, X-Queue-Position, X-Forecast-Tokens, X-Forecast-Range, X-Ignored-Params, "
    "Retry-After, openai-processing-ms, traceparent, X-Token-Diff-SHA256, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
PREFLIGHT_S = 600


class Guard:
    """ASGI middleware inside `Tracing`."""

    def __init__(
        self, app: ASGIApp, config: Config, keys: KeyStore, need_of: Callable[[str, str], Need]
    ) -> None:
        self._app = app
        self._config = config
        self._keys = keys
        self._need_of = need_of
        self._hosts = Hosts(config)
        self._origins = Origins(config.api.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        need = self._need_of(scope["path"], scope["method"])
        origin = self._origins.allowed(connection.headers)
        fault = self._too_large(scope) or self._hosts.refuse(connection.headers)
        if fault is None and origin and _is_preflight(scope["method"], connection.headers):
            await _preflight(origin, connection.headers)(scope, receive, send)
            return
        fault = fault or self._refuse(connection, need, origin)
        send_on = _with_origin(send, origin) if origin else send
        if fault is not None:
            await answer_fault(fault)(scope, receive, send_on)
            return
        await self._app(scope, receive, send_on)

    def _refuse(self, connection: HTTPConnection, need: Need, origin: str) -> ApiError | None:
        headers = connection.headers
        if need != "public" and (fault := self._origins.refuse(connection, origin)):
            return fault
        secret = secret_in(headers)
        key = self._keys.authenticate(secret) if secret is not None else None
        trace = trace_of(connection)
        self._identify(trace, key)
        if key is not None:
            trace.scopes = frozenset(key.scopes)
        fault = refuse(need, key=key, given=secret, open_here=self._open(connection, need))
        trace.granted = "" if fault else need
        return fault

    def _identify(self, trace: Trace, key: Key | None) -> None:
        id, name, tenant, limits = "", "", TENANT, NONE
        if key is not None:
            id, name, tenant, limits = key.id, key.name, key.tenant, key.limits
        trace.key_id, trace.key_name, trace.tenant = id, name, tenant
        trace.holder = Holder(id, name, tenant, limits, self._keys.tenants.limits(tenant))

    def _too_large(self, scope: Scope) -> ApiError | None:
        limit = self._config.limits.header_bytes
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        return HeadersTooLarge(limit) if size > limit else None

    def _open(self, connection: HTTPConnection, need: Need) -> bool:
        client = connection.client
        return (
            self._config.auth.loopback_open
            and is_local(client.host if client else None, connection.headers)
            and (need == "docs" or self._keys.empty)
        )


class Hosts:
    """The names under which the box may be addressed (against DNS rebinding)."""

    def __init__(self, config: Config) -> None:
        bound = config.server.host.strip("[]").lower()
        self._local_only = is_loopback(bound)
        self._any_address = not config.server.allowed_hosts and not self._local_only
        self._names = {name.strip("[]").lower() for name in config.server.allowed_hosts}
        if not self._names:
            self._names = {bound}
            if not self._local_only:
                machine = socket.gethostname().lower()
                self._names |= {machine, f"{machine}.local"}
        if config.discovery.mdns:
            self._names.add(f"{host_label(config)}.local")
        self._names |= {"localhost", *(name.lower() for name in config.tls.names)}

    def refuse(self, headers: Headers) -> ApiError | None:
        """A browser always sends Host; what has none is no browser and cannot be rebound."""
        given = headers.getlist("host")
        if len(given) > 1:
            return BadRequest("more than one Host header", code="invalid_host")
        if not given or self._allows(host_name(given[0])):
            return None
        return Misdirected(
            f"the box is not known as {given[0][:100]!r}: add the name to server.allowed_hosts in "
            "the config, or use its IP address",
            code="host_not_allowed",
        )

    def _allows(self, name: str) -> bool:
        if name in self._names or f"*.{name.partition('.')[2]}" in self._names:
            return True
        try:
            address = ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return False
        # An address in place of a name cannot be rebound.
        return address.is_loopback or self._any_address


def host_name(header: str) -> str:
    """The Host header without its port and brackets, in lower case."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".")


class Origins:
    """Which web pages may call the box: by default none but its own."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in allowed)

    def allowed(self, headers: Headers) -> str:
        """The request's origin where the config lists it, else empty."""
        origin = headers.get("origin", "")
        listed = "*" in self._allowed or origin.lower() in self._allowed
        return origin if origin and listed else ""

    def refuse(self, connection: HTTPConnection, allowed: str) -> ApiError | None:
        """A foreign page must not even make the box work, readable or not. Where the box speaks
        TLS, a page that came in clear is foreign: anybody on the way may have written it."""
        origin = connection.headers.get("origin", "")
        host = connection.headers.get("host", "").lower()
        own = {f"https://{host}"}
        if connection.scope["scheme"] == "http":  # a proxy in front may speak either
            own.add(f"http://{host}")
        if not origin or allowed or origin.lower() in own:
            return None
        return Forbidden(
            f"web pages of {origin[:100]!r} may not call this box: add it to api.cors_origins in "
            "the config",
            code="origin_not_allowed",
        )


def _is_preflight(method: str, headers: Headers) -> bool:
    return method == "OPTIONS" and "access-control-request-method" in headers


def _preflight(origin: str, headers: Headers) -> Response:
    asked = headers.get("access-control-request-headers", "")
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, POST, DELETE, HEAD, OPTIONS",
            "Access-Control-Allow-Headers": asked or "Authorization, Content-Type",
            "Access-Control-Max-Age": str(PREFLIGHT_S),
            "Vary": "Origin, Access-Control-Request-Headers",
        },
    )


def _with_origin(send: Send, origin: str) -> Send:
    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = EXPOSED
            headers.add_vary_header("Origin")
        await send(message)

    return send_on
