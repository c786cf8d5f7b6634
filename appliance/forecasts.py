"""Forecasts for the daemon: one thread around a `Forecaster`, which nothing ever waits for long.

Rules
1. A request goes to the engine first; its forecast is made beside its prefill.
2. What asks gets an answer in time or an estimate from all requests alike: at once, and never none.
3. Whatever fails in here is logged and counted. Serving goes on.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from appliance.accounts.pace import Pace
from appliance.errands import Errands
from appliance.expected import Table, table_of
from appliance.forecast.forecaster import NO_FORECASTER
from appliance.forecast.judge import Judge
from appliance.forecast.question import Question
from appliance.forecast.refine import Refiner
from appliance.forecast.told import Forecast, ForecasterSnapshot
from appliance.ledger.lengths import Past
from appliance.ledger.rows import RequestRow
from appliance.oracle import Oracle, refiner_of
from appliance.outlook import Outlook
from appliance.rough import Rough
from appliance.trim import trim
from appliance.verdicts import Verdicts

log = logging.getLogger(__name__)

MOST_WAITING = 256
"""Forecasts that may wait for the thread; beyond it, requests keep the rough estimate."""
MOST_UNLEARNED = 4096
"""Ended answers that may wait to be learned from."""
LESSONS = 32
"""So many are learned from even while requests run."""
PENDING_S = 0.5
"""Between two looks at what runs: answers that go on are longer than those that ended."""
_GOODBYE_S = 2.0
_ANSWER, _LEARN, _REMEMBER = range(3)
"""What the thread does first, second, and in between."""
_UNOPENED = (
    "the forecaster could not be opened, so estimates are rough: the log says why; restart the box "
    "once that is mended"
)


class Lesson(NamedTuple):
    """An answer that has ended, to be learned from."""

    outlook: Outlook
    length: int
    """Tokens."""
    censored: bool
    """It was cut off: the model would have gone on."""


class Forecasts:
    """Belongs to the event loop, but for its thread's own part. Without `make` it is off: nothing
    is forecast, everything else works."""

    def __init__(
        self,
        make: Callable[[], Oracle] | None = None,
        past: Callable[[], Iterator[Past]] = lambda: iter(()),
    ) -> None:
        """`make` opens the forecaster, `past` reads what the ledger has, oldest first; both are
        called on the thread."""
        self.enabled = make is not None
        self.pace = Pace()
        self.skipped = 0
        """Requests that were not forecast because too many waited."""
        self.on_answer: Callable[[float], None] = lambda seconds: None
        """Told how long a forecast took, on the thread."""
        self.on_verdict: Callable[[float], None] = lambda value: None
        """Told how likely an answer is right, of each that has ended; on any thread."""
        self.on_end: Callable[[Forecast, int], None] = lambda forecast, length: None
        """Told of each answer that came to its own end, or to its limit."""
        self.on_length: Callable[[Forecast, int, bool], None] = lambda forecast, length, cut: None
        """Told how long each answer became that teaches, and whether it was cut off."""
        self.on_flights: Callable[[Sequence[tuple[Forecast, int]]], None] = lambda flights: None
        """Told of all that run, twice a second: their forecasts, and their tokens so far."""
        self.pressed: Callable[[], bool] = lambda: False
        """Whether requests wait, so that the engine should know what runs as well as can be."""
        self.last_nan = -math.inf
        """When a forecast was last no distribution, monotonic seconds. Any thread."""
        self._make = make
        self._past = past
        self._errands = Errands(
            "forecast", "the forecaster failed at something; serving goes on without it"
        )
        self._waiting = 0
        self._oracle: Oracle | None = None
        self._refiner: Refiner | None = None
        self._judge: Judge | None = None
        self._without = ForecasterSnapshot(state="global")
        """How things stand without a forecaster: not opened yet, or never."""
        self._rough = Rough()
        self._live: set[Outlook] = set()
        self._ended: list[Lesson] = []
        """Since the last look."""
        self._lessons: list[Lesson] = []
        self._watching: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()

    @property
    def snapshot(self) -> ForecasterSnapshot:
        """How the forecaster does."""
        if not self.enabled:
            return ForecasterSnapshot()
        oracle = self._oracle
        return oracle.snapshot if oracle is not None else self._without

    @property
    def failed(self) -> int:
        """Jobs of the thread, and verdicts, that failed by a bug of ours."""
        return self._errands.failed + (self._judge.failed if self._judge is not None else 0)

    @property
    def degraded(self) -> str:
        """What does not run as it should, and what to do; empty where all does. No forecaster for
        the served model is a state, not a fault."""
        found = self.snapshot
        if found.state == "uncalibrated":
            return found.problem or "its bounds do not hold: run `steelyard calibrate`"
        broken = found.problem if found.problem != NO_FORECASTER else ""
        return broken or found.degraded

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Opens the forecaster on the thread, then remembers what the ledger has."""
        if self._make is None or self._errands.running:
            return
        self._errands.start(self._begin)
        self._watching = asyncio.create_task(self._watch(), name="forecasts")

    async def opened(self, within_s: float) -> bool:
        """Whether the forecaster was opened in that time, or there is none to open."""
        if not self._errands.running:
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._opened.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Ends the thread after the job it is at."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._errands.close(_GOODBYE_S)

    def reload(self) -> None:
        """Another version was installed: goes over to it, soon."""
        self._errands.put(_LEARN, self._reload)

    # -- forecasts -------------------------------------------------------------------------------

    def rough(self, question: Question) -> Forecast:
        """From all requests alike, at once."""
        return self._rough.forecast(question, self.snapshot.state)

    def ask(self, question: Question, outlook: Outlook | None = None) -> "asyncio.Future[Forecast]":
        """The forecast, once it is made (in `outlook` too); a result always, never an exception."""
        rough = outlook.forecast if outlook is not None else self.rough(question)
        future: asyncio.Future[Forecast] = asyncio.get_running_loop().create_future()
        if question.ignore_eos or not self._errands.running or self._waiting >= MOST_WAITING:
            self.skipped += not question.ignore_eos
            future.set_result(rough)
            return future
        self._waiting += 1
        self._errands.put(_ANSWER, partial(self._answer, question, rough, future, outlook))
        return future

    async def now(self, question: Question, within_s: float) -> Forecast:
        """The forecast of a request that is not to run; the rough one where that takes longer."""
        asked = self.ask(question)
        done, _ = await asyncio.wait([asked], timeout=within_s)
        return asked.result() if done else self.rough(question)

    def outlook(self, question: Question, n: int) -> Outlook:
        """What is foreseen of a request, before it is submitted: `begin` must follow, and `ended`
        when it has its final row."""
        rough, teaches = self.rough(question), not question.ignore_eos
        judge = self._judge
        verdicts = Verdicts(judge, question.prompt, n) if judge is not None else None
        found = Outlook(rough, n=n, refiner=self._refiner, teaches=teaches, verdicts=verdicts)
        self._live.add(found)
        return found

    @property
    def usual(self) -> Table:
        """How long answers become, of all requests alike, as the engine takes it: a broad guess
        at first. Any thread."""
        return self._rough.table

    def begin(
        self, outlook: Outlook, question: Question, tell: Callable[[Table], None] | None = None
    ) -> None:
        """It was submitted: makes its forecast. `tell` takes that to the engine."""
        outlook.tell = tell or outlook.tell
        outlook.follow(self.ask(question, outlook))

    def _sharpen(self) -> None:
        """Those whose prompt the model has read get a sharper forecast where that is of use while
        they run: somebody looks at them, or others wait. Not at once, when their first token is on
        its way. Who ends without gets it when it is learned from."""
        if self.snapshot.sharpens:
            pressed = self.pressed()
            for outlook in self._live:
                if outlook.logits and outlook.made is not None and (pressed or outlook.looked):
                    self._errands.put(_ANSWER, partial(self._sharper, outlook))

    def ended(self, outlook: Outlook, row: RequestRow) -> None:
        """A request has its final row: learn from it."""
        self._live.discard(outlook)
        self._pace_of(row)
        if row.exact and not row.recovered and outlook.teaches:
            for choice in row.choices:
                if choice.completion_tokens:
                    self._learn(outlook, choice.completion_tokens, choice.stop_type)

    def _pace_of(self, row: RequestRow | Past) -> None:
        self.pace.add(
            prefill_ns=row.prefill_ns,
            prefill_tokens=row.prefill_tokens,
            decode_ns=row.decode_ns,
            completion_tokens=row.completion_tokens,
        )

    def _learn(self, outlook: Outlook, length: int, stop_type: str) -> None:
        censored = stop_type != "eos"
        self._rough.observe(length, censored)
        if not censored or stop_type == "limit":
            self.on_end(outlook.forecast.at_first, length)
        if len(self._ended) < MOST_UNLEARNED:
            self._ended.append(Lesson(outlook, length, censored))

    def _teach(self) -> None:
        """What ended since the last look is sharpened and told all at once: what runs hot takes a
        third of the time. Lessons wait for an idle box, or till they are many: while the engine has
        all cores, what is computed beside it holds up every stream."""
        if self._ended:
            ended, self._ended = self._ended, []
            self._lessons += ended[: MOST_UNLEARNED - len(self._lessons)]
            if self.snapshot.sharpens:
                self._errands.put(_LEARN, partial(self._late, ended))
            else:
                self._lengths(ended)
        if self._lessons and (not self._live or len(self._lessons) >= LESSONS):
            lessons, self._lessons = self._lessons, []
            self._errands.put(_LEARN, partial(self._observe, lessons))

    def _lengths(self, ended: Sequence[Lesson]) -> None:
        for outlook, length, censored in ended:
            self.on_length(outlook.forecast, length, censored)

    def _retell(self) -> None:
        """What runs may be longer or shorter than it looked; that matters where others wait."""
        if self.pressed():
            for outlook in self._live:
                outlook.retell()

    async def _watch(self) -> None:
        told = False
        while True:
            await asyncio.sleep(PENDING_S)
            self._teach()
            self._sharpen()
            self._retell()
            flights = [
                (one.forecast, one.generated) for one in self._live if one.generated and one.teaches
            ]
            if flights or told:
                self.on_flights(flights)
                self._errands.put(_LEARN, partial(self._pending, flights))
            told = bool(flights)

    # -- the thread ------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            self._open()
        finally:
            if self._oracle is None:
                self._without = ForecasterSnapshot(state="global", degraded=_UNOPENED)
            self._errands.tell(self._opened.set)

    def _open(self) -> None:
        assert self._make is not None
        self._oracle = self._make()
        self._equip(self._oracle)
        said = self._oracle.snapshot
        named = said.version or "none"
        log.info("forecaster: %s, state %s %s", named, said.state, said.problem)
        trim()
        self._errands.put(_REMEMBER, partial(self._remember, self._past(), recall=True))

    def _equip(self, oracle: Oracle) -> None:
        """What requests from now on are accompanied by."""
        self._refiner, self._judge = refiner_of(oracle), oracle.judge
        if self._judge is not None:
            self._judge.heard = lambda value: self.on_verdict(value)

    def _answer(
        self,
        question: Question,
        rough: Forecast,
        future: "asyncio.Future[Forecast]",
        outlook: Outlook | None,
    ) -> None:
        found = rough
        begun = time.perf_counter()
        try:
            if self._oracle is not None:
                found = self._oracle.answer(question)
                self.on_answer(time.perf_counter() - begun)
        finally:
            if outlook is not None:
                outlook.made = found
            self._errands.tell(partial(self._resolve, future, found))
        if outlook is not None and found.state != "global":  # all alike: `usual` says it
            self._expect(outlook, found)

    def _sharper(self, outlook: Outlook) -> None:
        if self._sharpened(outlook):
            self._expect(outlook, outlook.forecast)

    def _late(self, ended: Sequence[Lesson]) -> None:
        """They ended, most before a second forecast was made: corrections of those must not be
        learned from long answers alone."""
        for one in ended:
            self._sharpened(one.outlook)
        self._errands.tell(partial(self._lengths, ended))

    def _sharpened(self, outlook: Outlook) -> bool:
        """Makes what is foreseen anew, with what the model made of the prompt; whether it did."""
        values, outlook.logits = outlook.logits, b""
        before = outlook.made
        if self._oracle is not None and before is not None and values:
            outlook.made = self._oracle.sharpen(before, values)
        return outlook.made is not before

    def _expect(self, outlook: Outlook, found: Forecast) -> None:
        table = table_of(found.lengths)
        if table is None:
            self.last_nan = time.monotonic()
            log.error("a forecast is no distribution: the queue goes by arrival for a while")
        else:
            self._errands.tell(partial(outlook.told, table))

    def _resolve(self, future: "asyncio.Future[Forecast]", found: Forecast) -> None:
        self._waiting -= 1
        if not future.done():
            future.set_result(found)

    def _observe(self, lessons: list[Lesson]) -> None:
        for outlook, length, censored in lessons:
            if self._oracle is not None:
                self._oracle.observe(outlook.forecast, length, censored)

    def _pending(self, flights: list[tuple[Forecast, int]]) -> None:
        if self._oracle is not None:
            self._oracle.pending(flights)

    def _reload(self) -> None:
        if self._oracle is not None:
            self._oracle.reload()
            self._equip(self._oracle)
            self._errands.put(_REMEMBER, partial(self._remember, self._past(), recall=False))

    def _remember(self, rows: Iterator[Past], *, recall: bool) -> None:
        """One more row of the ledger, then whatever else is to be done, then the next one.
        `recall`: the event loop has not been told of it before."""
        found = next(rows, None)
        if found is None:
            return
        if self._oracle is not None:
            self._oracle.rebuild([(one.prompt, one.length, one.censored) for one in found.answers])
        if recall:
            self._errands.tell(partial(self._recall, found))
        self._errands.put(_REMEMBER, partial(self._remember, rows, recall=recall))

    def _recall(self, row: Past) -> None:
        """The event loop's own memory of it."""
        self._pace_of(row)
        for one in row.answers:
            self._rough.observe(one.length, one.censored)
