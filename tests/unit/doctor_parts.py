"""Builders for tests of the doctor: its ground, a machine made of files, a box that tells."""

import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.config import Config
from appliance.doctor.finding import Finding
from appliance.doctor.ground import Ground
from appliance.doctor.running import Answer, Box
from appliance.doctor.sockets import Holder


class TellingBox(Box):
    """A box that gives these answers: by path, a status and an object."""

    def __init__(self, answers: Mapping[str, tuple[int, Any]], *, pid: int = 1) -> None:
        super().__init__(Holder(pid, "box"), "http://127.0.0.1:1", "", ssl.create_default_context)
        self._answers = answers

    def _ask(self, path: str) -> Answer:
        status, body = self._answers.get(path, (404, {}))
        return Answer(status, json.dumps(body).encode(), "" if status else str(body))


def make_config(tmp_path: Path, **sections: Mapping[str, Any]) -> Config:
    """Defaults but for the sections' fields that are given; the state is in `tmp_path/state`."""
    config = Config()
    config = replace(config, server=replace(config.server, state_dir=tmp_path / "state"))
    for name, fields in sections.items():
        config = replace(config, **{name: replace(getattr(config, name), **fields)})
    return config


def make_ground(
    tmp_path: Path,
    *,
    box: Box | None = None,
    root: Path = Path("/"),
    file: Path | None = None,
    **sections: Mapping[str, Any],
) -> Ground:
    config = make_config(tmp_path, **sections)
    return Ground(config, box or Box.none(), file=file, root=root)


def machine(root: Path, files: Mapping[str, str]) -> Path:
    """Files such as the kernel's."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def levels(findings: Iterable[Finding]) -> dict[str, str]:
    """The worst level of each id."""
    order = ("ok", "note", "warn", "fail")
    found: dict[str, str] = {}
    for one in findings:
        found[one.id] = max(found.get(one.id, "ok"), one.level, key=order.index)
    return found


def only(findings: Iterable[Finding], id: str) -> Finding:
    """The one with this id."""
    found = [one for one in findings if one.id == id]
    assert len(found) == 1, found
    return found[0]
