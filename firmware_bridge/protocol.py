"""One conversation with the board, without I/O and without a clock: bytes and `now` go in, events
and bytes come out.

down → greeting (HELLO) → describing (DESCRIBE, once per schema) → ready. A board of another major
version or with another schema is `unusable`: it is still fed heartbeats, can be given new firmware,
and is greeted again later.
Silence, an unsolicited HELLO, another boot id and the answer NOT_GREETED all lead back to greeting.
Nothing that a board sends raises anything here, and nothing that it sends is kept without bound.
"""

import struct
from dataclasses import dataclass, replace
from typing import Literal

from firmware_bridge import messages as m
from firmware_bridge import parse
from firmware_bridge.commands import Command, Heartbeat, Refusal, Updating, check, encode
from firmware_bridge.events import (
    BoardInfo,
    BoardReset,
    Done,
    Event,
    Failed,
    Ready,
    Silent,
    Unusable,
)
from firmware_bridge.greeting import Greeting, objection, same_schema
from firmware_bridge.outbox import TRIES, Entry, Outbox
from firmware_bridge.readings import Readings
from firmware_bridge.wire import ERROR, REPLY, Decoder, Frame, WireError
from firmware_bridge.wire import encode as encode_frame

State = Literal["down", "greeting", "describing", "ready", "unusable"]

SILENCE = 2.5
"""Seconds. The board sends its counters once a second, whatever else happens."""
GREET_SOON = 0.3
GREET_AGAIN = 10.0
"""Seconds until a board is greeted again that was reset while it was greeted, or is unusable."""
MAX_OUTGOING = 8192
"""Bytes that wait for the line. Beyond it events are not acknowledged; the board repeats them."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the session was made."""

    frames: int = 0
    bad: int = 0
    ignored: int = 0
    """Sound frames that had no place in the conversation: late answers, samples before HELLO."""
    samples: int = 0
    lost: int = 0
    duplicates: int = 0
    retries: int = 0
    resets: int = 0


class Session:
    """Call `receive(b"", now)` when `deadline()` has passed; write what `outgoing()` returns."""

    def __init__(self, seed: int) -> None:
        """`seed` should differ each time: it starts the nonces and the numbers of commands."""
        self.state: State = "down"
        self.board: BoardInfo | None = None
        self.readings = Readings()
        self._greeting = Greeting(seed)
        self._outbox = Outbox(seed & 0xFFFF)
        self._decoder = Decoder()
        self._events: list[Event] = []
        self._outgoing: list[bytes] = []
        self._next_id = 0
        self._challenge = 0
        self._heard = 0.0
        self._silent = False
        self._greet_at: float | None = None
        self._counts = {"frames": 0, "ignored": 0, "bad": 0, "resets": 0}

    # The owner's side

    def connected(self, now: float) -> None:
        """The line is open."""
        self._decoder.reset()
        self._outgoing.clear()
        self._heard = now
        self._silent = False
        self._greet(now)

    def disconnected(self) -> list[Event]:
        """The line is gone. What was under way has failed."""
        self._fail_all("the line was lost")
        self._outgoing.clear()
        self.state = "down"
        self._greet_at = None
        return self._take_events()

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Whatever the line gave, also nothing; and what is due by now."""
        for frame in self._decoder.feed(data):
            self._counts["frames"] += 1
            self._heard = now
            try:
                self._handle(frame, now)
            except WireError:
                self._counts["bad"] += 1
        if self.state != "down":
            self._run_timers(now)
        return self._take_events()

    def send(self, command: Command, now: float) -> int | Refusal:
        """The id under which `Done` or `Failed` will come, or why the command was not taken."""
        usable = self.state == "ready" or (
            self.state == "unusable" and isinstance(command, Heartbeat | Updating)
        )
        if not usable:
            return Refusal(f"the board is not ready: {self.state}")
        if self._outbox.full:
            return Refusal("too many commands wait")
        if refusal := check(command):
            return refusal
        self._next_id += 1
        self._outbox.put(Entry(self._next_id, command), first=isinstance(command, Heartbeat))
        self._start_next(now)
        return self._next_id

    def outgoing(self) -> bytes:
        """What is to be written now. Each byte is given out once."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def deadline(self) -> float | None:
        """When `receive` wants to be called at the latest; None while the line is down."""
        if self.state == "down":
            return None
        times = [self._heard + SILENCE] if not self._silent else []
        if self._outbox.in_flight is not None:
            times.append(self._outbox.in_flight.due)
        if self.state == "ready":
            times.append(self.readings.probe_at)
        if self._greet_at is not None:
            times.append(self._greet_at)
        return min(times, default=None)

    @property
    def counters(self) -> Counters:
        bad = self._counts["bad"] + self._decoder.bad
        account = self.readings.account
        return Counters(
            self._counts["frames"],
            bad,
            self._counts["ignored"],
            account.arrived,
            account.lost,
            account.duplicates,
            self._outbox.retries,
            self._counts["resets"],
        )

    # Time

    def _run_timers(self, now: float) -> None:
        entry = self._outbox.in_flight
        if entry is not None and now >= entry.due:
            self._repeat(entry, now)
        if not self._silent and now - self._heard >= SILENCE:
            self._silent = True
            self._tell(Silent(now - self._heard))
            self._greet(now)
        if self._greet_at is not None and now >= self._greet_at:
            self._greet(now)
        if self.state == "ready" and now >= self.readings.probe_at:
            self._outgoing.append(self.readings.probe(now))

    def _repeat(self, entry: Entry, now: float) -> None:
        if entry.tries < TRIES:
            self._outgoing.append(self._outbox.transmit(entry, now))
            return
        self._outbox.give_up()
        if entry.command is None:
            self._greet(now)
        else:
            self._tell(Failed(entry.id, "no answer"))
            self._start_next(now)

    # Greeting

    def _greet(self, now: float) -> None:
        self._fail_all("the board is greeted anew: whether it obeyed is unknown")
        self.state = "greeting"
        self._greet_at = None
        self._ask(m.HELLO, self._greeting.hello(), now)

    def _ask(self, kind: int, payload: bytes, now: float) -> None:
        self._outbox.put(Entry(0, None, kind, payload), first=True)
        self._start_next(now)

    def _on_hello(self, payload: bytes, now: float) -> None:
        before = self._greeting.offered
        offered = self._greeting.on_hello(payload)
        self._silent = False
        if before is not None and before.boot_id != offered.boot_id:
            self._note_reset(before.boot_id, offered.boot_id)
        if reason := objection(offered):
            self._refuse(reason, now)
        elif (known := self.board) is not None and same_schema(known, offered):
            self._use(replace(offered, channels=known.channels, outputs=known.outputs), now)
        else:
            self.state = "describing"
            self._ask(m.DESCRIBE, self._greeting.describe(), now)

    def _note_reset(self, old: int, new: int) -> None:
        self._counts["resets"] += 1
        self.readings.restart()
        self._tell(BoardReset(old, new))

    def _on_description(self, payload: bytes, now: float) -> None:
        if not self._greeting.on_description(payload):
            self._ask(m.DESCRIBE, self._greeting.describe(), now)
            return
        concluded = self._greeting.conclude()
        if isinstance(concluded, Refusal):
            self._refuse(concluded.reason, now)
        else:
            self._use(concluded, now)

    def _use(self, board: BoardInfo, now: float) -> None:
        self.board = board
        self.state = "ready"
        self.readings.begin_probing(now)
        self._tell(Ready(board))

    def _refuse(self, reason: str, now: float) -> None:
        self.state = "unusable"
        self._greet_at = now + GREET_AGAIN
        self._tell(Unusable(reason))

    # Frames

    def _handle(self, frame: Frame, now: float) -> None:
        if frame.flags & REPLY:
            self._on_reply(frame, now)
        elif frame.type == m.EVENT and self.state == "ready":
            self._on_event(frame.payload)
        elif frame.type == m.HELLO and self.state != "greeting":
            self._greet(now)
        elif frame.type == m.TELEMETRY and self.state == "ready":
            assert self.board is not None
            self._events += self.readings.on_samples(frame, self.board.channel_count)
        elif frame.type == m.STATS and self.state == "ready":
            self._on_stats(frame.payload, now)
        else:
            self._counts["ignored"] += 1

    def _on_reply(self, frame: Frame, now: float) -> None:
        if frame.type == m.CLOCK:
            believed = self.state == "ready" and self.readings.on_clock(frame, now)
            self._counts["ignored"] += not believed
            return
        entry = self._outbox.answered(frame.type, frame.seq, now)
        if entry is None:
            self._counts["ignored"] += 1
            return
        try:
            self._conclude_entry(entry, frame, now)
        except WireError:
            if entry.command is None:
                self._refuse("the board answers the greeting with another layout", now)
            else:
                self._tell(Failed(entry.id, "the answer is garbled"))
            raise
        finally:
            self._start_next(now)

    def _conclude_entry(self, entry: Entry, frame: Frame, now: float) -> None:
        if frame.flags & ERROR:
            self._on_refused(entry, frame.payload[0] if frame.payload else 0, now)
        elif entry.type == m.HELLO:
            self._on_hello(frame.payload, now)
        elif entry.type == m.DESCRIBE:
            self._on_description(frame.payload, now)
        elif entry.type == m.HEARTBEAT:
            self._on_fed(entry, frame.payload, now)
        else:
            self._tell(Done(entry.id, frame.payload, now - entry.sent))

    def _on_refused(self, entry: Entry, code: int, now: float) -> None:
        if entry.command is None:
            if entry.type == m.DESCRIBE and code == m.NOT_GREETED:  # it was reset in between
                self._greet_at = now + GREET_SOON
            else:
                self._refuse(f"the board refused the greeting (error {code})", now)
            return
        self._tell(Failed(entry.id, "the board refused", code))
        if code == m.NOT_GREETED:
            self._greet(now)

    def _on_fed(self, entry: Entry, payload: bytes, now: float) -> None:
        fed, self._challenge = parse.fed(payload)
        if not fed.fed and entry.again and not self._outbox.full:
            self._outbox.put(Entry(entry.id, entry.command, again=False), first=True)
            return
        self._tell(fed)
        self._tell(Done(entry.id, payload, now - entry.sent))

    def _on_event(self, payload: bytes) -> None:
        happened, new = self.readings.on_event(payload)
        if sum(map(len, self._outgoing)) < MAX_OUTGOING:
            acknowledged = struct.pack(m.ACK_ASK, happened.number)
            self._outgoing.append(encode_frame(0, m.ACK, 0, 0, acknowledged))
        if new:
            self._tell(happened)

    def _on_stats(self, payload: bytes, now: float) -> None:
        boot_id, stats = parse.stats(payload)
        if self.board is not None and boot_id != self.board.boot_id:
            self._greet(now)
        else:
            self._tell(stats)

    # Small change

    def _start_next(self, now: float) -> None:
        if entry := self._outbox.take_next():
            if entry.command is not None:
                entry.type, entry.payload = encode(entry.command, self._challenge)
            self._outgoing.append(self._outbox.transmit(entry, now))

    def _fail_all(self, reason: str) -> None:
        for entry in self._outbox.drain():
            if entry.command is not None:
                self._tell(Failed(entry.id, reason))

    def _tell(self, event: Event) -> None:
        self._events.append(event)

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events
