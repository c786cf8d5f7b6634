"""What is asked: distinct prompts of an exact length, and real conversations. Deterministic.

With STEELYARD_DATA the texts are real (prompts_general.jsonl, dialogues.jsonl); without it prompts
come from a word generator and conversations are not available.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WORDS = (
    "river mountain letter window garden market engine winter summer bridge island captain doctor "
    "teacher farmer painter student village harbour library kitchen journey question answer story "
    "measure weather history science machine picture language number promise silver copper ancient "
    "gentle narrow bright heavy quiet careful sudden distant common strange simple useful honest "
    "walks carries remembers explains follows builds crosses opens repairs describes compares "
    "counts offers forgets chooses gathers watches the a every another this that some many because "
    "although while before after between under over near without against across and but or so then"
)
_ONSETS = "b br c ch d dr f fl g gr h j k l m n p pl r s sh st t tr v w"
_RIMES = "an ar as ell en er est ick il in ing od ol on ook or ound us ust ay ee oat ight"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A system prompt and what the user says, turn by turn; the answers are the server's own."""

    system: str
    turns: tuple[str, ...]


def general_texts(data: Path | None, seed: int) -> list[str]:
    """About 300 kB of varied English at least, in an order that the seed decides."""
    shuffle = random.Random(seed)
    if data is None:
        return [_sentence(shuffle) for _ in range(4000)]
    with (data / "prompts_general.jsonl").open(encoding="utf-8") as lines:
        texts = [str(json.loads(line)["prompt"]) for line in lines]
    shuffle.shuffle(texts)
    return texts


def _sentence(pick: random.Random) -> str:
    """Common words and a few made-up names, so that no two prompts look alike."""
    onsets, rimes = _ONSETS.split(), _RIMES.split()
    names = ["".join(pick.choice(onsets) + pick.choice(rimes) for _ in "ab") for _ in "ab"]
    words = [*pick.choices(_WORDS.split(), k=12), *names]
    pick.shuffle(words)
    return " ".join(words).capitalize() + "."


class DistinctPrompts:
    """Cuts a long token sequence into prompts of one length, no two with the same first token.

    First tokens repeat once all that the text offers were used; `take` never repeats one within
    a call, so prompts of one round share no prefix.
    """

    def __init__(self, tokens: Sequence[int], length: int, seed: int) -> None:
        if len(tokens) < length:
            raise ValueError(f"a text of {len(tokens)} tokens is too short for prompts of {length}")
        self._tokens, self._length, self._place = tokens, length, 0
        self._firsts = sorted(set(tokens))
        random.Random(seed).shuffle(self._firsts)
        self._taken = 0

    def take(self, count: int) -> list[list[int]]:
        if count > len(self._firsts):
            raise ValueError(f"{count} prompts need as many first tokens, got {len(self._firsts)}")
        return [self._next() for _ in range(count)]

    def _next(self) -> list[int]:
        first = self._firsts[self._taken % len(self._firsts)]
        self._taken += 1
        if self._place + self._length - 1 > len(self._tokens):
            self._place = 0
        start, self._place = self._place, self._place + self._length - 1
        return [first, *self._tokens[start : self._place]]


def load_dialogues(data: Path) -> list[list[Conversation]]:
    """Groups of conversations with the same system prompt, the longest prompt first."""
    groups: dict[str, list[Conversation]] = defaultdict(list)
    with (data / "dialogues.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row.get("prompt_group") and (talk := conversation(row["messages"])):
                groups[talk.system].append(talk)
    return sorted(groups.values(), key=lambda group: (-len(group[0].system), group[0].system))


def conversation(messages: Iterable[dict[str, Any]]) -> Conversation | None:
    """None unless a system prompt comes first and a user speaks."""
    rows = list(messages)
    if not rows or rows[0]["role"] != "system":
        return None
    users = (row["content"] for row in rows if row["role"] == "user")
    turns = tuple(text for text in users if isinstance(text, str) and text)
    return Conversation(str(rows[0]["content"]), turns) if turns else None


def choose(
    groups: Sequence[Sequence[Conversation]], count: int, turns: int, round_: int, salt: str
) -> list[Conversation]:
    """`count` conversations of one group, `turns` long; another group each round where there are.

    The salt opens the system prompt, so that no server knows the prefix from an earlier round.
    """
    long = [[talk for talk in group if len(talk.turns) >= turns] for group in groups]
    most = max(map(len, long), default=0)
    if not most:
        raise ValueError(f"no dialogue has {turns} turns: lower --turns")
    fit = [group for group in long if len(group) >= min(count, most)]
    group = fit[round_ % len(fit)]
    random.Random(salt).shuffle(group)
    return [
        Conversation(f"[{salt}] {talk.system}", talk.turns[:turns])
        for talk in (group[i % len(group)] for i in range(count))
    ]
