"""The console in a browser: textual-serve, with a door of our own before it.

Each browser that has opened the address with its token gets one console process. The token counts
for as long as this command runs; a page of another origin is turned away, and so is a foreign Host
header, so that no web page can type into the console. The page loads nothing from elsewhere.
"""

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

COOKIE = "steelyard_console"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAGE = """\
<!DOCTYPE html>
<html>
  <head>
    <meta charset="utf-8">
    <title>{{ application.name }}</title>
    <link rel="stylesheet" href="{{ config.static.url }}css/xterm.css">
    <script src="{{ config.static.url }}js/textual.js"></script>
    <style>
      body { background: #000; margin: 0; }
      .textual-terminal { width: 100vw; height: 100vh; }
      .closed { display: none; color: #ccc; font-family: monospace; padding: 2em; }
      body.-closed .closed { display: block; }
    </style>
  </head>
  <body>
    <div class="closed">The console has ended. Reload the page to start it again.</div>
    <div id="terminal" class="textual-terminal"
      data-session-websocket-url="{{ app_websocket_url }}" data-font-size="{{ font_size }}"></div>
  </body>
</html>
"""


class Browser(Server):
    """textual-serve's server behind a token."""

    def __init__(self, command: Sequence[str], host: str, port: int, folder: Path) -> None:
        (folder / "app_index.html").write_text(PAGE, encoding="utf-8")
        shown = f"[{host}]" if ":" in host else host
        super().__init__(
            "exec " + shlex.join(command),
            host=host,
            port=port,
            title="Steelyard",
            public_url=f"http://{shown}:{port}",
            templates_path=folder,
        )
        self.token = secrets.token_urlsafe(24)
        self._cookie = secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        """What to open; the token in it is the way in."""
        return f"{self.public_url}/?token={self.token}"

    def initialize_logging(self) -> None:
        logging.basicConfig(level=logging.WARNING, format="%(message)s")

    async def on_startup(self, app: web.Application) -> None:
        print(f"The console in a browser: {self.address}", flush=True)
        print("Whoever has this address acts with your key. Ctrl+C ends it.", flush=True)

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._door)
        return app

    @property
    def _door(self) -> Any:
        @web.middleware
        async def door(request: web.Request, handler: _Handler) -> web.StreamResponse:
            self._check_origin(request)
            token = request.query.get("token", "")
            if request.path == "/" and _same(token, self.token):
                return self._let_in()
            if not _same(request.cookies.get(COOKIE, ""), self._cookie):
                raise web.HTTPUnauthorized(
                    text="Open the address that `steelyard tui --serve` printed, with its token."
                )
            answer = await handler(request)
            if not answer.prepared:
                answer.headers["Content-Security-Policy"] = (
                    "default-src 'self'; style-src 'self' 'unsafe-inline'; "
                    "img-src 'self' data:; frame-ancestors 'none'"
                )
                answer.headers["Referrer-Policy"] = "no-referrer"
            return answer

        return door

    def _check_origin(self, request: web.Request) -> None:
        ours = urlsplit(self.public_url).netloc
        origin = request.headers.get("Origin")
        if request.host != ours or (origin and urlsplit(origin).netloc != ours):
            raise web.HTTPForbidden(text=f"Only {self.public_url} is served here.")

    def _let_in(self) -> web.Response:
        """The token leaves the address bar and becomes a cookie that scripts cannot read."""
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(COOKIE, self._cookie, httponly=True, samesite="Strict")
        return answer


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def serve(arguments: Sequence[str], environ: dict[str, str], host: str, port: int) -> None:
    """Serve consoles until Ctrl+C. `environ` is added to theirs: the key travels there, never in
    arguments, which other users of the machine can see."""
    os.environ.update(environ)
    command = [sys.executable, "-P", "-m", "appliance", "tui", *arguments]
    with TemporaryDirectory(prefix="steelyard-") as folder, contextlib.suppress(KeyboardInterrupt):
        asyncio.set_event_loop(asyncio.new_event_loop())
        Browser(command, host, port, Path(folder)).serve()
