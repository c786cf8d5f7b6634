"""The nine screens in their order."""

from tui.screen import Screen
from tui.screens.accounts import Accounts
from tui.screens.audit import Audit
from tui.screens.board import Board
from tui.screens.calibration import Calibration
from tui.screens.chat import Chat
from tui.screens.engine import Engine
from tui.screens.overview import Overview
from tui.screens.requests import Requests
from tui.screens.setup import Setup


def every_screen() -> list[Screen]:
    """One of each, as they are at the start."""
    return [
        Overview(),
        Requests(),
        Calibration(),
        Accounts(),
        Audit(),
        Board(),
        Engine(),
        Chat(),
        Setup(),
    ]
