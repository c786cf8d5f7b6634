"""What is foreseen of one live request: its forecast, and how that is refined while it runs.

Belongs to the event loop. Tokens of several choices are told together, as the request's usage will
tell them; what is refined is refined for each choice apart.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.engine.reports import Delta, Event, Finished, FirstLogits, Signals
from appliance.expected import Table, moved, table_of
from appliance.forecast.dataset import Signal
from appliance.forecast.refine import Refined, Refinement, Refiner
from appliance.forecast.told import Forecast
from appliance.ticket import Account, Relay
from appliance.verdicts import Verdicts

log = logging.getLogger(__name__)

TAUS = (0.1, 0.5, 0.9)
TAIL = 512
"""Characters since the last signal that a refinement reads."""
MOST_PIECES = 64
"""Of text between two signals; there are SIGNAL_TOKENS at most, and a draft's."""
MOST_UNREAD = 64
"""Signals that wait for somebody to look: 512 tokens."""
RETOLD = 4
"""Signals that have come before it is worth looking whether the engine should know: 32 tokens."""
MOST_KEPT = 8
"""Refined medians that the ledger keeps: those that were shown, the answer having doubled since."""


@dataclass(frozen=True, slots=True)
class Band:
    """Tokens of an answer, or of several together."""

    p10: int
    p50: int
    p90: int
    p99: int
    mean: int

    @classmethod
    def of(cls, forecast: Forecast) -> "Band":
        return cls(forecast.p10, forecast.p50, forecast.p90, forecast.p99, forecast.mean)

    @classmethod
    def exactly(cls, tokens: int) -> "Band":
        """Of an answer that has ended."""
        return cls(tokens, tokens, tokens, tokens, tokens)


def together(bands: Sequence[Band]) -> Band:
    """The sum of answers that are drawn apart: means add, distances from the mean as their squares
    do. One band stays what it is."""
    if len(bands) == 1:
        return bands[0]
    mean = sum(band.mean for band in bands)

    def summed(name: str) -> int:
        off = [getattr(band, name) - band.mean for band in bands]
        squares = sum(math.copysign(d * d, d) for d in off)
        return max(0, round(mean + math.copysign(math.sqrt(abs(squares)), squares)))

    p10, p50, p90, p99 = (summed(name) for name in ("p10", "p50", "p90", "p99"))
    return Band(p10, max(p10, p50), max(p10, p50, p90), max(p10, p50, p90, p99), mean)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One choice, as it was last refined."""

    generated: int
    p10: int
    p50: int
    p90: int


class _Choice:
    """One choice while it runs."""

    __slots__ = ("generated", "length", "now", "prior", "refined", "refinement", "text", "unread")

    def __init__(self) -> None:
        self.generated = 0
        self.length: int | None = None
        """Once it has ended."""
        self.now: Foreseen | None = None
        self.unread: list[tuple[Signal, str]] = []
        """Signals since somebody looked, each with the text since the one before."""
        self.refined: Refined | None = None
        """What `now` is of."""
        self.prior: Forecast | None = None
        self.refinement: Refinement | None = None
        """From `prior` on: goes on from another when the request's own forecast comes, or a
        sharper one."""
        self.text: deque[str] = deque(maxlen=MOST_PIECES)
        """Since the last signal, a piece a step."""


class Outlook:
    """Begins with an estimate from all requests alike, which the forecast replaces as soon as it
    is made."""

    def __init__(
        self,
        rough: Forecast,
        *,
        n: int = 1,
        refiner: Refiner | None = None,
        teaches: bool = True,
        verdicts: Verdicts | None = None,
    ) -> None:
        """`teaches`: its length says something of the model. `verdicts`: hears what its answers'
        judge wants to know; None: there is no judge."""
        self.made: Forecast | None = None
        """Its own forecast, once it is made; the sharper one, once the model has read the prompt
        and that is made. Set by the thread that makes them."""
        self.logits = b""
        """The first ones, as the engine tells them, until a sharper forecast is made of them."""
        self.looked = False
        """Somebody wanted to know how it does while it ran."""
        self.n = n
        self.teaches = teaches
        self.verdicts = verdicts
        self.tell: Callable[[Table], None] = lambda table: None
        """Takes to the engine how long the answer may become."""
        self._rough = rough
        self._coming: asyncio.Future[Forecast] | None = None
        self._refiner = refiner
        self._choices = [_Choice() for _ in range(n)]
        self._history: list[tuple[int, int]] = []
        self._refined = False
        self._broken = False
        self._told = 0

    def follow(self, coming: "asyncio.Future[Forecast]") -> None:
        """The request's own forecast is being made; it is done when `made` is set."""
        self._coming = coming

    def told(self, table: Table) -> None:
        """The engine knows so much from now on."""
        self._told = self.forecast.p50
        self.tell(table)

    def retell(self) -> None:
        """Tells the engine again where what was refined has moved far from what it knows. Of one
        choice only: what is told is of all of a request's."""
        choice = self._choices[0]
        if self.n > 1 or not self._told or choice.length is not None:
            return
        if len(choice.unread) >= RETOLD:
            self._read(choice)
        if choice.refined is None or choice.now is None or not moved(self._told, choice.now.p50):
            return
        table = table_of(choice.refined.lengths)
        if table is not None:
            self._told = choice.now.p50
            self.tell(table)

    @property
    def forecast(self) -> Forecast:
        """The request's own, else the rough one. Any thread."""
        return self.made or self._rough

    async def within(self, seconds: float) -> None:
        """Returns when the forecast is made, or after that time."""
        if self._coming is not None and not self._coming.done() and seconds > 0:
            await asyncio.wait([self._coming], timeout=seconds)

    @property
    def first(self) -> Band:
        """Before a token was generated."""
        return together([Band.of(self.forecast.at_first)] * self.n)

    @property
    def now(self) -> Band:
        """With what is known of each choice by now."""
        return together([self._band(choice) for choice in self._choices])

    @property
    def kind(self) -> str:
        """Where `now` comes from, in a word."""
        if self._refined:
            return "refined"
        return "global" if self.forecast.state == "global" else "net"

    def at(self, choice: int) -> Foreseen:
        """One choice by now."""
        known = self._choices[choice]
        band = self._band(known)
        return Foreseen(known.generated, band.p10, band.p50, band.p90)

    def left(self, choice: int) -> int:
        """Tokens that are still to come of one choice, at the median."""
        known = self._choices[choice]
        return max(0, self._band(known).p50 - known.generated)

    @property
    def generated(self) -> int:
        """The most tokens of one choice that has not ended: what it is known to exceed."""
        return max((c.generated for c in self._choices if c.length is None), default=0)

    def _band(self, choice: _Choice) -> Band:
        if choice.length is not None:
            return Band.exactly(choice.length)
        self.looked = True
        self._read(choice)
        told, now = Band.of(self.forecast), choice.now
        if now is None:
            return told
        p99 = max(told.p99, now.p90)
        return Band(now.p10, now.p50, now.p90, p99, max(now.p50, min(told.mean, now.p90)))

    # -- what happens ------------------------------------------------------------------------------

    def signal(self, told: Signals | FirstLogits) -> None:
        """What the model's own distribution tells. Never raises."""
        if isinstance(told, FirstLogits):
            self.logits = told.values
            return
        choice = self._choices[told.choice]
        choice.generated = max(choice.generated, told.generated)
        signal = Signal(told.generated, told.eos_margin, told.entropy, told.logprob)
        if self.verdicts is not None:
            self.verdicts.signal(told.choice, signal)
        if not self._broken:
            choice.unread.append((signal, "".join(choice.text)[-TAIL:]))
            choice.text.clear()
            if len(choice.unread) >= MOST_UNREAD:
                self._read(choice)

    def _read(self, choice: _Choice) -> None:
        """Refines with what has come since somebody looked: whom nobody watches costs nothing."""
        unread, choice.unread = choice.unread, []
        try:
            if unread and not self._broken:
                self._update(choice, unread)
        except Exception:  # a bug in there must not end a request that is being answered
            self._broken = True
            log.exception("a forecast could not be refined; the request goes on without")

    def _update(self, choice: _Choice, unread: list[tuple[Signal, str]]) -> None:
        forecast, generated = self.forecast, unread[-1][0].generated
        if forecast.p10 >= (limit := forecast.max_tokens):  # it will run to its limit
            choice.now = Foreseen(generated, limit, limit, limit)
            return
        if choice.refinement is None:
            choice.refinement = Refinement(forecast.lengths, limit, self._refiner)
        elif choice.prior is not forecast:
            choice.refinement.renew(forecast.lengths)
        choice.prior = forecast
        for signal, text in unread:
            found = choice.refinement.update(signal, text)
        choice.now, choice.refined = Foreseen(generated, *found.quantiles(TAUS)), found
        self._refined = self._refiner is not None
        if choice is self._choices[0]:
            self._keep(choice.now)

    def _keep(self, now: Foreseen) -> None:
        last = self._history[-1][0] if self._history else 4
        if now.generated >= 2 * last and len(self._history) < MOST_KEPT:
            self._history.append((now.generated, now.p50))

    @property
    def texts(self) -> list[deque[str]]:
        """Where what each choice says is put, a piece a step."""
        return [choice.text for choice in self._choices]

    def event(self, event: Event) -> None:
        """What the engine says of the request."""
        if isinstance(event, Delta):
            self._choices[event.choice].text.append(event.text)
        elif isinstance(event, Finished):
            choice = self._choices[event.choice]
            choice.length = choice.generated = event.counts.completion_tokens
            if self.verdicts is not None:
                self.verdicts.ended(event)

    # -- what is written down ----------------------------------------------------------------------

    def row(self) -> Mapping[str, Any]:
        """For the request's final row. `at_end`: (tokens generated, refined median) of the first
        choice, as somebody was shown it: each time it had doubled at least."""
        forecast, band = self.forecast.at_first, self.first
        return {
            "version": forecast.version,
            "state": forecast.state,
            "p10_tok": band.p10,
            "p50_tok": band.p50,
            "p90_tok": band.p90,
            "p99_tok": band.p99,
            "mean_tok": band.mean,
            "confidence": forecast.confidence,
            "claim": forecast.claim,
            "at_end": [list(pair) for pair in self._history],
        }


class Watched(Relay):
    """A `ticket.Account` whose outlook hears what it hears, first."""

    __slots__ = ("_outlook", "_texts")

    def __init__(self, account: Account, outlook: Outlook) -> None:
        super().__init__(account)
        self._outlook = outlook
        self._texts = outlook.texts

    def event(self, event: Event) -> None:
        if isinstance(event, Delta):  # most are: a call less for each token
            self._texts[event.choice].append(event.text)
        else:
            self._outlook.event(event)
        self._account.event(event)
