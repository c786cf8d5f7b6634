"""What firmware the board has in its slots, and an update under way."""

import logging
from collections.abc import Callable

from firmware_bridge import messages as m
from firmware_bridge import parse
from firmware_bridge.commands import Refusal, UpdateConfirm, UpdateState
from firmware_bridge.events import Done, Event, Failed, Ready, Slots, Unusable
from firmware_bridge.link import Link
from firmware_bridge.update import Image, Progress, Update
from firmware_bridge.wire import WireError

log = logging.getLogger("appliance.board")

LOOK_S = 1.0
"""Between two questions to a board that has firmware on trial."""


class Firmware:
    """Belongs to the thread that keeps the board; `begin` may be called by any."""

    def __init__(self, over: Callable[[Progress], object] = lambda progress: None) -> None:
        """`over` is told how an update ended, once."""
        self.slots: Slots | None = None
        """As the board told last; None while it has not, or cannot."""
        self.progress: Progress | None = None
        """Of the last update."""
        self._over = over
        self._wanted: Image | None = None
        self._update: Update | None = None
        self._question: int | None = None
        self._look_at: float | None = None
        self._usable = False

    def begin(self, image: Image) -> Refusal | None:
        """Bring it onto the board. One at a time."""
        if self._wanted is not None or self._update is not None:
            return Refusal("another update is under way: wait until it is over")
        self._wanted = image
        return None

    def take(self, event: Event, now: float) -> None:
        match event:
            case Ready() | Unusable():
                self._look_at, self._usable = now, isinstance(event, Ready)
            case Done(number, payload) if number == self._question:
                self._hear(payload, now)
            case Failed(number, _, code) if number == self._question:
                self._question = None
                if code != m.UNKNOWN_TYPE:  # else it is too old to have slots
                    self._look_at = now + LOOK_S
        if self._update is not None:
            self._update.take(event, now)
            self._note(self._update, now)

    def turn(self, link: Link, now: float) -> None:
        """What is due now."""
        if self._wanted is not None:
            self._update, self._wanted = Update(self._wanted, now), None
        there = link.telemetry.state in ("ready", "unusable")
        if self._update is not None:
            self._carry(self._update, link, now, there)
        elif there and self._look_at is not None and now >= self._look_at:
            self._look_at = None
            self._ask(link)

    def _carry(self, update: Update, link: Link, now: float, there: bool) -> None:
        update.expire(now)
        while there and (command := update.due(now)) is not None:
            sent = link.send(command)
            if isinstance(sent, Refusal):
                update.unsent(sent.reason)
                break
            update.sent(sent, command)
        self._note(update, now)

    def _note(self, update: Update, now: float) -> None:
        self.progress, self.slots = update.progress, update.told or self.slots
        if self.progress.over:
            self._update, self._look_at = None, now
            log.warning("firmware %s: %s %s", *_words(self.progress))
            self._over(self.progress)

    def _ask(self, link: Link) -> None:
        """How the slots stand; and what is on trial, and can be talked to, may stay: whoever
        brought it is not here to say so."""
        if self.slots is not None and self.slots.trial and self._usable:
            log.info("the board has firmware on trial that nobody here brought: it may stay")
            link.send(UpdateConfirm(self.slots.version))
        sent = link.send(UpdateState())
        self._question = None if isinstance(sent, Refusal) else sent

    def _hear(self, payload: bytes, now: float) -> None:
        self._question = None
        try:
            self.slots = parse.slots(payload)
        except WireError:
            self.slots = None
        if self.slots is not None and self.slots.trial:
            self._look_at = now + LOOK_S


def _words(progress: Progress) -> tuple[str, str, str]:
    return progress.version, progress.phase, progress.problem
