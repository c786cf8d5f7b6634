"""The first logits of the bench's prompts: what the second forecast of a request is learned from.

usage: python -m bench.forecast_first URL --prompts PROMPTS.jsonl --out data/first_logits.npz

Asks a running box for one token of each prompt, and keeps what its model made of the prompt: 128
logits less the largest, in steps of STEP nats. No prompt and no word of an answer is in the file.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from appliance.calibrate.answers import Sampling, Wanted
from appliance.calibrate.client import BoxAway, Client, Refused
from appliance.calibrate.prompts import read_prompts
from appliance.forecast.dataset import BadDataset, Prompt

RELEASED = Path(__file__).parent / "data" / "first_logits.npz"
STEP = 0.15
"""Nats; 255 steps reach as far down as logits go."""
ONE_TOKEN = Sampling(samples=1, temperature=0.0, top_p=1.0, max_tokens=1)

Logits = Mapping[str, tuple[float, ...]]
"""By the prompt's id."""


def load(path: Path = RELEASED) -> Logits:
    """Raises BadDataset."""
    try:
        with np.load(path, allow_pickle=False) as held:
            names, steps = held["names"].tolist(), held["steps"]
    except (OSError, ValueError, KeyError) as error:
        raise BadDataset(
            f"{path}: cannot be read: {error}. Make it anew: see its module"
        ) from error
    rows = (-STEP * steps.astype(np.float64)).tolist()
    return {name: tuple(row) for name, row in zip(names, rows, strict=True)}


def save(path: Path, found: Logits) -> None:
    """The same bytes for the same logits."""
    names = sorted(found)
    values = np.array([found[name] for name in names])
    steps = np.clip(np.rint(-values / STEP), 0, 255).astype(np.uint8)
    np.savez_compressed(path, names=np.array(names), steps=steps)


def asked(prompts: Iterable[Prompt], url: str, users: int) -> Logits:
    """Raises BoxAway, Refused."""
    client = Client(url)

    def ask(prompt: Prompt) -> tuple[str, tuple[float, ...]]:
        return prompt.id, client.answer(Wanted(prompt, 0), ONE_TOKEN).first

    with ThreadPoolExecutor(users) as pool:
        try:
            return {name: first for name, first in pool.map(ask, prompts) if first}
        finally:
            client.abort()
            pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("url", help="of a running box")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RELEASED)
    parser.add_argument("--users", type=int, default=4, help="requests at a time")
    options = parser.parse_args()
    try:
        found = asked(read_prompts(options.prompts), options.url, options.users)
    except (BadDataset, BoxAway, Refused) as error:
        print(error, file=sys.stderr)
        return 2
    save(options.out, found)
    print(f"{options.out}: {len(found)} prompts, {options.out.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
