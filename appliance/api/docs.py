"""The documentation page: our OpenAPI document, rendered by a page that needs no network."""

import base64
import hashlib
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from appliance.api.docs_page import SCRIPT, STYLE


async def schema(request: Request) -> Response:
    """The OpenAPI document of this box."""
    return Response(request.app.state.openapi, media_type="application/json")


async def page(_: Request) -> Response:
    """An HTML page that shows it and can try the routes out."""
    html, policy = _page()
    return Response(html, media_type="text/html", headers={"Content-Security-Policy": policy})


@cache
def _page() -> tuple[str, str]:
    html = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Steelyard API</title>"
        "<meta name=viewport content='width=device-width'>"
        f"<style>{STYLE}</style><main id=main><p>Loading …</p></main><script>{SCRIPT}</script>"
    )
    policy = (
        f"default-src 'none'; connect-src 'self'; script-src '{_digest(SCRIPT)}'; "
        f"style-src '{_digest(STYLE)}'; base-uri 'none'; frame-ancestors 'none'"
    )
    return html, policy


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
