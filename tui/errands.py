"""What the console asks the box beside the frames: queries of the screen shown, actions, streams.

Each runs as a task of its own, so nothing a slow box does holds up a key.
"""

import asyncio
import contextlib
import json
from typing import Any

from tui.cells import cells
from tui.link import Answer
from tui.place import Place
from tui.problem import Problem
from tui.screen import Call, Query, Screen, Show, Stream
from tui.view import View

AGAIN_S = 5.0
"""Before a query for once that failed is asked again."""

DOING_S = 60.0
"""An action whose connection broke is asked about for at most about so long."""


class Errands:
    """Requests that are under way, for one desk."""

    def __init__(self, desk: Place) -> None:
        self._desk = desk
        self._due: dict[tuple[int, Query], float] = {}
        self._asking: set[tuple[int, Query]] = set()
        self._boot = ""
        self._streaming: asyncio.Task[None] | None = None

    def told(self, problem: Problem) -> str:
        """In the operator's words. What the box or the system said is text of others."""
        view = View(words=self._desk.words, ascii=self._desk.settings.ascii)
        args = [view.foreign(part) for part in problem.args]
        key = (
            "link.no_key" if problem.key == "link.key" and self._desk.link.keyless else problem.key
        )
        return self._desk.words(key, *args)

    # -- queries -----------------------------------------------------------------------------------

    def poll(self, view: View) -> None:
        """Ask what the screen wants and what is due; nothing while the link is down or frozen."""
        if view.link not in ("ok", "late"):
            return
        self._meet(view)
        screen, now = self._desk.screen, self._desk.now()
        wanted = {(screen.number, query) for query in screen.wants(view)}
        self._due = {one: at for one, at in self._due.items() if one in wanted}
        for one in wanted - self._asking:
            if self._due.get(one, now) <= now:
                self._asking.add(one)
                self._desk.host.start(self._query(screen, one))

    def _meet(self, view: View) -> None:
        """A box that has just started, or is new to us: everything is asked anew."""
        boot = "" if view.live is None else view.live.boot_id
        if boot != self._boot:
            self._boot = boot
            self._due.clear()
            self._desk.host.start(self._remember())

    async def _remember(self) -> None:
        answer = await self._desk.link.ask("/admin/past")
        if answer.problem is None:
            self._desk.past.before(answer.data)

    async def _query(self, screen: Screen, one: tuple[int, Query]) -> None:
        query = one[1]
        answer = await self._desk.link.ask(query.path)
        self._asking.discard(one)
        wait = query.every_s if answer.problem is None else max(query.every_s, AGAIN_S)
        self._due[one] = self._desk.now() + wait if wait > 0 else float("inf")
        told = None if answer.problem is None else self.told(answer.problem)
        try:
            screen.receive(query, answer.data, told)
        except Exception as error:  # a bug, or a box that tells something else than ours does
            self._due[one] = float("inf")
            text = self._desk.words("desk.reported", self._desk.report(error))
            screen.receive(query, None, text)

    # -- actions -----------------------------------------------------------------------------------

    def call(self, call: Call) -> None:
        """Act; what came of it is told when it is known."""
        self._desk.say(self._desk.words("desk.doing"), DOING_S)
        self._desk.host.start(self._call(self._desk.screen, call))

    async def _call(self, screen: Screen, call: Call) -> None:
        body = None if call.body is None else dict(call.body)
        link = self._desk.link
        answer = await link.act(call.method, call.path, body, idempotent=call.idempotent)
        if answer.problem is not None:
            self._failed(answer, answer.problem)
            return
        self._due.clear()  # what the screen shows may have changed
        self._desk.say(call.done or self._desk.words("desk.done"))
        self._desk.perform(screen.answered(call, answer.data))

    def _failed(self, answer: Answer, problem: Problem) -> None:
        what = "desk.unknown" if answer.done is None else "desk.not_done"
        text = self._desk.words(what, self.told(problem))
        self._desk.say(text)
        if cells(text) > self._desk.size[0]:
            self._desk.perform(Show(self._desk.words(f"{what}_title"), (text,)))

    # -- streams -----------------------------------------------------------------------------------

    def stream(self, wanted: Stream) -> None:
        """One at a time: an answer of the chat."""
        if self._streaming is not None:
            self._desk.say(self._desk.words("desk.streaming"))
            return
        self._streaming = self._desk.host.start(self._stream(self._desk.screen, wanted))

    async def _stream(self, screen: Screen, wanted: Stream) -> None:
        try:
            async with contextlib.aclosing(
                self._desk.link.stream(wanted.path, dict(wanted.body))
            ) as parts:
                async for part in parts:
                    if part.problem is not None:
                        screen.streamed(None, self.told(part.problem))
                        return
                    if part.data is not None:
                        screen.streamed(_text(part.data), None)
            screen.streamed(None, None)
        except asyncio.CancelledError:
            screen.streamed(None, None)
            raise
        finally:
            self._streaming = None

    def stop(self) -> None:
        """End the stream; its connection is closed, and the box ends the request."""
        if self._streaming is not None:
            self._streaming.cancel()


def _text(data: Any) -> str:
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
