"""Answers that the forecast bench measures on: released without a word of them, or made anew.

usage: python -m bench.forecast_answers ANSWERS.jsonl... --prompts PROMPTS.jsonl --out FILE.jsonl.gz

The released file holds how each answer was drawn, how long it became, how it ended, the model's
signals and whether a check was passed: neither prompts nor texts. The seeds rebuild the texts.
"""

import argparse
import gzip
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from appliance.calibrate.answers import Kept, Sampling, Wanted, gathered, missing
from appliance.calibrate.client import Client
from appliance.calibrate.prompts import read_prompts
from appliance.forecast.checkparts import BadCheck
from appliance.forecast.checks import passed
from appliance.forecast.dataset import Answered, BadDataset, Prompt, Signal, read

PLACES = 2
"""Of a signal, kept: a hundredth of a nat."""


class Released(msgspec.Struct, frozen=True, array_like=True):
    """One answer, as released."""

    id: str
    sample: int
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    passed: bool | None = None
    """None: it cannot be checked."""
    signals: tuple[Signal, ...] = ()

    def answered(self) -> Answered:
        names = (name for name in self.__struct_fields__ if name != "passed")
        return Answered(**{name: getattr(self, name) for name in names})


def load(path: Path) -> list[Released]:
    """Of a released file, or of whole answers (JSONL, then nothing is checked). Raises
    BadDataset."""
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
        return [_read(line, path, n) for n, line in enumerate(lines, 1) if line.strip()]
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadDataset(
            f"{path}: cannot be read: {why}. Give answers with --answers, or make them with "
            "--generate (bench/README.md)"
        ) from error


class Told(msgspec.Struct, frozen=True):
    """Signals of an answer that were gathered apart from it, by running it again."""

    id: str
    sample: int
    temperature: float
    signals: tuple[Signal, ...]


def with_signals(answers: Iterable[Answered], path: Path) -> list[Answered]:
    """The answers, with the signals of a JSONL file of `Told`. Raises BadDataset."""
    found = {(one.id, one.sample, one.temperature): one.signals for one in read(path, Told)}
    return [
        msgspec.structs.replace(
            one, signals=found.get((one.id, one.sample, one.temperature), one.signals)
        )
        for one in answers
    ]


def _read(line: bytes, path: Path, number: int) -> Released:
    try:
        if line.startswith(b"["):
            return msgspec.json.decode(line, type=Released)
        return released(msgspec.json.decode(line, type=Answered), None)
    except msgspec.MsgspecError as error:
        raise BadDataset(f"{path}, line {number}: {error}") from error


def released(answer: Answered, prompt: Prompt | None) -> Released:
    """Without its words; checked where the prompt says how."""
    return Released(
        id=answer.id,
        sample=answer.sample,
        temperature=answer.temperature,
        top_p=answer.top_p,
        max_tokens=answer.max_tokens,
        seed=answer.seed,
        finish_reason=answer.finish_reason,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        passed=_passed(answer, prompt),
        signals=tuple(_short(signal) for signal in answer.signals),
    )


def _passed(answer: Answered, prompt: Prompt | None) -> bool | None:
    if prompt is None or prompt.check is None:
        return None
    try:
        return passed(prompt.check, answer.text)
    except BadCheck:
        return None


def _short(signal: Signal) -> Signal:
    parts = (round(v, PLACES) for v in (signal.eos_margin, signal.entropy, signal.logprob))
    return Signal(signal.generated, *parts)


def pack(answers: Iterable[Answered], prompts: Mapping[str, Prompt], out: Path) -> int:
    """Writes the released file, the same bytes for the same answers. Returns how many."""
    ordered = sorted(answers, key=lambda a: (a.temperature, a.id, a.sample))
    rows = [msgspec.json.encode(released(one, prompts.get(one.id))) for one in ordered]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.writelines(row + b"\n" for row in rows)
    return len(rows)


def generate(
    prompts: Iterable[Prompt], sampling: Sampling, url: str, kept: Path, users: int
) -> Iterator[int]:
    """Asks a running box for the answers that `kept` lacks; yields how many are still missing.
    Raises BoxAway, Refused, NoRoom."""
    wanted = list(prompts)
    have = gathered([kept], wanted) if kept.exists() else []
    todo = missing(wanted, have, sampling)
    client = Client(url)

    def ask(one: Wanted) -> Answered:
        return client.answer(one, sampling)

    with Kept(kept) as file, ThreadPoolExecutor(users) as pool:
        try:
            for done, answer in enumerate(pool.map(ask, todo), 1):
                file.add(answer)
                yield len(todo) - done
        finally:
            client.abort()
            pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("answers", type=Path, nargs="+")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--signals", type=Path, help="JSONL of signals gathered apart")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    try:
        prompts = {prompt.id: prompt for prompt in read_prompts(options.prompts)}
        found = gathered(options.answers, prompts.values())
        if options.signals is not None:
            found = with_signals(found, options.signals)
    except BadDataset as error:
        print(error, file=sys.stderr)
        return 2
    count = pack(found, prompts, options.out)
    print(f"{options.out}: {count} answers, {options.out.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
