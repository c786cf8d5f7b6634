"""From a file, the environment and the command line to one checked Config.

Later ones win. Every error found is reported, with where it stands, at once.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from appliance.alike import alike
from appliance.config.crosschecks import BOUNDED_BY, disagreements
from appliance.config.sections import NAMED, Config
from appliance.config.server import default_state_dir
from appliance.config.setting import about
from appliance.config.values import BadValue, Slot, parse_text

SYSTEM_FILE = Path("/etc/steelyard/steelyard.toml")
PREFIX = "STEELYARD_"
NOT_OURS = ("STEELYARD_SERVICE_", "STEELYARD_API_KEY")
"""Variables that others set under our prefix: Kubernetes for a service of our name, and clients."""
FILE_BYTES = 1024 * 1024
"""A larger file is no configuration; it is not read."""


class ConfigError(Exception):
    """The configuration cannot be used. `problems` names each place and what is wrong there."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Given:
    """A value someone set, before it is checked."""

    raw: object
    origin: str
    base: Path


def find_file(path: Path | None, env: Mapping[str, str]) -> Path | None:
    """The file that counts: the one named, $STEELYARD_CONFIG, or the system's if it is there."""
    if path is not None:
        return path
    named = env.get("STEELYARD_CONFIG")
    if named:
        return Path(named)
    return SYSTEM_FILE if SYSTEM_FILE.exists() else None


def load(
    path: Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """The effective configuration. `overrides` (`{"server.port": 80}`) come from the command
    line. Raises ConfigError."""
    env = os.environ if env is None else env
    problems: list[str] = []
    given: dict[str, Given] = {}
    file = find_file(path, env)
    if file is not None:
        given |= _from_file(file, problems)
    given |= _from_env(env, problems)
    for key, raw in (overrides or {}).items():
        given[key] = Given(raw, f"--{key.partition('.')[2]}", Path.cwd())
    values = _read(given, problems)
    if problems:
        raise ConfigError(problems)
    named = frozenset(values)
    values.setdefault("server.state_dir", default_state_dir(env))
    config = replace(_follow(_assemble(values), values), named=named)
    crossed = list(disagreements(config))
    if crossed:
        where = f"{file}: " if file is not None else ""
        raise ConfigError([where + text for text in crossed])
    return config


def sections() -> Iterator[tuple[str, Any]]:
    """Each section's name and class, in the order of the documentation."""
    hints = get_type_hints(Config)
    for section in fields(Config):
        if section.name != NAMED:
            yield section.name, hints[section.name]


def settings() -> dict[str, tuple[Any, "Field[Any]"]]:
    """Every key (`server.port`) with its type and field."""
    return {
        f"{name}.{of.name}": (get_type_hints(section)[of.name], of)
        for name, section in sections()
        for of in fields(section)
    }


def variable(key: str) -> str:
    """The environment variable that sets `key`."""
    return PREFIX + key.replace(".", "_").upper()


def _hint(name: str, known: list[str]) -> str:
    close = alike(name, known)
    return f"; did you mean `{close}`?" if close else f"; known are {', '.join(known)}"


def _parse(file: Path, problems: list[str]) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            body = opened.read(FILE_BYTES + 1)
        if len(body) > FILE_BYTES:
            raise ValueError(f"larger than {FILE_BYTES} bytes, so it is no configuration")
        return tomllib.loads(body.decode())
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror or error}")
    except RecursionError:
        problems.append(f"{file}: nested too deeply")
    except ValueError as error:
        problems.append(f"{file}: not valid TOML: {error}")
    return {}


def _from_file(file: Path, problems: list[str]) -> dict[str, Given]:
    known = dict(sections())
    given: dict[str, Given] = {}
    base = file.absolute().parent
    for name, body in _parse(file, problems).items():
        if name not in known:
            problems.append(f"{file}: no section `{name}`{_hint_section(name, body)}")
        elif not isinstance(body, dict):
            problems.append(f"{file}: `{name}` is a section: write its keys under [{name}]")
        else:
            keys = [of.name for of in fields(known[name])]
            for key, raw in body.items():
                if key in keys:
                    given[f"{name}.{key}"] = Given(raw, str(file), base)
                else:
                    problems.append(f"{file}: no key `{name}.{key}`{_hint_key(name, key, keys)}")
    return given


def _hint_section(name: str, body: object) -> str:
    """A lone value at the top is most likely a key without its section."""
    if not isinstance(body, dict):
        homes = [key for key in settings() if key.partition(".")[2] == name]
        if homes:
            return f"; did you mean `{homes[0]}`?"
    return _hint(name, [known for known, _ in sections()])


def _hint_key(section: str, key: str, keys: list[str]) -> str:
    """The nearest key of the section, else the same key of another section."""
    close = alike(key, keys)
    if close:
        return f"; did you mean `{section}.{close}`?"
    homes = [known for known in settings() if known.partition(".")[2] == key]
    return f"; did you mean `{homes[0]}`?" if homes else _hint(key, keys)


def _from_env(env: Mapping[str, str], problems: list[str]) -> dict[str, Given]:
    """STEELYARD_<SECTION>_<KEY>. Other STEELYARD_ names are left alone unless they look like a
    misspelt one."""
    keys = settings()
    known = {variable(key): key for key in keys}
    given: dict[str, Given] = {}
    for name in sorted(env):
        if name in known:
            key = known[name]
            given[key] = Given(parse_text(env[name], keys[key][0]), f"${name}", Path.cwd())
        elif _misspelt(name, list(known)):
            nearest = alike(name, list(known), 0)
            problems.append(f"${name}: sets nothing; did you mean ${nearest}?")
    return given


def _misspelt(name: str, known: list[str]) -> bool:
    if not name.startswith(PREFIX) or name.startswith(NOT_OURS):
        return False
    heads = tuple(variable(section) + "_" for section, _ in sections())
    return name.startswith(heads) or bool(alike(name, known, 0.9))


def _read(given: Mapping[str, Given], problems: list[str]) -> dict[str, Any]:
    keys = settings()
    values: dict[str, Any] = {}
    for key, found in given.items():
        hint, of = keys[key]
        try:
            values[key] = Slot(hint, about(of), found.base).read(found.raw)
        except BadValue as error:
            problems.append(f"{found.origin}: {key}: {error}")
    return values


def _assemble(values: Mapping[str, Any]) -> Config:
    parts = {
        name: section(
            **{
                of.name: values[key]
                for of in fields(section)
                if (key := f"{name}.{of.name}") in values
            }
        )
        for name, section in sections()
    }
    return Config(**parts)


def _follow(config: Config, given: Mapping[str, object]) -> Config:
    """Sizes that nobody set follow a smaller size that somebody did set."""
    engine = config.engine
    for name, bound in BOUNDED_BY:
        if f"engine.{name}" not in given:
            smaller = min(getattr(engine, name), getattr(engine, bound))
            engine = replace(engine, **{name: smaller})
    return replace(config, engine=engine)
