"""Area `engine`: the library, the model and the settings together, proven by one decode."""

from collections.abc import Iterator

from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground


def look(ground: Ground) -> Iterator[Finding]:
    trial = ground.engine
    if trial.skipped:
        yield note("engine.decode", f"not tried: {trial.skipped}", "make room, and look again")
        return
    if trial.problem:
        yield fail(
            "engine.decode",
            trial.problem,
            "`steelyard selftest` repeats it; docs/operating.md says what such messages mean",
        )
        return
    yield ok(
        "engine.decode",
        f"{trial.model}: loaded in {trial.load_seconds:.1f} s and decoded, "
        f"{trial.decode_ms:.1f} ms for a token alone",
    )
    for reason in trial.degraded:
        yield warn("engine.degraded", reason, "what to do stands there")
