"""A push button: bounces are ignored, a long press is told while it is held."""

from firmware_bridge import messages as m

BOUNCE_MS = 30
LONG_MS = 3000


class Button:
    def __init__(self) -> None:
        self._pressed_ms: int | None = None
        self._told = False

    def poll(self, down: bool, now: int) -> int:
        """The kind of event, or 0."""
        if not down:
            return self._release(now)
        if self._pressed_ms is None:
            self._pressed_ms = now
            self._told = False
        elif not self._told and now - self._pressed_ms >= LONG_MS:
            self._told = True
            return m.BUTTON_LONG
        return 0

    def _release(self, now: int) -> int:
        since, self._pressed_ms = self._pressed_ms, None
        if since is None or self._told or now - since < BOUNCE_MS:
            return 0
        return m.BUTTON
