"""What the board answers. A command is obeyed once: a repeated number is answered from memory, an
older one not at all, and none before HELLO."""

import struct

from firmware_bridge import messages as m
from firmware_bridge.firmware.schema import CHANNELS, DESCRIPTIONS, SCHEMA, VERSION
from firmware_bridge.wire import ACKREQ, ERROR, REPLY, URGENT, Frame, WireError

NONCES_KEPT = 4
"""A late copy of an earlier HELLO is known by its nonce, and starts nothing anew."""


class Conversation:
    def __init__(self, board) -> None:  # type: ignore[no-untyped-def]
        self.streaming = False
        self.heard_ms: int | None = None
        """When the host last sent a sound frame."""
        self._board = board
        self._nonces: list[int] = []
        self._last: tuple[int, int] | None = None
        self._answer: tuple[int, bytes] = (0, b"")
        self._handlers = {
            m.PING: self._ping,
            m.HEARTBEAT: self._heartbeat,
            m.DESCRIBE: self._describe,
            m.STREAM: self._stream,
            m.WATCHDOG: self._watchdog,
            m.WATCHDOG_STOP: self._watchdog_stop,
            m.INHIBIT: self._inhibit,
            m.OUTPUT: self._output,
            m.UPDATE_STATE: self._update_state,
            m.UPDATE_BEGIN: self._update_begin,
            m.UPDATE_DATA: self._update_data,
            m.UPDATE_BOOT: self._update_boot,
            m.UPDATE_CONFIRM: self._update_confirm,
        }

    @property
    def greeted(self) -> bool:
        return self._last is not None

    def announce(self) -> None:
        """Tell a host that listens already that the board has booted."""
        self._board.line.send(URGENT, m.HELLO, 0, self.hello(0))

    def hear(self, frame: Frame, now: int) -> None:
        """`now` in milliseconds."""
        self.heard_ms = now
        if frame.type == m.CLOCK:
            ticks = struct.pack(m.CLOCK_TELL, self._board.hal.now_us())
            self._board.line.send(REPLY, m.CLOCK, frame.seq, ticks)
        elif frame.type == m.ACK:
            self._acknowledge(frame.payload)
        elif frame.type == m.HELLO:
            self._greet(frame, now)
        elif frame.flags & ACKREQ:
            self._obey(frame, now)

    def hello(self, nonce: int) -> bytes:
        board = self._board
        return struct.pack(
            m.HELLO_TELL,
            m.MAJOR,
            m.MINOR,
            nonce,
            board.boot_id,
            board.period_us,
            SCHEMA,
            len(CHANNELS),
            len(DESCRIPTIONS),
            VERSION[0],
            VERSION[1],
            VERSION[2],
            board.hal.reset_cause,
            board.power_cycles & 0xFFFF,
            0,
            board.hal.uid,
        )

    def _greet(self, frame: Frame, now: int) -> None:
        try:
            nonce = m.unpack(m.HELLO_ASK, frame.payload)[2]
        except WireError:
            return
        if nonce not in self._nonces:
            self._nonces = self._nonces[1 - NONCES_KEPT :]
            self._nonces.append(nonce)
            self._last = (m.HELLO, frame.seq)
            self._board.watchdog.greeted(now)
        self._board.line.send(REPLY, m.HELLO, frame.seq, self.hello(nonce))

    def _obey(self, frame: Frame, now: int) -> None:
        if self._last is None:
            self._send(frame, (REPLY | ERROR, bytes([m.NOT_GREETED])))
        elif (frame.type, frame.seq) == self._last:
            self._send(frame, self._answer)
        elif 0 < (frame.seq - self._last[1]) & 0xFFFF < 0x8000:
            self._last = (frame.type, frame.seq)
            self._answer = self._carry_out(frame, now)
            self._send(frame, self._answer)

    def _send(self, frame: Frame, answer: tuple[int, bytes]) -> None:
        self._board.line.send(answer[0], frame.type, frame.seq, answer[1])

    def _carry_out(self, frame: Frame, now: int) -> tuple[int, bytes]:
        handler = self._handlers.get(frame.type)
        try:
            result = m.UNKNOWN_TYPE if handler is None else handler(frame.payload, now)
        except WireError:
            result = m.BAD_LENGTH
        if isinstance(result, int):
            return (REPLY | ERROR, bytes([result])) if result else (REPLY, b"")
        return REPLY, result

    # Each gives an error code, 0 for an empty answer, or the answer.

    def _ping(self, payload: bytes, now: int) -> int | bytes:
        return payload

    def _heartbeat(self, payload: bytes, now: int) -> int | bytes:
        challenge = m.unpack(m.HEARTBEAT_ASK, payload)[0]
        dog = self._board.watchdog
        fed = dog.feed(challenge, self._board.hal.random32(), now)
        told = (fed, dog.shown_state(now), dog.timeout_ms, dog.left_ms(now), dog.challenge)
        return struct.pack(m.HEARTBEAT_TELL, *told)

    def _describe(self, payload: bytes, now: int) -> int | bytes:
        index = m.unpack(m.DESCRIBE_ASK, payload)[0]
        return DESCRIPTIONS[index] if index < len(DESCRIPTIONS) else m.BAD_ARGUMENT

    def _stream(self, payload: bytes, now: int) -> int | bytes:
        self.streaming = m.unpack(m.STREAM_ASK, payload)[0] != 0
        return 0

    def _watchdog(self, payload: bytes, now: int) -> int | bytes:
        timeout_ms, pre_ms, action, flags = m.unpack(m.WATCHDOG_ASK, payload)
        code: int = self._board.watchdog.configure(timeout_ms, pre_ms, action, flags, now)
        self._board.save()
        return code

    def _watchdog_stop(self, payload: bytes, now: int) -> int | bytes:
        word, challenge = m.unpack(m.WATCHDOG_STOP_ASK, payload)
        code: int = self._board.watchdog.stop(word, challenge)
        self._board.save()
        return code

    def _inhibit(self, payload: bytes, now: int) -> int | bytes:
        code: int = self._board.watchdog.inhibit(m.unpack(m.INHIBIT_ASK, payload)[0], now)
        return code

    def _output(self, payload: bytes, now: int) -> int | bytes:
        output, value, max_ms = m.unpack(m.OUTPUT_ASK, payload)
        code: int = self._board.outputs.ask(output, value, max_ms, now)
        return code

    def _update_state(self, payload: bytes, now: int) -> int | bytes:
        told: bytes = self._board.updater.tell(self._board.trial_left_ms(now))
        return told

    def _update_begin(self, payload: bytes, now: int) -> int | bytes:
        head_size, total = m.unpack(m.UPDATE_BEGIN_ASK, payload)
        code: int = self._board.updater.begin(head_size, total)
        return code

    def _update_data(self, payload: bytes, now: int) -> int | bytes:
        size = struct.calcsize(m.UPDATE_DATA_ASK)
        offset = m.unpack(m.UPDATE_DATA_ASK, payload[:size])[0]
        result: int | bytes = self._board.updater.data(offset, payload[size:])
        return result

    def _update_boot(self, payload: bytes, now: int) -> int | bytes:
        code: int = self._board.updater.boot()
        if not code:
            self._board.boot_soon(now)
        return code

    def _update_confirm(self, payload: bytes, now: int) -> int | bytes:
        version = m.unpack(m.UPDATE_CONFIRM_ASK, payload)[0]
        code: int = self._board.confirm(version, now)
        return code

    def _acknowledge(self, payload: bytes) -> None:
        try:
            number = m.unpack(m.ACK_ASK, payload)[0]
        except WireError:
            return
        if self._board.events.acknowledge(number):
            self._board.save()
