"""HELLO and DESCRIBE: who the board is, and whether both ends read the same bytes the same way."""

import math
import struct
from dataclasses import replace

from firmware_bridge import messages as m
from firmware_bridge import parse
from firmware_bridge.commands import Refusal
from firmware_bridge.events import BoardInfo, Description
from firmware_bridge.wire import WireError

MOST = 1e6
"""Of a step, an offset and a sigma, in any unit."""
STEP = 0x9E3779B1
"""From one nonce to the next; odd, so that it takes 2³² greetings until one comes again."""


class Greeting:
    """What was asked and answered so far. A description is asked for only after the one before."""

    def __init__(self, seed: int) -> None:
        self.offered: BoardInfo | None = None
        """What the last HELLO told."""
        self._nonce = seed & 0xFFFFFFFF
        self._descriptions: list[bytes] = []

    def hello(self) -> bytes:
        """The payload of a new HELLO; answers to earlier ones are no longer believed."""
        self._nonce = (self._nonce + STEP) & 0xFFFFFFFF
        self._descriptions = []
        return struct.pack(m.HELLO_ASK, m.MAJOR, m.MAJOR, self._nonce)

    def describe(self) -> bytes:
        return struct.pack(m.DESCRIBE_ASK, len(self._descriptions))

    def on_hello(self, payload: bytes) -> BoardInfo:
        nonce, offered = parse.hello(payload)
        if nonce != self._nonce:
            raise WireError("nonce")
        self.offered = offered
        return offered

    def on_description(self, payload: bytes) -> bool:
        """Whether it was the last."""
        index, _ = parse.description(payload)
        if self.offered is None or index != len(self._descriptions):
            raise WireError("description out of turn")
        self._descriptions.append(payload)
        return len(self._descriptions) == self.offered.description_count

    def conclude(self) -> BoardInfo | Refusal:
        """The board with its descriptions, if they are the ones that its schema hash promised."""
        assert self.offered is not None
        parsed = [parse.description(payload)[1] for payload in self._descriptions]
        channels = tuple(d for d in parsed if d.kind == m.CHANNEL)
        outputs = tuple(d for d in parsed if d.kind == m.ACTUATOR)
        if m.schema_hash(self._descriptions) != self.offered.schema:
            return Refusal("the board's schema is not the one that this program was built with")
        if len(channels) != self.offered.channel_count:
            return Refusal("the board's channels are not all described")
        if not all(map(_sound, parsed)):
            return Refusal("the board describes what no sensor measures, or under no name")
        return replace(self.offered, channels=channels, outputs=outputs)


def _sound(told: Description) -> bool:
    """Numbers that can be reckoned with, and words that can be shown."""
    numbers = (told.scale, told.offset, told.sigma)
    words = told.name and (told.name + told.unit).isprintable()
    return bool(words) and all(math.isfinite(n) and abs(n) <= MOST for n in numbers)


def objection(offered: BoardInfo) -> str | None:
    """Why no conversation is possible, or None."""
    if offered.major != m.MAJOR:
        return f"the board speaks version {offered.major}, not {m.MAJOR}"
    sound = (
        0 < offered.channel_count <= m.MAX_CHANNELS
        and offered.channel_count <= offered.description_count <= m.MAX_DESCRIPTIONS
        and offered.period_us > 0
    )
    return None if sound else "the board describes what the protocol does not allow"


def same_schema(known: BoardInfo, offered: BoardInfo) -> bool:
    """Whether the descriptions that are known are those of the board that answers now."""
    return (known.schema, known.channel_count) == (offered.schema, offered.channel_count)
