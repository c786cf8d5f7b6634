"""`study limits`: whether limits and stop strings are kept to the token.

At temperature 0, alone on an emptied cache (`exclusive`), a request gives the same tokens each
time. So its natural answer of L tokens, the end token included, tells what any limit must give: the
first min(limit, L) of them, with `length` as reason where limit < L. Likewise for a stop string:
text up to its first occurrence, and no token sampled after the one that completes it. Bias is the
tokens delivered less those expected: 0, or there is a fault.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from appliance.forecast.dataset import Prompt
from appliance.study.errors import StudyError
from appliance.study.grid import encoded, first_problem
from appliance.study.running import Job
from appliance.study.store import Answer

AROUND = (-2, -1, 0, 1, 2)
"""Limits tried, from the natural length."""
_STOP_CHARACTERS = (1, 3, 8)
"""Stop strings of so many characters are taken out of the natural answer, …"""
_STOP_AT = (0.35, 0.6, 0.85)
"""… about here."""

Spell = Callable[[list[int]], str]
"""Token ids to text."""


@dataclass(frozen=True, slots=True)
class Settings:
    max_tokens: int = 256
    """For the natural answer."""


QUICK = Settings(max_tokens=96)
PROMPTS = 20
QUICK_PROMPTS = 5


@dataclass(frozen=True, slots=True)
class Check:
    """A request whose outcome is known beforehand."""

    key: str
    prompt: str
    kind: str
    """L-2 … L+2, or stop."""
    limit: int
    stop: str
    tokens: int
    """Expected, as the rest here."""
    finish_reason: str
    token_ids: tuple[int, ...]
    text: str | None = None
    """None: the tokens tell enough."""


@dataclass(frozen=True, slots=True)
class Outcome:
    prompt: str
    kind: str
    limit: int
    stop: str
    expected: int
    delivered: int
    right_reason: bool
    right_text: bool
    """The very tokens; up to a stop string, the text before it."""

    @property
    def bias(self) -> int:
        return self.delivered - self.expected

    @property
    def exact(self) -> bool:
        return self.bias == 0 and self.right_reason and self.right_text


@dataclass(frozen=True, slots=True)
class Report:
    model: str
    sha256: str
    prompts: int
    left_out: tuple[str, ...]
    settings: Settings
    natural: tuple[int, ...]
    """Lengths of the natural answers."""
    outcomes: tuple[Outcome, ...]

    @property
    def exact(self) -> bool:
        """Every check gave what it must."""
        return all(outcome.exact for outcome in self.outcomes)

    def biases(self, kind: str) -> Counter[int]:
        """How many checks of this kind had which bias."""
        return Counter(outcome.bias for outcome in self.outcomes if outcome.kind == kind)


def naturals(prompts: Sequence[Prompt], settings: Settings) -> Iterator[Job]:
    """The first requests: answers that end by themselves, or at the study's own limit."""
    return (_job(prompt, "natural", settings.max_tokens, "") for prompt in prompts)


def checks(
    prompts: Sequence[Prompt], settings: Settings, answers: Mapping[str, Answer], spell: Spell
) -> list[Check]:
    """What follows from the natural answers. Raises StudyError without any."""
    found: list[Check] = []
    for prompt in prompts:
        natural = answers.get(_key(prompt.id, "natural"))
        if natural is not None and not natural.problem and natural.tokens > 0:
            found += _around(prompt.id, natural)
            found += _stops(prompt.id, natural, settings, spell)
    if not found:
        raise StudyError(
            f"no prompt was answered: {first_problem(answers)}. This study sends exclusive "
            "requests: the box must allow them (limits.exclusive)"
        )
    return found


def checking(prompts: Sequence[Prompt], wanted: Sequence[Check]) -> Iterator[Job]:
    """The second requests."""
    by_id = {prompt.id: prompt for prompt in prompts}
    return (_job(by_id[c.prompt], c.kind, c.limit, c.stop) for c in wanted)


def report(
    model: str,
    sha256: str,
    prompts: Sequence[Prompt],
    settings: Settings,
    wanted: Sequence[Check],
    answers: Mapping[str, Answer],
) -> Report:
    """Expected and delivered, side by side."""
    asked = {check.prompt for check in wanted}
    natural = (answers[_key(p.id, "natural")].tokens for p in prompts if p.id in asked)
    return Report(
        model,
        sha256,
        len(asked),
        tuple(prompt.id for prompt in prompts if prompt.id not in asked),
        settings,
        tuple(natural),
        tuple(_outcome(check, answers[check.key]) for check in wanted),
    )


def _outcome(check: Check, answer: Answer) -> Outcome:
    right_text = check.text is None or answer.text == check.text
    return Outcome(
        check.prompt,
        check.kind,
        check.limit,
        check.stop,
        check.tokens,
        answer.tokens,
        answer.finish_reason == check.finish_reason,
        right_text and answer.token_ids == check.token_ids,
    )


def _around(prompt: str, natural: Answer) -> Iterator[Check]:
    for step in AROUND:
        limit = natural.tokens + step
        # What comes after an answer that was cut off is not known.
        if limit < 1 or (natural.censored and step > 0):
            continue
        yield Check(
            key=_key(prompt, f"L{step:+d}" if step else "L"),
            prompt=prompt,
            kind=f"L{step:+d}" if step else "L",
            limit=limit,
            stop="",
            tokens=min(limit, natural.tokens),
            finish_reason="length" if limit < natural.tokens else natural.finish_reason,
            token_ids=natural.token_ids[: min(limit, natural.tokens)],
        )


def _stops(prompt: str, natural: Answer, settings: Settings, spell: Spell) -> Iterator[Check]:
    for size, place in zip(_STOP_CHARACTERS, _STOP_AT, strict=True):
        at = int(place * len(natural.text))
        stop = natural.text[at : at + size]
        if len(stop) < size or "\ufffd" in stop:
            continue
        tokens = _tokens_with(stop, natural.token_ids, spell)
        yield Check(
            key=_key(prompt, f"stop {size}"),
            prompt=prompt,
            kind=f"stop {size}",
            limit=settings.max_tokens,
            stop=stop,
            tokens=tokens,
            finish_reason="stop",
            token_ids=natural.token_ids[:tokens],
            text=natural.text.partition(stop)[0],
        )


def _tokens_with(stop: str, token_ids: Sequence[int], spell: Spell) -> int:
    """The fewest tokens whose text holds the stop string."""
    low, high = 1, len(token_ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if stop in spell(list(token_ids[:middle])) else (middle + 1, high)
    return low


def _job(prompt: Prompt, kind: str, limit: int, stop: str) -> Job:
    body = {
        "messages": encoded(prompt.messages),
        "temperature": 0,
        "max_tokens": limit,
        "exclusive": True,
        "return_token_ids": True,
    }
    return Job(_key(prompt.id, kind), body | ({"stop": [stop]} if stop else {}))


def _key(prompt: str, kind: str) -> str:
    return f"{prompt} {kind}"
