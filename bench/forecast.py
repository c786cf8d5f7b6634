"""How good forecasts are, by every metric and beside every baseline of docs/forecast.md.

usage: python -m bench.forecast [--answers FILE]... [--prompts FILE] [--model GGUF] [--json FILE]
       python -m bench.forecast --generate URL --answers NEW.jsonl      makes the answers first

Prompts come from $STEELYARD_DATA (bench/forecast_prompts.py), answers from the released file. Exit
status: 0 all goals reached, 1 some missed, 2 could not measure.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from appliance.calibrate import extras, material
from appliance.calibrate.answers import NoRoom, Sampling
from appliance.calibrate.cases import Case
from appliance.calibrate.client import BoxAway, Refused
from appliance.calibrate.questions import NoModel
from appliance.calibrate.sharper import GAIN
from appliance.forecast.baselines import GLOBAL, RIVALS
from appliance.forecast.dataset import BadDataset, Prompt
from appliance.forecast.encoder import EncoderError
from appliance.forecast.evaluate import Comparison
from appliance.forecast.families import PARTS
from appliance.forecast.sessions import Foreign
from appliance.forecast.train import TooFewError
from appliance.gguf import BadModel
from bench import forecast_runs as runs
from bench import forecast_table as table
from bench.forecast_answers import generate, load
from bench.forecast_cases import Labels, groups, other_model, prompts_of, served
from bench.forecast_cost import cost, int8
from bench.forecast_drift import covered, streams
from bench.forecast_first import RELEASED as FIRST
from bench.forecast_first import load as load_first
from bench.forecast_unseen import unseen_sources
from bench.machine import facts

DATA = Path(__file__).parent / "data"
RELEASED = DATA / "forecast_answers.jsonl.gz"
CAP = 512
SKILL, TAU, TAU_UNSEEN = 0.65, 0.45, 0.30
COVERED, WORST = (0.88, 0.92), 0.85
READ = ", once the prompt is read"
"""Of the second forecast of a request."""
INT8_CRPS, INT8_QUALITY = 1.01, 0.007
Goals = dict[str, tuple[float, bool]]
"""What was found, and whether it is enough."""


def main() -> int:
    options = _options()
    try:
        return _bench(options)
    except (BadDataset, BadModel, BoxAway, EncoderError, NoModel, NoRoom, Refused) as error:
        print(error, file=sys.stderr)
    except TooFewError as error:
        print(f"{error}; give more answers with --answers", file=sys.stderr)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
    return 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--prompts", type=Path, help="JSONL; else from $STEELYARD_DATA")
    parser.add_argument("--answers", type=Path, action="append", help="released or whole answers")
    parser.add_argument("--first", type=Path, default=FIRST, help="first logits of the prompts")
    parser.add_argument("--other-model", type=Path, help="answers of another model: a drift")
    parser.add_argument("--model", type=Path, help="the GGUF that answered; else the default one")
    parser.add_argument("--embedder", default="", help="what the network reads; else as calibrate")
    parser.add_argument("--generate", metavar="URL", help="a running box: makes what is missing")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--users", type=int, default=16, help="requests at a time")
    parser.add_argument("--splits", type=int, default=3, help="splits by family that are measured")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one split, sources not left out")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _bench(options: argparse.Namespace) -> int:
    prompts = prompts_of(options.prompts)
    answers = options.answers or [RELEASED]
    if options.generate:
        _generate(prompts, options, answers[0])
    known = [one for path in answers for one in load(path)]
    model = served(options.model)
    options.model = model.path
    found: dict[str, Any] = {"machine": facts()}
    goals: Goals = {}
    first = load_first(options.first) if options.first.exists() else None
    for temperature, cases, labels in groups(prompts, known, model, first):
        say(f"== temperature {temperature:g}: {sum(len(c.answers) for c in cases)} answers")
        group = _Group(temperature, cases, labels, options)
        found[f"temperature {temperature:g}"] = group.measure()
        goals |= {f"{name}, temperature {temperature:g}": goal for name, goal in group.goals()}
    for name, (value, good) in goals.items():
        say(f"{'reached' if good else 'MISSED '} {name}: {value:.3f}")
    found["goals"] = {name: {"found": v, "reached": good} for name, (v, good) in goals.items()}
    if options.json:
        options.json.write_text(json.dumps(_finite(msgspec.to_builtins(found)), indent=1))
    return 0 if all(good for _, good in goals.values()) else 1


def say(text: str = "") -> None:
    print(text, flush=True)


def _finite(value: Any) -> Any:
    """JSON has no NaN: what could not be told is null."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _generate(prompts: Sequence[Prompt], options: argparse.Namespace, kept: Path) -> None:
    sampling = Sampling(options.samples, options.temperature, 0.95, CAP)
    for left in generate(prompts, sampling, options.generate, kept, options.users):
        if left % 50 == 0:
            say(f"{left} answers are missing")


class _Group:
    """One model at one temperature."""

    def __init__(
        self, temperature: float, cases: list[Case], labels: Labels, options: argparse.Namespace
    ) -> None:
        self._options = options
        self._cases = cases
        self._labels = [marks[:2] for marks in labels]
        self._sampled = temperature > 0
        self._goals: Goals = {}

    def goals(self) -> Iterator[tuple[str, tuple[float, bool]]]:
        yield from self._goals.items()

    def measure(self) -> dict[str, Any]:
        options = self._options
        of = self._material()
        floor = runs.noise_floor(self._cases, of.cap)
        level = floor.level if self._sampled else 0.0
        say(table.floor(floor))
        learned = runs.learn(of, self._labels, options.seed)
        say(f"{learned.trained.network.parameters} weights in {learned.trained.seconds:.1f} s")
        main = runs.in_distribution(learned, level, options.seed)
        self._show(table.comparison(main))
        count = 1 if options.quick else options.splits
        others = list(runs.splits(of, self._labels, level, count))
        more = [main, *(one for one, _ in others)]
        self._show(table.others(more, floor))
        read = runs.second(learned, options.seed)
        second = [runs.sharpened(learned, read), *(one for _, one in others)]
        found: dict[str, Any] = {
            "floor": floor,
            "in distribution": more,
            "cost": cost(learned, options.model),
        }
        self._bounds(learned.stage, found, "")
        say(table.cost(found["cost"]))
        self._judge(main, more)
        self._sharper([one for one in second if one is not None], found)
        if read is not None:
            self._bounds(runs.stage_of(learned, read), found, READ)
        self._int8(learned, found)
        self._refined(learned, found)
        if not options.quick:
            found["unseen sources"] = apart = unseen_sources(of, self._labels, options.seed, None)
            self._show(table.unseen(apart))
            for one, name in ((apart.first, ""), (apart.second, READ)):
                if one is not None:
                    self._goals[f"tau, unseen sources{name}"] = (
                        one.kendall,
                        one.kendall >= TAU_UNSEEN,
                    )
        return found

    def _material(self) -> material.Material:
        options = self._options
        cases = runs.first_two(self._cases)
        name = options.embedder or _default_embedder()
        found = material.material(
            cases, options.model, name, seed=options.seed, progress=lambda share: None
        )
        return runs.parted(found, options.seed)

    def _show(self, lines: Iterator[str]) -> None:
        for line in lines:
            say(line)
        say()

    def _judge(self, main: Comparison, more: Sequence[Comparison]) -> None:
        """Skill, rank and rivals as the mean of the splits."""
        ours = [one.ours for one in more]
        rivals = [
            min(one.methods[name].mae for name in RIVALS if name in one.methods) for one in more
        ]
        if main.floor is not None and self._sampled:
            skill = _mean([one.skill or 0.0 for one in ours])
            self._goals["skill"] = (skill, skill >= SKILL)
        tau = _mean([one.kendall for one in ours])
        self._goals["tau"] = (tau, tau >= TAU)
        behind = _over(_mean([one.mae for one in ours]), _mean(rivals))
        self._goals["MAE over the best rival's"] = (behind, behind <= 1.0)
        everyone = _mean([one.methods[GLOBAL].mae for one in more])
        against = _over(_mean([one.mae for one in ours]), everyone)
        self._goals["MAE over the global median's"] = (against, against <= 0.75)

    def _sharper(self, told: Sequence[runs.Sharpened], found: dict[str, Any]) -> None:
        """Of the second forecast, as the mean of the splits."""
        if not told:
            say("once the prompt is read: not measured: these prompts have no first logits")
            return
        found["once the prompt is read"] = told
        self._show(table.sharper(told))
        tau = _mean([one.report.after.kendall for one in told])
        self._goals["tau, once the prompt is read"] = (tau, tau >= TAU)
        ratio = _mean([one.report.ratio for one in told])
        self._goals["CRPS, once the prompt is read, over before"] = (ratio, ratio <= GAIN)

    def _bounds(self, stage: runs.Stage, found: dict[str, Any], name: str) -> None:
        """Of the one forecast or the other."""
        now = covered(stage)
        drift = streams(stage, other_model(self._options.other_model), self._options.seed)
        found[f"covered{name}"], found[f"drift{name}"] = now, drift
        self._show(table.streams(drift))
        worst = f", {now.worst:.3f} of {now.worst_source}" if now.worst_source else ""
        say(f"90 % bound, no cap{name}: {now.overall:.3f} of the test answers{worst}")
        low, high = COVERED
        self._goals[f"coverage of 90 %{name}"] = (now.overall, low <= now.overall <= high)
        if now.worst_source:
            self._goals[f"coverage, worst source{name}"] = (now.worst, now.worst >= WORST)
        for one in drift:
            after = f"({one.change}){name}"
            self._goals[f"coverage, 200 after drift {after}"] = (one.first, one.first >= WORST)
            self._goals[f"coverage, later {after}"] = (one.later, low <= one.later <= high)

    def _int8(self, learned: runs.Learned, found: dict[str, Any]) -> None:
        try:
            found["int8"] = cheap = int8(learned)
        except Foreign as error:
            say(f"INT8: not measured: {error}")
            return
        say(table.int8(cheap))
        self._goals["CRPS of INT8 over FP32"] = (cheap.crps_ratio, cheap.crps_ratio <= INT8_CRPS)
        self._goals["quality RMSE of INT8"] = (
            cheap.quality_rmse,
            cheap.quality_rmse <= INT8_QUALITY,
        )

    def _refined(self, learned: runs.Learned, found: dict[str, Any]) -> None:
        priors: dict[str, Any] = {part: learned.hazards(part) for part in PARTS[1:]}
        told = extras.refining(learned.of, priors, learned.rows, None)
        found["in flight"] = told.report
        if told.report is None:
            say(f"in flight: not measured: {told.problem or 'the test answers have no signals'}")
            return
        self._show(table.in_flight(told.report))


def _over(ours: float, theirs: float) -> float:
    """NaN where every answer ran to the limit, which leaves nothing to be wrong about."""
    return ours / theirs if theirs else math.nan


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _default_embedder() -> str:
    from appliance.calibrate.fit import EMBEDDER

    return EMBEDDER


if __name__ == "__main__":
    sys.exit(main())
