"""Where `steelyard tui --serve` listens: said to be wrong before an address is shown."""

import socket

import pytest

from appliance.cli import run
from appliance.commands import tui
from tui import browser


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    places: list[object] = []
    monkeypatch.setattr(browser, "serve", lambda *given: places.append(given[2:]))
    monkeypatch.setenv("STEELYARD_ADMIN_KEY", "sk-x")
    return places


@pytest.mark.parametrize("place", ["127.0.0.1:99999", "127.0.0.1:0", "127.0.0.1:-1", "8422", "a:b"])
def test_a_place_that_is_none_is_refused(
    served: list[object], capsys: pytest.CaptureFixture[str], place: str
) -> None:
    assert run(["tui", "--serve", place]) == 2
    assert "--serve takes HOST:PORT" in capsys.readouterr().err
    assert served == []


def test_a_port_that_is_taken_is_told_with_what_to_do(
    served: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["tui", "--serve", f"127.0.0.1:{port}"]) == 1
    told = capsys.readouterr()
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in told.err
    assert (told.out, served) == ("", [])


def test_a_port_that_is_free_is_served(
    served: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tui, "_free", lambda host, port: None)
    assert run(["tui", "--serve", "[::1]:8422"]) == 0
    assert served == [("::1", 8422)]
