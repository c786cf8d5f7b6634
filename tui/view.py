"""Everything a screen is drawn from, in one frozen object."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from appliance.frames import Live, Rows, State
from tui.cells import foreign
from tui.keymap import Keymap
from tui.words import Words

Link = Literal["connecting", "ok", "late", "lost", "frozen"]
LATE_S = 1.0
LOST_S = 5.0
SMALLEST = (60, 16)
"""Cells and rows below which a screen has no body."""

PAST = (
    "out_tok_s",
    "ttft_p99_ms",
    "itl_p99_ms",
    "e2e_p99_ms",
    "waiting",
    "kv_a_pct",
    "kv_b_pct",
    "step_ms",
    "power_w",
    "temp_c",
)
"""Numbers of `live` that `View.past` remembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the console knows and how it may draw. `width` and `height` are the whole terminal's."""

    width: int = 80
    height: int = 24
    live: Live | None = None
    rows: Rows | None = None
    state: State | None = None
    age_s: float | None = None
    """Since the newest frame was received, by the console's clock."""
    link: Link = "connecting"
    lost_s: float | None = None
    retry_s: float | None = None
    problem: str = ""
    """Why there is no connection, and the remedy."""
    note: str = ""
    """What the last action came to; shown in row 23 for some seconds."""
    words: Words = field(default_factory=Words)
    ascii: bool = False
    """Plots without Braille."""
    operator: str = ""
    read_only: bool = False
    past: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """The last 60 s of the numbers in PAST, oldest first, one a second; None: a gap."""
    history: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """The last 15 min of the same numbers, where they have been asked for."""
    url: str = ""
    keymap: Keymap = field(default_factory=Keymap)

    @property
    def acts(self) -> bool:
        """Whether keys in capitals may act."""
        return self.link in ("ok", "late") and not self.read_only

    @property
    def stale(self) -> bool:
        """Whether values are drawn dim."""
        return self.link in ("lost", "connecting")

    @property
    def tiny(self) -> bool:
        """Too small for a body."""
        return self.width < SMALLEST[0] or self.height < SMALLEST[1]

    @property
    def body_height(self) -> int:
        return max(0, self.height - 3)

    def foreign(self, text: str) -> str:
        """Text of others as text; see tui/cells.py. A Chinese terminal may draw the letters of
        other scripts in two cells, so there they are escaped."""
        return foreign(text, letters=not self.ascii and self.words.lang != "zh")

    def reading(self, key: str) -> str:
        """The word for what is being read; over a lost line nothing is."""
        return self.words("frame.not_read" if self.link == "lost" else key)

    def band(self, name: str) -> tuple[float | None, float | None]:
        """From, to of a number of `live`, by its name without the unit."""
        return (None, None) if self.state is None else self.state.bands.get(name, (None, None))


def link_of(age_s: float | None, *, broken: bool = False) -> Link:
    """What a link is that last heard the box that long ago. `broken`: its connection has ended, so
    that there is nothing to wait for."""
    if age_s is None:
        return "connecting"
    if broken or age_s > LOST_S:
        return "lost"
    return "ok" if age_s <= LATE_S else "late"
