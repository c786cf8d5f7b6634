"""Real daemons for the tests beside this file: the real command, model, engine and HTTP."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.box.running import RunningBox

Start = Callable[..., RunningBox]


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """One daemon with small limits, shared by all tests that leave it as they found it."""
    with RunningBox.start(tmp_path_factory.mktemp("box")) as running:
        yield running


@pytest.fixture(scope="session")
def unforecast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """Another one, whose forecasts are switched off."""
    home = tmp_path_factory.mktemp("unforecast")
    with RunningBox.start(home, forecast={"enabled": False}) as running:
        yield running


@pytest.fixture
def start_box(tmp_path: Path) -> Iterator[Start]:
    """Starts further daemons, with settings of the test's own; they end with the test."""
    with ExitStack() as stack:
        count = 0

        def start(**settings: object) -> RunningBox:
            nonlocal count
            count += 1
            return stack.enter_context(RunningBox.start(tmp_path / str(count), **settings))

        yield start
