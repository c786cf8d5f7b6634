"""The conversation with the board over pipes that lose, repeat, delay and reorder.

The board at the other end is the real firmware's logic, run by CPython on the test's own clock.
"""

import random
import struct
from itertools import pairwise

import pytest

from firmware_bridge import messages as m
from firmware_bridge.commands import (
    ConfigureWatchdog,
    Heartbeat,
    Inhibit,
    Output,
    Ping,
    Refusal,
    StopWatchdog,
    Stream,
)
from firmware_bridge.events import (
    BoardReset,
    Done,
    Failed,
    Fed,
    Happened,
    Lost,
    Ready,
    Samples,
    Silent,
    Unusable,
)
from firmware_bridge.firmware import conversation, schema
from firmware_bridge.wire import REPLY, Decoder, encode
from tests.unit.board_parts import Pair, only
from tests.unit.protocol_parts import answer, greeted, streaming


class Faulty(Pair):
    """Loses, repeats and damages frames, in both directions, after a script of chances."""

    def __init__(self, seed: int, *, lose: float = 0, repeat: float = 0, damage: float = 0) -> None:
        self.dice = random.Random(seed)
        self.chances = (lose, repeat, damage)
        super().__init__(seed)

    def to_board(self, data: bytes) -> bytes:
        return self.spoil(data)

    def to_host(self, data: bytes) -> bytes:
        return self.spoil(data)

    def spoil(self, data: bytes) -> bytes:
        lose, repeat, damage = self.chances
        out = bytearray()
        for piece in data.split(b"\0"):
            if piece and self.dice.random() >= lose:
                changed = bytearray(piece)
                if self.dice.random() < damage:
                    changed[self.dice.randrange(len(changed))] ^= 1 << self.dice.randrange(8)
                out += b"\0" + bytes(changed) + b"\0"
                out += (bytes(changed) + b"\0") * (self.dice.random() < repeat)
        return bytes(out)


def test_board_is_greeted_and_describes_itself() -> None:
    pair = greeted()
    (ready,) = only(pair.events, Ready)
    assert ready.board.boot_id == pair.board.boot_id
    assert [c.name for c in ready.board.channels] == [row[0] for row in schema.CHANNELS]
    assert [o.name for o in ready.board.outputs] == [row[0] for row in schema.OUTPUTS]


def test_greeting_survives_a_bad_line() -> None:
    pair = Faulty(3, lose=0.3, repeat=0.2, damage=0.1)
    pair.run(20)
    assert pair.session.state == "ready"


def test_samples_come_with_exact_indices() -> None:
    pair = streaming()
    events = only(pair.run(1.0), Samples)
    indices = [e.first + row for e in events for row in range(len(e.rows))]
    assert indices == list(range(indices[0], indices[0] + len(indices)))
    assert 990 <= len(indices) <= 1010
    assert pair.session.counters.lost == 0


def account_of(pair: Pair) -> tuple[int, int]:
    """Indices that arrived (each once), and those between first and last that did not."""
    got = [e.first + row for e in only(pair.events, Samples) for row in range(len(e.rows))]
    assert len(got) == len(set(got))
    return len(got), max(got) - min(got) + 1 - len(got)


@pytest.mark.parametrize("seed", range(5))
def test_loss_is_counted_exactly_on_a_line_that_loses_and_repeats(seed: int) -> None:
    pair = Faulty(seed, lose=0.1, repeat=0.1, damage=0.1)
    pair.run(5)
    pair.session.send(Stream(True), pair.now)
    pair.run(5)
    counters = pair.session.counters
    assert (counters.samples, counters.lost) == account_of(pair)
    assert counters.lost > 100
    assert sum(e.count for e in only(pair.events, Lost)) == counters.lost


class Shuffled(Pair):
    """Delivers the board's frames some turns late, in any order, some twice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.late: list[tuple[float, bytes]] = []
        self.shuffle = False
        super().__init__(seed)

    def to_host(self, data: bytes) -> bytes:
        if not self.shuffle:
            return data
        for piece in data.split(b"\0"):
            if piece:
                times = 1 + (self.dice.random() < 0.2)
                self.late += [(self.now + self.dice.random() * 0.05, piece)] * times
        due = [piece for at, piece in self.late if at <= self.now]
        self.late = [(at, piece) for at, piece in self.late if at > self.now]
        self.dice.shuffle(due)
        return b"".join(b"\0" + piece + b"\0" for piece in due)


def test_frames_that_come_late_are_not_lost_and_repeated_ones_are_taken_once() -> None:
    pair = Shuffled(2)
    pair.run(0.2)
    pair.session.send(Stream(True), pair.now)
    pair.run(0.1)
    pair.shuffle = True
    pair.run(2)
    pair.session.send(Stream(False), pair.now)
    pair.run(1)
    assert account_of(pair)[1] == 0
    assert pair.session.counters.lost == 0
    assert pair.session.counters.duplicates > 50
    assert only(pair.events, Lost)


@pytest.mark.parametrize("seed", range(4))
def test_commands_are_carried_out_at_most_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Faulty(seed, lose=0.25, repeat=0.3)
    pair.run(10)
    obeyed: list[int] = []
    ask = pair.board.outputs.ask

    def record(output: int, value: int, max_ms: int, now: int) -> int:
        obeyed.append(value)
        return ask(output, value, max_ms, now)

    monkeypatch.setattr(pair.board.outputs, "ask", record)
    sent = {}
    for value in range(40):
        number = pair.session.send(Output(0, value, 1000), pair.now)
        if isinstance(number, int):
            sent[number] = value
        pair.run(0.3)
    pair.run(5)
    assert len(obeyed) == len(set(obeyed))
    outcomes = {e.id: e for e in pair.events if isinstance(e, Done | Failed)}
    assert set(outcomes) == set(sent)
    done = {sent[number] for number, e in outcomes.items() if isinstance(e, Done)}
    assert done <= set(obeyed)
    assert len(done) > 20
    assert pair.session.counters.retries > 5


def test_old_bytes_are_not_obeyed_again() -> None:
    pair = greeted()
    pair.session.send(Output(0, 900, 60_000), pair.now)
    recorded = pair.session.outgoing()
    pair.hal.received += recorded
    pair.run(0.1)
    pair.session.send(Output(0, 300, 60_000), pair.now)
    pair.run(0.1)
    pair.hal.received += recorded
    pair.run(0.1)
    assert pair.hal.driven[0] < 900


def test_late_copy_of_an_old_greeting_makes_no_old_command_young() -> None:
    pair = Pair()
    greeting = pair.session.outgoing()
    pair.hal.received += greeting
    pair.run(0.2)
    pair.session.send(Output(0, 900, 60_000), pair.now)
    command = pair.session.outgoing()
    pair.hal.received += command
    pair.run(0.1)
    pair.session.connected(pair.now)
    pair.run(0.2)
    pair.session.send(Output(0, 300, 60_000), pair.now)
    pair.run(0.1)
    pair.hal.received += greeting + command
    pair.run(0.1)
    assert pair.hal.driven[0] < 900


def test_nothing_is_obeyed_before_hello() -> None:
    pair = greeted()
    pair.reboot()
    sent = pair.session.send(Output(0, 900, 60_000), pair.now)
    pair.run(0.3)
    assert isinstance(answer(pair, sent), Failed)
    assert pair.hal.driven[0] < 900
    assert pair.session.state == "ready"


def test_reset_of_the_board_is_detected_and_its_indices_begin_anew() -> None:
    pair = streaming()
    pair.run(0.5)
    before = pair.session.counters
    pair.reboot()
    pair.run(0.5)
    assert len(only(pair.events, BoardReset)) == 1
    assert len(only(pair.events, Ready)) == 2
    pair.session.send(Stream(True), pair.now)
    events = only(pair.run(0.2), Samples)
    assert events[0].first < 1000
    assert pair.session.counters.lost == before.lost == 0


def test_board_that_is_reset_while_it_describes_itself_is_greeted_again() -> None:
    pair = Pair()
    while pair.session.state != "describing":
        pair.turn()
    pair.hal.kept.clear()
    pair.reboot(announced=False)
    pair.run(1)
    assert len(only(pair.events, Ready)) == 1
    assert not only(pair.events, Unusable)


def test_reset_that_was_not_announced_is_detected_by_the_boards_counters() -> None:
    pair = greeted()
    pair.reboot(announced=False)
    pair.run(0.5)
    assert len(only(pair.events, BoardReset)) == 1
    assert pair.session.state == "ready"


def test_silence_is_told_once_and_ends_with_a_greeting() -> None:
    pair = streaming()
    now = pair.now
    events = []
    for step in range(100):
        events += pair.session.receive(b"", now + step / 10)
        assert len(pair.session.outgoing()) < 200
    assert len(only(events, Silent)) == 1
    pair.hal.us += 10_000_000
    assert len(only(pair.run(3), Ready)) == 1


def test_commands_under_way_fail_when_the_line_goes() -> None:
    pair = greeted()
    sent = [pair.session.send(Ping(), pair.now) for _ in range(3)]
    failed = only(pair.session.disconnected(), Failed)
    assert [e.id for e in failed] == sent
    assert pair.session.deadline() is None
    assert isinstance(pair.session.send(Ping(), pair.now), Refusal)


def test_too_many_commands_are_refused() -> None:
    pair = greeted()
    outcomes = [pair.session.send(Ping(), pair.now) for _ in range(200)]
    assert sum(isinstance(outcome, Refusal) for outcome in outcomes) > 100


@pytest.mark.parametrize(
    "command",
    [
        Output(0, 70_000, 10),
        Output(0, 10, 0),
        Output(-1, 10, 10),
        Inhibit(901),
        Ping(bytes(243)),
        ConfigureWatchdog(10, 5),
        ConfigureWatchdog(1000, 1000),
        Heartbeat(health=-1),
    ],
    ids=str,
)
def test_values_out_of_bounds_are_refused(command: Output | Inhibit | Ping) -> None:
    pair = greeted()
    assert isinstance(pair.session.send(command, pair.now), Refusal)


def test_heartbeat_echoes_the_challenge_and_a_recorded_one_does_not_feed() -> None:
    pair = greeted()
    pair.session.send(Heartbeat(), pair.now)
    pair.run(0.1)
    pair.session.send(ConfigureWatchdog(1000, 700), pair.now)
    pair.run(0.1)
    pair.session.send(Heartbeat(), pair.now)
    recorded = pair.session.outgoing()
    pair.hal.received += recorded
    pair.run(0.6)
    assert all(e.fed for e in only(pair.events, Fed))
    (beat,) = Decoder().feed(recorded)
    for number in range(20):
        seq = beat.seq + 100 + number
        pair.hal.received += encode(beat.flags, beat.type, seq, 0, beat.payload)
        pair.run(0.1)
    kinds = [e.kind for e in only(pair.events, Happened)]
    assert kinds[-2:] == [m.EV_PRETIMEOUT, m.EV_CYCLE]


def test_board_that_cannot_be_stopped_refuses_to_be() -> None:
    pair = greeted()
    pair.session.send(Heartbeat(), pair.now)
    pair.session.send(ConfigureWatchdog(1000, 700), pair.now)
    sent = pair.session.send(StopWatchdog(), pair.now)
    pair.run(0.1)
    outcome = answer(pair, sent)
    assert isinstance(outcome, Failed)
    assert outcome.code == m.DENIED


def test_board_of_another_version_gets_heartbeats_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    real = pair.board.conversation.hello
    monkeypatch.setattr(pair.board.conversation, "hello", lambda n: b"\x02" + real(n)[1:])
    pair.run(0.3)
    (told,) = only(pair.events, Unusable)
    assert "version 2" in told.reason
    assert isinstance(pair.session.send(Stream(True), pair.now), Refusal)
    sent = pair.session.send(Heartbeat(), pair.now)
    pair.run(0.1)
    assert isinstance(answer(pair, sent), Done)


def test_board_with_another_schema_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "SCHEMA", schema.SCHEMA ^ 1)
    pair = Pair()
    pair.run(1)
    assert "schema" in only(pair.events, Unusable)[0].reason
    assert not only(pair.events, Ready)
    monkeypatch.undo()
    assert len(only(pair.run(11), Ready)) == 1


def test_events_are_told_once_and_acknowledged() -> None:
    pair = greeted()
    pair.board.happen(m.BUTTON, 7)
    pair.run(1)
    assert [e.argument for e in only(pair.events, Happened) if e.kind == m.BUTTON] == [7]
    assert pair.board.events.dump() == []


def test_event_whose_acknowledgement_was_lost_is_acknowledged_again_and_told_once() -> None:
    pair = greeted()
    event = encode(0, m.EVENT, 0, 0, struct.pack(m.EVENT_TELL, m.BUTTON, 77, 0, 5))
    told = [pair.session.receive(event, pair.now) for _ in range(3)]
    assert [len(only(events, Happened)) for events in told] == [1, 0, 0]
    acknowledged = [f for f in Decoder().feed(pair.session.outgoing()) if f.type == m.ACK]
    assert len(acknowledged) == 3


def test_unanswered_command_is_sent_five_times_with_growing_pauses() -> None:
    pair = greeted()
    pair.session.send(Ping(), pair.now)
    sent, events, now = [], [], pair.now
    for _ in range(2000):
        events += pair.session.receive(b"", now)
        if any(frame.type == m.PING for frame in Decoder().feed(pair.session.outgoing())):
            sent.append(now)
        now += 0.001
    pauses = [after - before for before, after in pairwise(sent)]
    assert len(sent) == 5
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * pauses[0]
    assert [event.reason for event in only(events, Failed)] == ["no answer"]


def test_answers_that_nobody_waits_for_are_ignored() -> None:
    pair = greeted()
    before = pair.session.counters.ignored
    pair.session.receive(encode(REPLY, m.PING, 999, 0, b""), pair.now)
    assert pair.session.counters.ignored == before + 1
