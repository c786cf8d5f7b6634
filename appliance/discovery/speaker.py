"""What is said on one network, and when (RFC 6762): probes, announcements, answers, goodbye. Pure.

- A name is ours once three probes, a quarter of a second apart, brought no other owner.
- Then two announcements, a second apart; then only answers. What was said within the last second
  is not said again, and what several may answer comes after a moment of chance.
- Another owner of a name takes it from us, at any time: then all begins anew with the next number.
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence

from appliance.discovery.service import Service
from appliance.discovery.wire import Kind, Message, Question, Record, encode, lower

_PROBES, _PROBE_S = 3, 0.25
_ANNOUNCEMENTS, _ANNOUNCE_S = 2, 1.0
_LEAST_S = 1.0
"""Between two times that the same is said."""
_CHANCE_S = (0.02, 0.12)
_LOST_S = 1.0
"""Whoever loses a name to another that probes for it at the same time waits so long."""
_LEGACY_TTL = 10
_MOST_NUMBER = 99


class Speaker:
    """One network's. `now` is seconds on any clock that only rises."""

    def __init__(
        self,
        service: Service,
        addresses: Sequence[str],
        now: float,
        chance: Callable[[], float],
        ours: Collection[str],
    ) -> None:
        """`addresses`: ours on this network; `ours`: all that the machine has. `chance` gives
        numbers from 0 to 1."""
        self.service = service
        self.addresses = tuple(addresses)
        self._ours = {*ours, *addresses}
        self._chance = chance
        self._said: dict[tuple[object, ...], float] = {}
        self._pending: dict[Record, None] = {}
        self._pending_at = 0.0
        self._begin(now)

    def _begin(self, now: float, wait_s: float = 0.0) -> None:
        self._steps = 0
        self._step_at = now + wait_s + self._chance() * _PROBE_S
        self._pending.clear()

    @property
    def probing(self) -> bool:
        """The names are not ours yet."""
        return self._steps <= _PROBES

    @property
    def wake_at(self) -> float | None:
        """When `due` has something to say; None: when somebody asks."""
        times = [self._step_at] if self._steps < _PROBES + 1 + _ANNOUNCEMENTS else []
        times += [self._pending_at] if self._pending else []
        return min(times, default=None)

    def due(self, now: float) -> list[bytes]:
        """Packets for everybody, that are to be sent now."""
        out = []
        if self._steps < _PROBES + 1 + _ANNOUNCEMENTS and now >= self._step_at:
            out += self._step(now)
        if self._pending and now >= self._pending_at:
            answers = tuple(self._pending)
            self._pending.clear()
            out.append(self._packet(answers, now))
        return out

    def _step(self, now: float) -> list[bytes]:
        """Steps 0 to 2 probe, step 3 finds the names ours, the rest announce."""
        self._steps += 1
        if self._steps <= _PROBES:
            self._step_at = now + _PROBE_S
            return [self._probe()]
        if self._steps == _PROBES + 1:
            self._step_at = now
            return []
        self._step_at = now + _ANNOUNCE_S
        answers = (*self.service.shared(), *self.service.unique(self.addresses))
        return [self._packet(answers, now)]

    def _probe(self) -> bytes:
        names = (self.service.instance, self.service.host_name)
        return encode(
            Message(
                response=False,
                questions=tuple(Question(name, Kind.ANY) for name in names),
                authorities=self.service.unique(self.addresses),
            )
        )

    def _packet(self, answers: tuple[Record, ...], now: float) -> bytes:
        for record in answers:
            self._said[record.identity] = now
        beside = self.service.beside(answers, self.addresses)
        return encode(Message(response=True, answers=answers, additionals=beside))

    def hear(self, now: float, message: Message, *, legacy: bool = False) -> bytes | None:
        """Takes what came. With `legacy` (an asker that knows DNS only) the answer to it alone."""
        if self._disputed(now, message) or message.response or self.probing:
            return None
        answers = self.service.answers(message.questions, self.addresses, message.answers)
        if not answers:
            return None
        if legacy:
            return self._for_one(message, answers)
        defended = bool(message.authorities)
        fresh = [one for one in answers if defended or self._said_before(one, now)]
        if fresh and not self._pending:
            shared = any(not one.flush for one in fresh)
            low, high = _CHANCE_S
            self._pending_at = now + (low + self._chance() * (high - low) if shared else 0.0)
        self._pending |= dict.fromkeys(fresh)
        return None

    def _said_before(self, record: Record, now: float) -> bool:
        """Long enough before to be said again."""
        return now - self._said.get(record.identity, -_LEAST_S) >= _LEAST_S

    def _for_one(self, message: Message, answers: list[Record]) -> bytes:
        plain = [
            dataclasses.replace(one, ttl=min(one.ttl, _LEGACY_TTL), flush=False) for one in answers
        ]
        reply = Message(
            response=True, questions=message.questions, answers=tuple(plain), id=message.id
        )
        return encode(reply)

    def _disputed(self, now: float, message: Message) -> bool:
        """Whether somebody else claims a name of ours; then it is theirs."""
        mine = self.service.unique(tuple(sorted(self._ours)))
        told = (*message.answers, *message.additionals) if message.response else ()
        if any(self._theirs(record, mine) for record in told):
            number = self.service.number + 1 if self.service.number < _MOST_NUMBER else 1
            self.service = dataclasses.replace(self.service, number=number)
            self._begin(now, _LOST_S if number > 9 else 0.0)
            return True
        if self.probing and self._steps and not message.response:
            claims = [record for record in message.authorities if self._theirs(record, mine)]
            about = {(lower(record.name), record.kind) for record in claims}
            ours = [one for one in mine if (lower(one.name), one.kind) in about]
            if claims and _rank(claims) > _rank(ours):
                self._begin(now, _LOST_S)
                return True
        return False

    @staticmethod
    def _theirs(record: Record, mine: Collection[Record]) -> bool:
        """A record of a name of ours that says something else; one that ends (ttl 0) says
        nothing."""
        name = lower(record.name)
        same = [one for one in mine if lower(one.name) == name and one.kind == record.kind]
        said = {_told(one) for one in same}
        return bool(same) and record.ttl > 0 and _told(record) not in said

    def goodbye(self) -> bytes | None:
        """That all of it ends; None if nothing was said yet."""
        if self.probing:
            return None
        records = (*self.service.shared()[:1], *self.service.unique(self.addresses))
        ended = tuple(dataclasses.replace(record, ttl=0) for record in records)
        return encode(Message(response=True, answers=ended))


def _told(record: Record) -> bytes:
    return record.data.lower() if record.kind in (Kind.PTR, Kind.SRV) else record.data


def _rank(records: Collection[Record]) -> list[tuple[int, bytes]]:
    """Of two that probe at the same time, the greater wins (RFC 6762, 8.2)."""
    return sorted((int(record.kind), record.data) for record in records)
