"""One thread that does small jobs for the event loop, the most urgent first."""

import asyncio
import itertools
import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

Job = Callable[[], None]


class Errands:
    """Started, stopped and given work by the event loop; its jobs may give it more."""

    def __init__(self, name: str, amiss: str) -> None:
        """`name`: the thread's. `amiss`: what the log says when a job fails, by a bug of ours."""
        self.failed = 0
        """Jobs that raised."""
        self._name, self._amiss = name, amiss
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: queue.PriorityQueue[tuple[int, int, Job]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None

    def start(self, first: Job) -> None:
        """Begins with that job."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._run, args=(first,), name=self._name, daemon=True
        )
        self._thread.start()

    async def close(self, within_s: float) -> None:
        """Ends after the job it is at, if that ends in time; jobs that wait are dropped."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put((-1, 0, _leave))
            await asyncio.to_thread(thread.join, within_s)

    def put(self, order: int, job: Job) -> None:
        """Of what waits the lowest `order` is done first, else what came first. Nothing happens
        where it does not run."""
        if self._thread is not None:
            self._jobs.put((order, next(self._numbers), job))

    def tell(self, call: Job) -> None:
        """Does `call` on the event loop, if that still runs."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop has closed: nobody is left to hear it
            return

    def _run(self, first: Job) -> None:
        job = first
        while job is not _leave:
            try:
                job()
            except Exception:  # a thread's top: the next job may be done all the same
                self.failed += 1
                log.exception(self._amiss)
            _, _, job = self._jobs.get()


def _leave() -> None:
    """The thread's last job."""
