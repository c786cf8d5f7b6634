"""The last word to the board: the silence that follows is meant."""

import logging
import time

from appliance.board.heartbeat import MOST_INHIBIT_S, REASONS
from firmware_bridge.commands import Command, Inhibit, Refusal, StopWatchdog
from firmware_bridge.events import Done, Failed
from firmware_bridge.link import Link

log = logging.getLogger("appliance.board")

GOODBYE_S = 1.0
LOOK_S = 0.02


def say_goodbye(link: Link, *, nowayout: bool) -> None:
    """Without it the board would take the silence for a hang. Waits a little for the answer."""
    goodbye: Command = StopWatchdog()
    if nowayout:
        goodbye = Inhibit(MOST_INHIBIT_S, REASONS["stop"])
        log.warning(
            "board.nowayout: the board cuts the power in %d minutes unless the daemon is back",
            MOST_INHIBIT_S // 60,
        )
    number = link.send(goodbye)
    until = time.monotonic() + GOODBYE_S
    while not isinstance(number, Refusal) and time.monotonic() < until:
        events = link.take_events()
        if any(isinstance(one, Done | Failed) and one.id == number for one in events):
            return
        time.sleep(LOOK_S)
