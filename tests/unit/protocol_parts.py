"""A conversation that has begun."""

from firmware_bridge.commands import Refusal, Stream
from firmware_bridge.events import Done, Failed
from tests.unit.board_parts import Pair


def greeted(seed: int = 1) -> Pair:
    pair = Pair(seed)
    pair.run(0.2)
    assert pair.session.state == "ready"
    return pair


def streaming(seed: int = 1) -> Pair:
    pair = greeted(seed)
    pair.session.send(Stream(True), pair.now)
    pair.run(0.05)
    return pair


def answer(pair: Pair, sent: int | Refusal) -> Done | Failed:
    found = [e for e in pair.events if isinstance(e, Done | Failed) and e.id == sent]
    assert len(found) == 1
    return found[0]
