"""What changes for clients when one model replaces another: how their texts are cut into tokens.

Budgets, quotas, prices and forecasts count tokens, so the same number means another length of text.
"""

import asyncio
from pathlib import Path

import msgspec

from appliance.errors import ApiError
from appliance.gguf.tokenizer import SPECIALS, Tokenizer, read_tokenizer
from appliance.prepare.chatml import CHATML
from appliance.prepare.client import PrepareError, Preparer
from appliance.prepare.messages import PrepareLimits, TokenizeJob
from appliance.prepare.samples import SAMPLES

SAME = 0.02
"""Counts that differ by less mean the same to whoever plans with them."""
_COUNT_S = 60.0


class Count(msgspec.Struct, frozen=True):
    """One text, in tokens of both models."""

    text: str
    bytes: int
    before: int
    after: int

    @property
    def ratio(self) -> float:
        return self.after / self.before


class Change(msgspec.Struct, frozen=True):
    """A fact that differs."""

    what: str
    before: str
    after: str


class Drift(msgspec.Struct, frozen=True):
    """From one model's tokenizer to another's."""

    same: bool
    """Every text is the same row of token ids to both."""
    changes: tuple[Change, ...]
    shared: int
    """Tokens that have the same id in both."""
    counts: tuple[Count, ...]
    meaning: tuple[str, ...]
    """What follows from it, each a sentence or two."""


async def drift_of(before: Path, after: Path) -> Drift:
    """Compare two models. Raises BadModel for a file that is none, PrepareError where llama.cpp
    cannot read a vocabulary. Each is opened in a process of its own, without weights.
    """
    old, new = read_tokenizer(before), read_tokenizer(after)
    changes = compare(old, new)
    counted = await asyncio.gather(_counted(before), _counted(after))
    counts = tuple(
        Count(name, len(text.encode()), len(one), len(two))
        for (name, text), one, two in zip(SAMPLES.items(), *counted, strict=True)
    )
    same = not changes and counted[0] == counted[1]
    shared = sum(one == two for one, two in zip(old.tokens, new.tokens, strict=False))
    return Drift(same, changes, shared, counts, _meaning(same, counts))


def compare(old: Tokenizer, new: Tokenizer) -> tuple[Change, ...]:
    """The facts that differ."""
    found = [
        Change("tokenizer", old.kind, new.kind),
        Change("pre-tokenizer", old.pre or "not said", new.pre or "not said"),
        Change("tokens", f"{old.size}", f"{new.size}"),
    ]
    if old.size == new.size and old.digest != new.digest:
        found.append(Change("vocabulary", f"{old.digest[:12]}", f"{new.digest[:12]}"))
    found += [Change(name, _special(old, name), _special(new, name)) for name in SPECIALS]
    flags = sorted(old.flags.keys() | new.flags.keys())
    found += [Change(flag, _flag(old, flag), _flag(new, flag)) for flag in flags]
    gone, come = old.controls - new.controls, new.controls - old.controls
    found.append(Change("control tokens of only one", _texts(gone), _texts(come)))
    return tuple(change for change in found if change.before != change.after)


async def _counted(path: Path) -> list[tuple[int, ...]]:
    """The samples as token ids. The template does not matter, so that a bad one does not either."""
    preparer = Preparer(str(path), PrepareLimits(prepare_s=_COUNT_S), CHATML)
    try:
        await preparer.start()
        jobs = [TokenizeJob(text, parse_special=False) for text in SAMPLES.values()]
        return [tuple(piece.id for piece in await preparer.tokenize(job)) for job in jobs]
    except ApiError as error:
        raise PrepareError(f"{path}: its tokens cannot be counted: {error.message}") from error
    finally:
        await preparer.stop()


def _special(tokenizer: Tokenizer, name: str) -> str:
    token = tokenizer.specials.get(name)
    return "none" if token is None else f"{tokenizer.text_of(token)} ({token})"


def _flag(tokenizer: Tokenizer, name: str) -> str:
    found = tokenizer.flags.get(name)
    return "not said" if found is None else "yes" if found else "no"


def _texts(tokens: frozenset[bytes]) -> str:
    shown = sorted(token.decode("utf-8", "replace") for token in tokens)
    more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
    return ", ".join(shown[:6]) + more or "none"


def _meaning(same: bool, counts: tuple[Count, ...]) -> tuple[str, ...]:
    if same:
        return (
            "Both cut text alike: budgets, quotas and prices keep their meaning, and stored token "
            "ids can be read with either. Forecasts are learned for each model nevertheless.",
        )
    parts = ", ".join(f"{count.text} {count.ratio - 1:+.0%}" for count in counts)
    lines = [f"The same text in tokens of the new model: {parts}."]
    if any(abs(count.ratio - 1) >= SAME for count in counts):
        lines.append(
            "A budget (`max_tokens`, a contract's N, a quota) of the same number holds more text "
            "where fewer tokens are needed, and less where more are: look at the quotas of keys "
            "and tenants."
        )
    lines.append(
        "Forecasts begin anew: the forecaster belongs to the model, and lengths are in its tokens. "
        "Run `steelyard calibrate`."
    )
    lines.append(
        "Token ids in the ledger are read with the vocabulary of the model that wrote them: keep "
        "the old model as long as its requests may be audited or replayed."
    )
    return tuple(lines)
