"""Every command of docs/install.md, run on a small bundle in a tree; docs/update.md's are run by
test_bundle_install.py."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from appliance.bundle import create
from appliance.bundle.signing import SecretKey
from appliance.commands.update import PHASES
from appliance.engine.wheel import ROOT

from .bundle_pages import commands, do
from .bundle_wheels import installable


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the operator stands; what is made there is on the stick, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHON", sys.executable)

    def make(target: Path, plan: create.Plan, key: SecretKey, *_: object, **__: object) -> object:
        installable(target, "0.1.0", key=key)
        shutil.copytree(target, tmp_path / "usb" / target.name)
        return create.manifest.parse((target / "manifest.json").read_bytes())

    monkeypatch.setattr(create, "create", make)
    return tmp_path


def test_the_commands_of_the_install_page_work(desk: Path) -> None:
    lines = commands("docs/install.md")
    assert len(lines) == 8
    for line in lines:
        do(line, desk / "usb", desk / "tree")


def test_every_state_that_status_can_show_is_on_the_page() -> None:
    page = (ROOT / "docs/update.md").read_text()
    rows = set(re.findall(r"^\| ([^|]+?) \| ", page, re.MULTILINE))
    assert set(PHASES.values()) - {"done"} <= rows
