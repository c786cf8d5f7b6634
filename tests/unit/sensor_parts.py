"""A /sys that is written for a test."""

from pathlib import Path

from appliance.observe.readings import Reading
from appliance.observe.sysfiles import read_file


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    return folder


def hwmon(root: Path, number: int = 0, **files: str) -> Path:
    return write(root / "class/hwmon" / f"hwmon{number}", files)


def rapl(root: Path, domain: str, name: str, uj: int, wraps: int = 262_143_000_000) -> Path:
    files = {"name": name, "energy_uj": str(uj), "max_energy_range_uj": str(wraps)}
    return write(root / "class/powercap" / domain, files)


def denied(path: Path) -> str:
    """Another user's /sys: as root, permissions alone would deny nothing."""
    if path.name == "energy_uj":
        raise PermissionError(13, "Permission denied")
    return read_file(path)


# -- all together --------------------------------------------------------------------------------


def temperature(value: float | None, name: str = "cpu", at: float = 0.0, **more: object) -> Reading:
    quality = "ok" if value is not None else "unknown"
    return Reading(name=name, unit="C", source="hwmon", quality=quality, at=at, value=value, **more)  # type: ignore[arg-type]
