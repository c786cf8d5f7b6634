"""The workloads. Each builds the jobs of one round; both sides of a round get the same ones."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.load import Address, Job, LoadError, Reply, call, closed_loop, post
from bench.prompts import Conversation, DistinctPrompts, choose, general_texts, load_dialogues
from bench.servers import Server
from bench.stats import Run

Ask = Callable[[Address, list[Reply]], Job]
"""Given a server and the list that takes the replies, one user's piece of work."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How the servers are started. `equal`: ours without what a scheduler of our own may add."""

    sequences: int
    context: int
    equal: bool


EQUAL = Profile(sequences=16, context=8192, equal=True)
OWN = Profile(sequences=8, context=32768, equal=False)
"""4096 cells per conversation: the longest system prompt, four turns and their answers."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    what: str
    profile: Profile
    concurrency: tuple[int, ...]
    needs_data: bool = False


SCENARIOS = (
    Scenario("distinct", "token ids to /completion, whole answers", EQUAL, (1, 4, 8, 16)),
    Scenario("distinct-stream", "the same, streamed", EQUAL, (1, 4, 8, 16)),
    Scenario("chat", "distinct texts to /v1/chat/completions", EQUAL, (1, 4, 8, 16)),
    Scenario("dialogues", "turn by turn, one system prompt, streamed", OWN, (1, 4, 8), True),
    Scenario("shared-prefix", "one new conversation after another", OWN, (1, 4, 8), True),
)

TARGETS: dict[tuple[str, int], dict[str, float]] = {
    **{("distinct", n): {"tokens_per_s": 1.0} for n in (1, 4, 8, 16)},
    **{("chat", n): {"tokens_per_s": 1.0} for n in (1, 4, 8)},
    **{("dialogues", n): {"tokens_per_s": 1.2} for n in (1, 4)},
    **{("shared-prefix", n): {"tokens_per_s": 1.5, "ttft_p50": 0.5} for n in (1, 4, 8)},
}


@dataclass(frozen=True, slots=True)
class Sizes:
    requests: int
    """Per round; 0: twice the concurrency, four at least."""
    prompt_tokens: int
    output_tokens: int
    turns: int
    answer_tokens: int


class Workload:
    """Deals out the jobs, round by round; nothing is asked twice within one scenario."""

    def __init__(self, data: Path | None, sizes: Sizes, seed: int) -> None:
        self._data, self._sizes, self._seed = data, sizes, seed
        self._groups = load_dialogues(data) if data else []
        self._prompts: DistinctPrompts | None = None

    async def round(self, scenario: Scenario, users: int, number: int, source: Server) -> list[Ask]:
        """The jobs of round `number`. `source` tokenises."""
        count = self._sizes.requests or max(4, 2 * users)
        salt = f"{scenario.name} {users}-{number}"
        if scenario.name == "dialogues":
            talks = choose(self._groups, count, self._sizes.turns, number, salt)
            return [self._talk(talk) for talk in talks]
        if scenario.name == "shared-prefix":
            widest = max(self._groups, key=lambda group: len(group) * len(group[0].system))
            talks = choose([widest], 2 * count, 1, number, salt)
            return [self._talk(talk) for talk in talks]
        prompts = (await self._distinct(source)).take(count)
        if scenario.name == "chat":
            texts = [await _detokenize(source, ids) for ids in prompts]
            return [self._chat([{"role": "user", "content": text}]) for text in texts]
        return [self._complete(ids, scenario.name == "distinct-stream") for ids in prompts]

    async def _distinct(self, source: Server) -> DistinctPrompts:
        if self._prompts is None:
            text = "\n".join(general_texts(self._data, self._seed))
            tokens = await _tokenize(source, text[:400_000])
            self._prompts = DistinctPrompts(tokens, self._sizes.prompt_tokens, self._seed)
        return self._prompts

    def _complete(self, ids: list[int], stream: bool) -> Ask:
        body = {
            "prompt": ids,
            "n_predict": self._sizes.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": stream,
        }
        return _one("/completion", body, self._sizes.output_tokens)

    def _chat(self, messages: list[dict[str, str]]) -> Ask:
        body = {
            "model": "default",
            "messages": messages,
            "max_tokens": self._sizes.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        return _one("/v1/chat/completions", body, self._sizes.output_tokens)

    def _talk(self, talk: Conversation) -> Ask:
        """Answers end by themselves: forcing them on makes the model repeat itself, and that
        would flatter whoever drafts from the prompt.
        """
        limit = self._sizes.answer_tokens

        def ask(address: Address, replies: list[Reply]) -> Job:
            async def job() -> None:
                messages = [{"role": "system", "content": talk.system}]
                for turn in talk.turns:
                    messages.append({"role": "user", "content": turn})
                    reply = await post(address, "/v1/chat/completions", _streamed(messages, limit))
                    replies.append(reply)
                    messages.append({"role": "assistant", "content": reply.text})

            return job

        return ask


def _streamed(messages: Sequence[dict[str, str]], limit: int) -> dict[str, Any]:
    return {
        "model": "default",
        "messages": messages,
        "max_tokens": limit,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _one(path: str, body: dict[str, Any], expected: int) -> Ask:
    def ask(address: Address, replies: list[Reply]) -> Job:
        async def job() -> None:
            reply = await post(address, path, body)
            if reply.completion_tokens != expected:
                raise LoadError(f"asked for {expected} tokens, got {reply.completion_tokens}")
            replies.append(reply)

        return job

    return ask


async def _tokenize(server: Server, text: str) -> list[int]:
    status, body = await call(server.address, "POST", "/tokenize", {"content": text})
    if status != 200:
        raise LoadError(f"/tokenize of {server.name}: HTTP {status}: {body[:300]!r}")
    return [int(token) for token in json.loads(body)["tokens"]]


async def _detokenize(server: Server, tokens: list[int]) -> str:
    status, body = await call(server.address, "POST", "/detokenize", {"tokens": tokens})
    if status != 200:
        raise LoadError(f"/detokenize of {server.name}: HTTP {status}: {body[:300]!r}")
    return str(json.loads(body)["content"])


def run_round(server: Server, asks: Sequence[Ask], users: int) -> Run:
    """All jobs of one round against one side, with the CPU time that it took."""
    replies: list[Reply] = []
    jobs = [ask(server.address, replies) for ask in asks]
    pid = server.process.pid if server.process else None
    began, everything = time.process_time(), machine.cpu_of_all()
    before = machine.cpu_of(pid) if pid else 0.0
    asyncio.run(closed_loop(jobs, users))
    client = time.process_time() - began
    if pid is None:
        return Run(tuple(replies), client)
    used = machine.cpu_of(pid) - before
    foreign = max(0.0, machine.cpu_of_all() - everything - used - client)
    return Run(tuple(replies), client, used, foreign)
