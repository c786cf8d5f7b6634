"""Room for as many connections as the configuration allows."""

import resource
from collections.abc import Iterator
from dataclasses import replace

import pytest

from appliance.api.connections import SPARE
from appliance.config import Config, LimitsConfig, ServerConfig
from appliance.listener import OTHERS, listen

FILES = resource.RLIMIT_NOFILE


@pytest.fixture
def scarce() -> Iterator[int]:
    """As many open files as some machines allow by default. The hard limit, which stays."""
    soft, hard = resource.getrlimit(FILES)
    resource.setrlimit(FILES, (min(soft, 512), hard))
    yield hard
    resource.setrlimit(FILES, (soft, hard))


def config_of(connections: int) -> Config:
    return replace(
        Config(), server=ServerConfig(port=0), limits=LimitsConfig(connections=connections)
    )


def test_the_box_may_open_as_many_files_as_its_connections_need(scarce: int) -> None:
    with listen(config_of(400)):
        soft, hard = resource.getrlimit(FILES)
    needed = 400 + SPARE + OTHERS
    assert hard == scarce
    assert soft == (needed if scarce == resource.RLIM_INFINITY else min(needed, scarce))


def test_more_than_it_needs_is_left_as_it_is() -> None:
    before = resource.getrlimit(FILES)
    with listen(config_of(1)):
        assert resource.getrlimit(FILES) == before


def test_who_allows_more_connections_than_the_machine_files_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: made.append(limits))
    with listen(config_of(4000)):
        assert made == [(1024, 1024)]
    assert (
        f"needs {4000 + SPARE + OTHERS} open files, and this process may have 1024" in caplog.text
    )
