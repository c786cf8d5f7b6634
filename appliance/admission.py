"""Whether a request may join the queue: a bound on its length, a bound on its tokens, and time.

A full queue is answered with 429 and a Retry-After that the queue's own speed suggests, so that
SDKs come back when there is room; a draining box answers 503.
"""

from collections.abc import Callable
from typing import Protocol

from appliance.errors import ApiError, Overloaded, Unavailable
from appliance.snapshot import EngineSnapshot, QueueSnapshot

_UNKNOWN_SPEED = 100.0
"""Tokens per second assumed until the engine has shown its own."""
_LONGEST_RETRY_S = 60.0


class Queue(Protocol):
    """What admission looks at; the supervisor is the real one."""

    @property
    def queue(self) -> QueueSnapshot: ...
    @property
    def snapshot(self) -> EngineSnapshot: ...


class Admission:
    """The gate before the queue. Belongs to the event loop."""

    def __init__(
        self,
        queue: Queue,
        *,
        max_requests: int,
        max_tokens: int,
        max_running: int,
        closed: Callable[[], ApiError | None] = lambda: None,
    ) -> None:
        """`closed`: why nothing is let in, whatever the queue is like; None: it is open."""
        self._queue = queue
        self._closed = closed
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._max_running = max_running
        self.draining = False

    def drain(self, on: bool) -> None:
        """While on, nothing new is admitted."""
        self.draining = on

    def admit(self, prompt_tokens: int, max_tokens: int, deadline_s: float | None) -> None:
        """Returns if the request may be submitted now. Raises Overloaded (429) or Unavailable
        (503), both with Retry-After."""
        if self.draining:
            raise Unavailable(
                "the box is draining and takes no new requests", retry_after=10, code="draining"
            )
        if (refusal := self._closed()) is not None:
            raise refusal
        queue = self._queue.queue
        if queue.running + queue.waiting < self._max_running:
            return
        if queue.waiting >= self._max_requests:
            raise Overloaded(
                f"the queue is full: {queue.waiting} requests wait (limits.queue_requests = "
                f"{self._max_requests}); try again later",
                retry_after=self._drain_time(queue),
            )
        if queue.waiting_tokens + prompt_tokens > self._max_tokens:
            raise Overloaded(
                f"the queue is full: {queue.waiting_tokens} prompt tokens wait "
                f"(limits.queue_tokens = {self._max_tokens}); try again later",
                retry_after=self._drain_time(queue),
            )
        self._check_deadline(queue, deadline_s)

    def _check_deadline(self, queue: QueueSnapshot, deadline_s: float | None) -> None:
        """Better a refusal now than a time-out later: the prompts ahead must be computed first."""
        if deadline_s is None:
            return
        wait = self._prompt_time(queue)
        if wait > deadline_s:
            raise Overloaded(
                f"the request would wait about {wait:.0f} s for the {queue.waiting} ahead of it, "
                f"longer than its deadline of {deadline_s:g} s",
                retry_after=min(wait, _LONGEST_RETRY_S),
                code="deadline_unreachable",
            )

    def _prompt_time(self, queue: QueueSnapshot) -> float:
        stats = self._queue.snapshot.stats
        seen = stats.prompt_seconds > 0 and stats.prompt_tokens > 0
        speed = stats.prompt_tokens / stats.prompt_seconds if seen else _UNKNOWN_SPEED
        return queue.waiting_tokens / max(speed, 1.0)

    def _drain_time(self, queue: QueueSnapshot) -> float:
        return min(max(self._prompt_time(queue), 1.0), _LONGEST_RETRY_S)
