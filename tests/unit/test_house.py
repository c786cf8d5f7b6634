"""What CONTRIBUTING.md asks of every file, where a tool of others does not see to it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("appliance", "bench", "firmware_bridge", "images", "tests", "tui")
MOST_LINES = 400


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_can_be_read_in_one_go(folder: str) -> None:
    found = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules(folder)
    }
    assert found
    assert {name: lines for name, lines in found.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_module_says_what_it_is(folder: str) -> None:
    """The docstring is the first thing in it. An empty `__init__` has nothing to say."""
    silent = [
        str(path.relative_to(ROOT))
        for path in modules(folder)
        if (text := path.read_text().strip()) and not text.startswith(('"""', 'r"""', "#!"))
    ]
    assert silent == []
