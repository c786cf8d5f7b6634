"""Several requests under way at once, each answer kept as it comes."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.study.asking import Box, NotAnswered
from appliance.study.store import Answer, Store

Tick = Callable[[], object]
"""Called once per answer."""


@dataclass(frozen=True, slots=True)
class Job:
    """One request, under a name that is the same in every run."""

    key: str
    body: Mapping[str, Any]


def unanswered(jobs: Iterable[Job], store: Store) -> list[Job]:
    """Those that the store has no answer to. What the box refused is asked again: what it refuses
    for good costs nothing."""
    known = {answer.key for answer in answered(store.done.values())}
    return [job for job in jobs if job.key not in known]


def run(jobs: Sequence[Job], box: Box, store: Store, parallel: int, tick: Tick) -> None:
    """Asks all of them, `parallel` at a time, and keeps the answers. Raises StudyError; what came
    until then is kept. Threads are daemons: Ctrl-C ends the requests with the process."""
    waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    came: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
    over = threading.Event()
    for job in (*jobs, *[None] * parallel):
        waiting.put(job)
    for _ in range(parallel):
        threading.Thread(target=_work, args=(waiting, came, box, over), daemon=True).start()
    try:
        for _ in jobs:
            answer = came.get()
            if isinstance(answer, Exception):
                raise answer
            store.add(answer)
            tick()
    finally:
        over.set()


def _work(
    waiting: "queue.SimpleQueue[Job | None]",
    came: "queue.SimpleQueue[Answer | Exception]",
    box: Box,
    over: threading.Event,
) -> None:
    while (job := waiting.get()) is not None and not over.is_set():
        try:
            came.put(ask(job, box))
        except Exception as error:
            came.put(error)
            return


def ask(job: Job, box: Box) -> Answer:
    """The answer, or why there is none. Raises StudyError."""
    try:
        found = box.chat(job.body)
    except NotAnswered as error:
        return Answer(key=job.key, problem=str(error))
    choice, usage = found["choices"][0], found["usage"]
    return Answer(
        key=job.key,
        tokens=int(usage["completion_tokens"]),
        finish_reason=str(choice["finish_reason"]),
        prompt_tokens=int(usage["prompt_tokens"]),
        text=choice["message"].get("content") or "",
        token_ids=tuple(choice.get("token_ids") or ()),
    )


def answered(answers: Iterable[Answer]) -> Iterator[Answer]:
    """Those that the box did not refuse."""
    return (answer for answer in answers if not answer.problem)
