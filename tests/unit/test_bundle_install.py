"""install.sh and `steelyard update` on small bundles whose wheels pip really installs."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from appliance.bundle.create import INSTALLER
from appliance.bundle.layout import Layout
from appliance.bundle.record import KILL
from appliance.cli import steelyard
from appliance.engine.wheel import ROOT

from .bundle_box import KEY, STRANGER
from .bundle_pages import commands, do
from .bundle_wheels import installable

FIRST = {"PYTHON": sys.executable, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PATH": os.defpath}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installable(tmp_path_factory.mktemp("bundles") / "first", "0.1.0")


@pytest.fixture(scope="module")
def installed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree that install.sh made, in a second run: the power failed during the first. Tests work
    on copies of it."""
    root = tmp_path_factory.mktemp("tree") / "root"
    cut = install(bundle, root, **{KILL: "venv"})
    assert cut.returncode == -signal.SIGKILL
    assert (Layout(root).slot("a") / "venv").is_dir()
    assert Layout(root).in_use() is None
    done = install(bundle, root)
    assert done.returncode == 0, done.stderr
    return root


def install(
    bundle: Path, root: Path, key: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """As an operator does, on a machine whose pip is set up for an index that is not there."""
    line = key or KEY.public.line()
    # An operator's umask must not keep the box's own user from reading its program.
    order = 'umask 0077; exec sh "$0" --key "$1" --root "$2"'
    command = ["sh", "-c", order, str(bundle / "install.sh"), line, str(root)]
    env = {**FIRST, **env}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.fixture
def root(installed: Path, tmp_path: Path) -> Path:
    shutil.copytree(installed, tmp_path / "root", symlinks=True)
    return tmp_path / "root"


def said(root: Path) -> str:
    command = [str(root / "opt/steelyard/current/venv/bin/steelyard"), "hello"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_install_makes_a_slot_a_command_and_a_guard(installed: Path, bundle: Path) -> None:
    layout = Layout(installed)
    assert layout.in_use() == "a"
    assert said(installed) == "steelyard 0.1.0 hello"
    assert layout.command.readlink() == Path("/opt/steelyard/current/venv/bin/steelyard")
    assert (installed / "etc/systemd/system/box.service").read_text() == "# 0.1.0\n"
    assert layout.trusted_keys() == (KEY.public,)
    assert not (layout.slot("a") / "venv/bin/pip").exists()
    for path in (layout.base, *layout.base.rglob("*"), layout.config.parent, layout.trusted):
        open_to_all = 0o555 if path.is_dir() else 0o444
        assert path.is_symlink() or path.stat().st_mode & open_to_all == open_to_all, path
    assert not list(bundle.rglob("__pycache__")), "the bundle was written to"
    guard = [sys.executable, "-I", "-B", str(layout.boot), "guard", "before", "--root"]
    done = subprocess.run([*guard, str(installed)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_installing_again_is_refused(bundle: Path, root: Path) -> None:
    done = install(bundle, root)
    assert done.returncode == 1
    assert "is installed" in done.stderr
    assert "steelyard update" in done.stderr


def test_nothing_of_a_bundle_that_was_changed_is_installed(bundle: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(bundle, changed)
    wheel = next((changed / "wheels").glob("steelyard-*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"\n")
    done = install(changed, tmp_path / "root")
    assert done.returncode == 1
    assert "was changed or damaged" in done.stderr
    assert not (tmp_path / "root").exists()
    done = install(bundle, tmp_path / "root", STRANGER.public.line())
    assert done.returncode == 1
    assert "not trusted here" in done.stderr
    assert not (tmp_path / "root").exists()


def test_without_a_key_it_says_where_one_is_looked_for(bundle: Path, tmp_path: Path) -> None:
    command = ["sh", str(bundle / "install.sh"), "--root", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=FIRST)
    assert done.returncode == 1
    assert "etc/steelyard/bundle.pub is missing" in done.stderr
    assert "give --key" in done.stderr


def test_a_wheel_that_changes_after_the_check_is_not_installed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a stick may that is pulled out and put in again."""
    from appliance.bundle import filling
    from appliance.bundle.folder import check_files, open_bundle

    folder = installable(tmp_path / "new", "0.2.0")
    opened = open_bundle(folder, [KEY.public])
    check_files(opened)
    wheel = next((folder / "wheels").glob("steelyard-*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"\n")
    monkeypatch.setenv("PIP_NO_DEPS", "0")
    with pytest.raises(filling.BundleError, match=r"(?s)cannot be installed.*sha256"):
        filling.fill(Layout(root).slot("b"), opened)
    assert Layout(root).digest("b") == ""


def test_the_commands_of_the_update_page_work(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into the other slot, on trial until a start, and back."""
    installable(tmp_path / "steelyard-bundle", "0.2.0")
    update, status, rollback, settle = commands("docs/update.md")
    do(update, tmp_path, root)
    assert said(root) == "steelyard 0.2.0 hello"
    assert (root / "etc/systemd/system/box.service").read_text() == "# 0.2.0\n"
    capsys.readouterr()
    do(f"{status} --json", tmp_path, root)
    told = json.loads(capsys.readouterr().out)
    assert told["slots"] == [
        {"slot": "a", "version": "0.1.0", "in_use": False},
        {"slot": "b", "version": "0.2.0", "in_use": True},
    ]
    assert told["update"]["phase"] == "trial"

    for when in ("before", "ready"):  # as the unit does at a start
        do(f"python3 -I -B /opt/steelyard/boot guard {when}", tmp_path, root)
    do(status, tmp_path, root)
    shown = capsys.readouterr().out
    assert "* slot b: 0.2.0" in shown
    assert "update from 0.1.0 to 0.2.0: done" in shown

    do(rollback, tmp_path, root)
    assert said(root) == "steelyard 0.1.0 hello"
    assert (root / "etc/systemd/system/box.service").read_text() == "# 0.1.0\n"
    do(settle, tmp_path, root)
    assert "update from 0.2.0 to 0.1.0: in use, and on trial" in capsys.readouterr().out


def test_where_nothing_is_installed_status_says_so(tmp_path: Path) -> None:
    shown = CliRunner().invoke(steelyard, ["update", "status", "--root", str(tmp_path)])
    assert shown.output.startswith("nothing is installed in")
    settled = CliRunner().invoke(steelyard, ["update", "settle", "--root", str(tmp_path)])
    assert settled.exit_code == 1


@pytest.mark.parametrize("module", INSTALLER)
def test_the_installer_needs_the_standard_library_alone(module: str) -> None:
    tree = ast.parse((ROOT / f"appliance/bundle/{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
            assert names <= sys.stdlib_module_names, names
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if origin == "appliance.bundle":
                assert {alias.name for alias in node.names} <= set(INSTALLER)
            elif origin.startswith("appliance.bundle."):
                assert origin.rpartition(".")[2] in INSTALLER
            else:
                assert origin.partition(".")[0] in sys.stdlib_module_names, origin
