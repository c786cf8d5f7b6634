"""Who gets to the console that a browser shows."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from tui.browser import COOKIE, Browser


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    browser = Browser(["true"], "127.0.0.1", _free_port(), tmp_path)
    runner = web.AppRunner(await browser._make_app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", browser.port).start()
    yield browser
    await runner.cleanup()


async def test_token_opens_the_page_once_and_becomes_a_cookie(browser: Browser) -> None:
    async with httpx.AsyncClient(base_url=browser.public_url) as client:
        first = await client.get(browser.address)
        assert first.status_code == 303
        assert browser.token not in first.headers["location"]
        assert "HttpOnly" in first.headers["set-cookie"]
        assert "SameSite=Strict" in first.headers["set-cookie"]
        page = await client.get("/")
        assert page.status_code == 200
        assert "default-src 'self'" in page.headers["content-security-policy"]


async def test_page_loads_nothing_from_elsewhere(browser: Browser) -> None:
    async with httpx.AsyncClient(base_url=browser.public_url) as client:
        await client.get(browser.address)
        page = (await client.get("/")).text
        ours = page.replace(browser.public_url, "").replace(
            browser.public_url.replace("http:", "ws:"), ""
        )
        assert "://" not in ours
        script = await client.get("/static/js/textual.js")
        assert script.status_code == 200


@pytest.mark.parametrize("path", ["/", "/ws", "/static/js/textual.js", "/download/x", "/?token=no"])
async def test_without_the_token_nothing_is_served(browser: Browser, path: str) -> None:
    async with httpx.AsyncClient(base_url=browser.public_url) as client:
        assert (await client.get(path)).status_code == 401


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}]
)
async def test_pages_of_other_origins_and_hosts_are_turned_away(
    browser: Browser, headers: dict[str, str]
) -> None:
    cookies = {COOKIE: browser._cookie}
    async with httpx.AsyncClient(base_url=browser.public_url, cookies=cookies) as client:
        assert (await client.get("/ws", headers=headers)).status_code == 403
