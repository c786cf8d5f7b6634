"""Texts that are looked at once and kept: `GOLDEN=write pytest ...` writes them anew."""

import os
from pathlib import Path

_FOLDER = Path(__file__).parent / "golden"


def agree(name: str, text: str) -> None:
    """The text is that of `golden/<name>.txt`."""
    file = _FOLDER / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{name} looks different now"
