"""Whose job is prepared next. Pure.

Rules
1. Keys are served in turn, and the jobs of one key in order of arrival: nobody waits for more than
   one job of each other key.
2. A job that has to be tried again comes before all.
3. Where no more may wait, the key with most jobs gives way: its newest job makes room for one of a
   key that has fewer even with it. So a key may use the whole queue, but only while nobody else
   wants it.
"""

import contextlib
from collections import OrderedDict, deque
from typing import Generic, TypeVar

JobT = TypeVar("JobT")


class Turns(Generic[JobT]):
    """Jobs that wait, by key; requests without a key count as one."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[JobT]] = OrderedDict()
        """None is empty. The first one is served next."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def join(self, key: str, job: JobT) -> None:
        """A job that came now."""
        self._lines.setdefault(key, deque()).append(job)
        self._count += 1

    def again(self, key: str, job: JobT) -> None:
        """A job that was taken, back in front of all."""
        self._lines.setdefault(key, deque()).appendleft(job)
        self._lines.move_to_end(key, last=False)
        self._count += 1

    def next(self) -> JobT:
        """Takes the next one; there must be one."""
        key, line = next(iter(self._lines.items()))
        job = line.popleft()
        self._took(key)
        if line:
            self._lines.move_to_end(key)
        return job

    def leave(self, key: str, job: JobT) -> None:
        """A job that is wanted no more; it may have been taken already."""
        with contextlib.suppress(ValueError, KeyError):
            self._lines[key].remove(job)
            self._took(key)

    def may_give_way(self, key: str) -> bool:
        """Whether somebody would make room for a job of this key."""
        return self._greediest(key) is not None

    def give_way(self, key: str) -> JobT | None:
        """Takes the job that makes room for one of this key; None: nobody has to."""
        greedy = self._greediest(key)
        if greedy is None:
            return None
        job = self._lines[greedy].pop()
        self._took(greedy)
        return job

    def _greediest(self, key: str) -> str | None:
        most = max(self._lines, key=lambda each: len(self._lines[each]), default=None)
        mine = len(self._lines.get(key, ()))
        return most if most is not None and len(self._lines[most]) > mine + 1 else None

    def _took(self, key: str) -> None:
        self._count -= 1
        if not self._lines[key]:
            del self._lines[key]
