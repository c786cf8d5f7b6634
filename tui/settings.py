"""How a console was started, and what it needs of the terminal it is on."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tui.keymap import Keymap
from tui.words import Lang


class Host(Protocol):
    """What the terminal side does for the desk."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    def copy(self, text: str) -> None: ...
    def leave(self) -> None: ...
    def connect(self, url: str) -> None: ...


@dataclass(slots=True)
class Settings:
    """How this console was started; the palette changes some."""

    operator: str = ""
    read_only: bool = False
    ascii: bool = False
    lang: Lang = "en"
    theme: str = "terminal"
    version: str = ""
    folder: Path = Path()
    keymap: Keymap = field(default_factory=Keymap)
