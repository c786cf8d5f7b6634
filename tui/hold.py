"""What is kept on the screen while the box goes on: `p` holds it, `[` and `]` walk in the past."""

from dataclasses import replace

from tui.past import Past
from tui.view import View


class Hold:
    """A view that stands still, and how far back it looks. Pure: the time is an argument."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._view: View | None = None
        self._at = 0.0
        self._back = 0

    @property
    def holds(self) -> bool:
        return self._view is not None

    def toggle(self, view: View, now: float) -> bool:
        """Hold that view, or let go; whether it is held now."""
        self._view = None if self.holds else view
        self._at, self._back = now, 0
        return self.holds

    def walk(self, seconds: int) -> bool:
        """So much further back (negative: nearer); False where nothing is remembered."""
        back = max(0, self._back + seconds)
        moment = self._past.at(self._at - back)
        if moment is None or self._view is None:
            return False
        self._back = back
        self._view = replace(self._view, live=moment.live)
        return True

    def shown(self, now: float) -> View | None:
        """The view that is held, with its age; None: nothing is."""
        if self._view is None:
            return None
        moment = self._past.at(self._at - self._back) if self._back else None
        began = None if self._view.age_s is None else self._at - self._view.age_s
        at = began if moment is None else moment.at
        return replace(self._view, age_s=None if at is None else now - at)
