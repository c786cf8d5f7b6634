"""The line to the host as the board sees it: what is sent waits here, within bounds."""

from firmware_bridge.wire import Decoder, Frame, encode

MAX_TELEMETRY = 1024
MAX_WAITING = 4096
"""Bytes. Telemetry that finds more than 1 KiB waiting is dropped, all else at 4 KiB."""


class Line:
    def __init__(self, hal) -> None:  # type: ignore[no-untyped-def]
        self.accepted = 0
        self.unsent = 0
        """Frames dropped because the host does not read."""
        self._hal = hal
        self._decoder = Decoder()
        self._waiting: list[bytes] = []
        self._bytes = 0

    @property
    def refused(self) -> int:
        return self._decoder.bad

    def send(
        self, flags: int, kind: int, seq: int, payload: bytes, limit: int = MAX_WAITING
    ) -> None:
        if self._bytes > limit:
            self.unsent += 1
            return
        data = encode(flags, kind, seq, self._hal.now_us(), payload)
        self._waiting.append(data)
        self._bytes += len(data)

    def flush(self) -> None:
        """Write what the line takes now."""
        while self._waiting:
            data = self._waiting[0]
            taken = self._hal.write(data)
            if not taken:
                return
            self._bytes -= taken
            if taken < len(data):
                self._waiting[0] = data[taken:]
            else:
                self._waiting.pop(0)

    def receive(self) -> list[Frame]:
        data = self._hal.read()
        if not data:
            return []
        frames = self._decoder.feed(data)
        self.accepted += len(frames)
        return frames
