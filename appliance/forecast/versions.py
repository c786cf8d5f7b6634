"""The forecasters of one model that are kept: installed ones, and the one that came with the box.

`<state>/forecasters/<first 12 of the model's SHA-256>/v0001.forecaster` ..., and a file `current`
with the name of the one in use. Every change is one rename. Any process may look; `steelyard
calibrate` and the operator change.
"""

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from appliance import durable
from appliance.forecast.bundle import MANIFEST, MAX_MANIFEST, SUFFIX, BadForecaster, Bundle

PACKAGED = Path(__file__).parent / "packaged"
PACKAGED_NAME = "packaged"
CURRENT = "current"
KEEP = 8
"""Installed versions kept, the newest ones."""
_VERSION = re.compile(r"v(\d{4,9})")

_Paths = list[Path]


@dataclass(frozen=True, slots=True)
class Version:
    """One of the forecasters that could be used."""

    name: str
    """v0001, v0002, ..., or `packaged`."""
    path: Path
    current: bool


_Found = list[Version]


class Versions:
    """Of one model. None of this keeps a file open; what cannot be done raises BadForecaster."""

    def __init__(self, state_dir: Path, model_sha256: str, packaged: Path = PACKAGED) -> None:
        self._home = state_dir / "forecasters" / model_sha256[:12]
        self._model = model_sha256
        self._packaged = packaged

    def list(self) -> tuple[Version, ...]:
        """Oldest first, the packaged one in front of all. Does not read them."""
        found = [Version(PACKAGED_NAME, path, False) for path in self._packaged_path()]
        numbered = sorted((_number(path), path) for path in self._home.glob(f"v*{SUFFIX}"))
        found += [Version(path.stem, path, False) for number, path in numbered if number > 0]
        current = self._current_name(found)
        return tuple(Version(one.name, one.path, one.name == current) for one in found)

    def current(self) -> Version | None:
        """The one in use: what `current` names, else the packaged one, else None."""
        return next((version for version in self.list() if version.current), None)

    def load(self) -> tuple[Version, Bundle] | None:
        """The one in use, read and checked for this model; None where there is none."""
        version = self.current()
        return (version, self._read(version)) if version is not None else None

    def install(self, bundle: Bundle) -> Version:
        """Keeps it as the next version and puts it into use."""
        bundle.require_model(self._model)
        data = bundle.pack()
        Bundle.parse(data)  # what could not be read back is never put into use
        newest = max((_number(path) for path in self._home.glob(f"v*{SUFFIX}")), default=0)
        name = f"v{newest + 1:04d}"
        path = self._home / f"{name}{SUFFIX}"
        self._write(path, data)
        self._write(self._home / CURRENT, f"{name}\n".encode())
        self._prune()
        return Version(name, path, True)

    def use(self, name: str) -> Version:
        """Puts that version into use, after reading it whole."""
        versions = self.list()
        found = next((version for version in versions if version.name == name), None)
        if found is None:
            names = ", ".join(version.name for version in versions) or "none"
            raise BadForecaster(f"there is no forecaster {name[:40]!r} for this model: {names}")
        self._read(found)
        self._write(self._home / CURRENT, f"{name}\n".encode())
        return Version(found.name, found.path, True)

    def rollback(self) -> Version:
        """Puts the one before the current into use."""
        versions = self.list()
        at = next((i for i, version in enumerate(versions) if version.current), 0)
        if at == 0:
            raise BadForecaster(
                "there is no forecaster before this one to go back to: run `steelyard calibrate`"
            )
        return self.use(versions[at - 1].name)

    def _read(self, version: Version) -> Bundle:
        try:
            bundle = Bundle.read(version.path)
            bundle.require_model(self._model)
        except BadForecaster as error:
            raise BadForecaster(f"the forecaster {version.name} is not used: {error}") from error
        return bundle

    def _current_name(self, found: _Found) -> str:
        """What `current` names, and the packaged one where there is no such file. Where it names
        what is not there: the newest that is."""
        try:
            with (self._home / CURRENT).open("rb") as file:
                name = file.read(64).decode(errors="replace").strip()
        except OSError:
            name = PACKAGED_NAME
        if name in {version.name for version in found}:
            return name
        return found[-1].name if found else ""

    def _packaged_path(self) -> _Paths:
        """Of this model; found by what its manifest says, which `_read` checks in full."""
        paths = sorted(self._packaged.glob(f"*{SUFFIX}"))
        return [path for path in paths if _model_of(path) == self._model][:1]

    def _prune(self) -> None:
        installed = [version for version in self.list() if version.name != PACKAGED_NAME]
        for version in installed[:-KEEP]:
            version.path.unlink(missing_ok=True)

    def _write(self, path: Path, data: bytes) -> None:
        """Whole or not at all, also after a power cut."""
        try:
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            durable.replace(path, data, 0o600)
        except OSError as error:
            raise BadForecaster(
                f"the forecaster cannot be kept: {error.strerror or error}. Give the state "
                "directory room and write permission; the former one stays in use"
            ) from error


def _number(path: Path) -> int:
    found = _VERSION.fullmatch(path.stem)
    return int(found.group(1)) if found else 0


def _model_of(path: Path) -> str:
    """The SHA-256 of the model, as its manifest says; empty where it cannot be read."""
    try:
        with zipfile.ZipFile(path) as file:
            if file.getinfo(MANIFEST).file_size > MAX_MANIFEST:
                return ""
            found = json.loads(file.read(MANIFEST))
        return str(found.get("model_sha256", "")) if isinstance(found, dict) else ""
    except Exception:  # a packaged file that is broken counts as none: nothing depends on it
        return ""
