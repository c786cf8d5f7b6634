"""What tuning found, as an operator reads it."""

from collections.abc import Iterator

from appliance.tune.job import cost_words
from appliance.tune.search import Trial
from appliance.tune.store import Entry

BUSY = 0.15
"""Share of the cores used by other programs above which figures are not to be trusted."""
_WORDS = {
    "taken": "faster, taken",
    "no faster": "no faster than the noise",
    "slower": "slower",
    "other answers": "faster, but changes answers: left",
    "failed": "does not run",
    "confirmed": "",
}


def report(entry: Entry) -> Iterator[str]:
    """The table, and what it comes to."""
    found, mix, work = entry.found, entry.mix, entry.work
    yield f"{entry.model} on {entry.hardware.words()}"
    yield (
        f"a request: {mix.prompt} prompt and {mix.answer} answer tokens ({mix.source}); measured "
        f"with {work.prompt} and {work.steps} steps, {entry.measured_at}"
    )
    yield ""
    yield f"{'tried':34} {'time':>6}  {'answers':12} result"
    yield from (_line(trial) for trial in found.trials)
    yield ""
    yield f"before: {cost_words(found.base_timing, work)}"
    if found.best != found.base:
        yield f"after:  {cost_words(found.best_timing, work)}"
        low, high = min(found.pairs), max(found.pairs)
        yield (
            f"{1 / found.ratio:.2f} x as fast (pairs {1 / high:.2f} to {1 / low:.2f}) with "
            + ", ".join(f"{name} {value}" for name, value in entry.settings.items())
        )
    else:
        yield "the settings in use are the fastest of those that may be taken"
    yield from _notes(entry)


def _line(trial: Trial) -> str:
    change = ", ".join(f"{name} {value}" for name, value in trial.change.items())
    ratio = "" if trial.ratio is None else f"{trial.ratio:.2f}"
    why = f": {trial.why}" if trial.why else ""
    return f"{change:34} {ratio:>6}  {trial.answers or '':12} {_WORDS[trial.verdict]}{why}"


def _notes(entry: Entry) -> Iterator[str]:
    if entry.busy > BUSY:
        yield (
            f"other programs used {entry.busy:.0%} of the cores meanwhile, so the figures are not "
            "to be trusted"
        )
    left = [one for one in entry.found.trials if one.verdict == "other answers"]
    if left:
        gains = ", ".join(
            f"{1 / one.ratio:.2f} x with " + " ".join(map(str, next(iter(one.change.items()))))
            for one in left
            if one.ratio
        )
        yield (
            f"left because greedy answers may change with them: {gains}. "
            "`steelyard tune --allow-different-answers` takes them"
        )
    changed = _changes(entry)
    if changed:
        yield f"answers: {changed}"


def _changes(entry: Entry) -> str:
    """What the settings taken do to greedy answers, the strongest effect of them."""
    seen = {one.answers for one in entry.found.trials if one.verdict == "taken"}
    if not entry.settings or not seen - {"same bits"}:
        return "every logit is the same to the bit as before" if entry.settings else ""
    if "other tokens" in seen:
        return "greedy answers differ from before in some of the prompts tried"
    return (
        "the greedy answers tried are the same as before, but logits differ in their last bits: "
        "where two tokens are nearly as likely, another may win"
    )
