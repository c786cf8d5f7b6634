"""A serial device opened with pyserial, waited for with `poll`.

pyserial's own waits are `select`'s, which takes no descriptor above 1023. A daemon with that many
connections could not come back to a board whose cable was out for a moment, and the board would cut
its power for that.
"""

import errno
import os
import select
import time
from contextlib import suppress

import serial

_REASONS = {
    errno.ENOENT: "there is no such device",
    errno.EACCES: "this user may not open it: it belongs to a group such as dialout",
    errno.EAGAIN: "another program has it open",
    errno.EBUSY: "another program has it open",
}
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def why(fault: Exception) -> str:
    """In words, why the device cannot be used. pyserial says some things by number alone."""
    number = getattr(fault, "errno", None)
    if number is not None:
        return _REASONS.get(number) or os.strerror(number)
    text = str(fault) or type(fault).__name__
    return "it is no serial port" if text.startswith("Could not configure port") else text


class Port(serial.Serial):  # type: ignore[misc]
    """Reads and writes as pyserial does with time-outs. For one thread; any other may call
    `cancel_read`."""

    def read(self, size: int = 1) -> bytes:
        """What has come, `size` bytes at most; waits `timeout` seconds for the first of them.
        Raises SerialException when the device is gone."""
        if not self._wait(select.POLLIN, self.fd, self.pipe_abort_read_r, self.timeout or 0.0):
            return b""
        with suppress(BlockingIOError):
            if found := os.read(self.fd, size):
                return found
            raise serial.SerialException("the device has nothing to read: it was unplugged")
        return b""

    def write(self, data: bytes) -> int:
        """All of it. Raises SerialException, after `write_timeout` seconds among others."""
        left = memoryview(data)
        until = time.monotonic() + (self.write_timeout or 0.0)
        while left:
            wait = max(0.0, until - time.monotonic())
            if not self._wait(select.POLLOUT, self.fd, self.pipe_abort_write_r, wait):
                raise serial.SerialTimeoutException("the device takes nothing")
            with suppress(BlockingIOError):
                left = left[os.write(self.fd, left) :]
        return len(data)

    def _wait(self, event: int, device: int, abort: int, seconds: float) -> bool:
        """Whether the device is ready; False after that time, or when somebody ends the wait."""
        waits = select.poll()
        waits.register(device, event)
        waits.register(abort, select.POLLIN)
        happened = dict(waits.poll(seconds * 1000))
        if abort in happened:
            os.read(abort, 1000)
            return False
        if happened.get(device, 0) & event:
            return True
        if happened.get(device, 0) & _GONE:
            raise serial.SerialException("the device is gone")
        return False
