"""The forecasters that are there for a model, with what each says of itself."""

from functools import lru_cache
from pathlib import Path

import msgspec

from appliance.forecast.bundle import BadForecaster, Bundle, Manifest
from appliance.forecast.versions import Version, Versions


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One of GET /admin/forecasters. null: not known."""

    version: str
    """v0001, v0002, ... or `packaged`."""
    in_use: bool
    packaged: bool
    created: str = ""
    """ISO 8601, UTC."""
    since_ms: int | None = None
    """When its file was put there."""
    skill: float | None = None
    coverage_pct: float | None = None
    """Of the 90 % bound, on prompts kept apart."""
    mae: float | None = None
    """Mean absolute error on them, tokens."""
    embedder: str = ""
    precision: str = ""
    prompts: int | None = None
    answers: int | None = None
    has_report: bool = False
    problem: str = ""
    """Why it cannot be used, and what to do."""


def catalogue(versions: Versions) -> tuple[Listed, ...]:
    """Newest first, the packaged one last. Raises BadForecaster where the directory cannot be
    read."""
    return tuple(_listed(version) for version in reversed(versions.list()))


def install(versions: Versions, bundle: Bundle) -> Version:
    """Puts it into use as the next version, and names it so: what the box tells with a forecast is
    then what `versions` lists. Raises BadForecaster."""
    numbers = [int(one.name[1:]) for one in versions.list() if one.name[1:].isdecimal()]
    return versions.install(bundle.named(f"v{max(numbers, default=0) + 1:04d}"))


def _listed(version: Version) -> Listed:
    packaged = version.name == "packaged"
    base = Listed(version=version.name, in_use=version.current, packaged=packaged)
    try:
        found = version.path.stat()
        manifest, has_report = _read(version.path, found.st_mtime_ns, found.st_size)
    except OSError as error:
        return msgspec.structs.replace(base, problem=f"it cannot be read: {error.strerror}")
    except BadForecaster as error:
        return msgspec.structs.replace(base, problem=str(error))
    scores, training = manifest.scores, manifest.training
    return msgspec.structs.replace(
        base,
        created=manifest.created,
        since_ms=None if packaged else found.st_mtime_ns // 1_000_000,
        skill=_float(scores.get("skill")),
        coverage_pct=_float(scores.get("coverage_pct")),
        mae=_float(scores.get("mae")),
        embedder=manifest.embedder,
        precision=manifest.precision,
        prompts=_int(training.get("prompts")),
        answers=_int(training.get("answers")),
        has_report=has_report,
    )


@lru_cache(maxsize=32)
def _read(path: Path, mtime_ns: int, size: int) -> tuple[Manifest, bool]:
    """Read once as long as the file does not change: each is megabytes."""
    bundle = Bundle.read(path)
    return bundle.manifest, bool(bundle.report_html)


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
