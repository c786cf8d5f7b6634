"""What others ask of the board: handed to the thread that owns the line, with an outcome each."""

from collections import deque
from concurrent.futures import Future

from firmware_bridge.commands import Command, Refusal
from firmware_bridge.events import Done, Event, Failed
from firmware_bridge.link import Link

Outcome = Done | Failed | Refusal
MOST = 16
"""Orders that wait for the thread at a time."""


class Orders:
    """`ask` may be called by any thread, the rest by the one that keeps the board."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Command, Future[Outcome]]] = deque()
        self._sent: dict[int, tuple[Command, Future[Outcome]]] = {}
        self._closed = False

    def ask(self, command: Command) -> Future[Outcome]:
        """What became of it, once that is known."""
        future: Future[Outcome] = Future()
        if self._closed or len(self._waiting) >= MOST:
            future.set_result(Refusal("the board is busy with other orders, or has been let go"))
        else:
            self._waiting.append((command, future))
            if self._closed:  # meanwhile: nobody looks there any more
                self.close()
        return future

    def send(self, link: Link) -> None:
        while self._waiting:
            command, future = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            sent = link.send(command)
            if isinstance(sent, Refusal):
                future.set_result(sent)
            else:
                self._sent[sent] = command, future

    def take(self, event: Event) -> Command | None:
        """The order that this event says was carried out; outcomes of all kinds are passed on."""
        if not isinstance(event, Done | Failed) or event.id not in self._sent:
            return None
        command, future = self._sent.pop(event.id)
        future.set_result(event)
        return command if isinstance(event, Done) else None

    def close(self) -> None:
        """Nobody carries anything out any more."""
        self._closed = True
        for _, future in [*self._waiting, *self._sent.values()]:
            if not future.done() and (future.running() or future.set_running_or_notify_cancel()):
                future.set_result(Refusal("the box is stopping"))
        self._waiting.clear()
        self._sent.clear()
