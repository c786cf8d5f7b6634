"""Somebody else's streams while a test misbehaves: each of them must end complete."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.box.asking import ask, check_complete
from tests.box.running import RunningBox

TOKENS = 24


class Neighbour:
    """Asks for one stream after the other; `answers` counts the complete ones."""

    def __init__(self, box: RunningBox) -> None:
        self.answers = 0
        self.problem: BaseException | None = None
        self._box = box
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._live, name="neighbour")

    def _live(self) -> None:
        try:
            while self.answers == 0 or not self._enough.is_set():
                asked = ask(self._box, f"Story number {self.answers} begins:", max_tokens=TOKENS)
                check_complete(self._box, asked)
                self.answers += 1
        except BaseException as problem:
            self.problem = problem

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits for the stream that is under way."""
        self._enough.set()
        self._thread.join()


@contextmanager
def living_beside(box: RunningBox) -> Iterator[Neighbour]:
    """A neighbour for as long as the block lasts. Fails when one of its streams was disturbed."""
    neighbour = Neighbour(box)
    neighbour.start()
    try:
        yield neighbour
    finally:
        neighbour.stop()
    if neighbour.problem is not None:
        raise AssertionError("a neighbour's stream was disturbed") from neighbour.problem
    assert neighbour.answers > 0
