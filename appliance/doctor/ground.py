"""What the checks stand on: the configuration, the machine's files, and the box if one runs."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from appliance.config import Config, ConfigError, find_file, load
from appliance.doctor.enginetrial import EngineTrial, try_engine
from appliance.doctor.running import Box
from appliance.gguf import BadModel
from appliance.models import ModelFile, check
from appliance.tune.store import applied


class Ground:
    """Read by the checks, one after the other. What costs time is done once, when it is wanted."""

    def __init__(
        self,
        config: Config | None,
        box: Box,
        *,
        file: Path | None = None,
        problems: tuple[str, ...] = (),
        root: Path = Path("/"),
    ) -> None:
        """`config`: None where it cannot be used; `problems` then says why. `file`: the one it was
        read from. `root`: where /proc, /sys and /etc are; tests give their own."""
        self._config = config
        self.box = box
        self.file = file
        self.problems = problems
        self.root = root

    @property
    def usable(self) -> bool:
        """The configuration could be read."""
        return self._config is not None

    @property
    def config(self) -> Config:
        assert self._config is not None, "areas that need the configuration are left out without it"
        return self._config

    @property
    def state_dir(self) -> Path:
        return self.config.server.state_dir

    def text(self, path: str) -> str:
        """A small file of the machine (`proc/cpuinfo`), empty where it cannot be read."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(1 << 20).decode(errors="replace").strip()
        except OSError:
            return ""

    @cached_property
    def model(self) -> ModelFile:
        """The one that is served, or would be, checked. A file that nobody knows yet is read whole.
        Raises BadModel."""
        if self.state_dir.is_dir():
            return check(self.config)
        with tempfile.TemporaryDirectory() as folder:  # nothing is made by looking
            server = replace(self.config.server, state_dir=Path(folder))
            return check(replace(self.config, server=server))

    @cached_property
    def model_sha256(self) -> str:
        """Empty where there is no model that can be used."""
        if told := str(self.box.props.get("model_sha256") or ""):
            return told
        try:
            return self.model.sha256
        except BadModel:
            return ""

    @cached_property
    def engine(self) -> EngineTrial:
        """The engine with this model, loaded in a child; it takes seconds."""
        config, _ = applied(self.config, self.model_sha256)
        return try_engine(config, self.box)


def ground(
    file: Path | None,
    *,
    url: str = "",
    key: str = "",
    cacert: str = "",
    env: Mapping[str, str] | None = None,
) -> Ground:
    """For this machine. `url`, `key` and `cacert` of the running box, where they are not what the
    configuration says. Never raises for a configuration that cannot be used."""
    found = find_file(file, os.environ if env is None else env)
    try:
        config = load(file, env)
    except ConfigError as error:
        return Ground(None, Box.none(), file=found, problems=error.problems)
    return Ground(config, Box.find(config, url=url, key=key, cacert=cacert), file=found)
