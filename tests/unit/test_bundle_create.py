"""Bundles as `steelyard bundle create` makes them: of this checkout, with wheels that stand in for
those of the index."""

import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from appliance import __version__
from appliance.bundle import create, sbom, wheels
from appliance.bundle.create import Plan
from appliance.bundle.errors import BundleError
from appliance.bundle.folder import Tell, check_files, open_bundle
from appliance.bundle.manifest import Entry, Manifest
from appliance.bundle.signing import write_pair
from appliance.bundle.wheels import Facts
from appliance.cli import steelyard
from appliance.engine.wheel import ROOT

from .bundle_box import KEY
from .bundle_wheels import wheel_of

PYTHONS = ("3.11", "3.12")
SHARED = "pip-26.3-py3-none-any.whl"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The engine's wheel; nothing is fetched or built."""

    def fetch(root: Path, backend: str, python: str, target: Path, tell: Tell) -> None:
        target.mkdir(parents=True)
        tag = python.replace(".", "")
        (target / SHARED).write_bytes(wheel_of("pip", "26.3", {"pip/a.py": b"a" * 1000}))
        (target / f"x-1.0-cp{tag}-cp{tag}-any.whl").write_bytes(wheel_of("x", "1.0", {}))

    def build_own(root: Path, work: Path, target: Path) -> Path:
        file = target / f"steelyard-{__version__}-py3-none-any.whl"
        file.write_bytes(wheel_of("steelyard", __version__, {}))
        return file

    monkeypatch.setattr(wheels, "fetch", fetch)
    monkeypatch.setattr(wheels, "build_own", build_own)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    engine = tmp_path / "llama_cpp_python-0.3.36-py3-none-any.whl"
    engine.write_bytes(wheel_of("llama_cpp_python", "0.3.36", {}))
    return engine


def make(tmp_path: Path, engine: Path, name: str = "made", **options: object) -> Manifest:
    plan = Plan(pythons=PYTHONS, engine=engine, **options)  # type: ignore[arg-type]
    return create.create(tmp_path / name, plan, KEY, lambda _: None)


def test_a_bundle_holds_what_an_install_needs(offline: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    (tmp_path / "board-1.2.3.fw").write_bytes(b"fw")
    made = make(
        tmp_path,
        offline,
        models=(tmp_path / "tiny.gguf",),
        firmware=(tmp_path / "board-1.2.3.fw",),
        comment="of the test",
    )
    found = open_bundle(tmp_path / "made", [KEY.public])
    check_files(found)
    assert (found.manifest, found.comment) == (made, "of the test")
    paths = {entry.path for entry in made.files}
    assert paths > {
        "install.sh",
        "installer/__main__.py",
        "installer/appliance/bundle/ed25519.py",
        "system/layout.json",
        "system/systemd/steelyard.service",
        "docs/operating.md",
        "models/tiny/tiny.gguf",
        "firmware/board-1.2.3.fw",
        sbom.NAME,
        "LICENSE",
    }
    assert {e.path for e in made.of("engine")} == {f"wheels/{offline.name}"}
    for python, other in (PYTHONS, PYTHONS[::-1]):
        names = {entry.path for entry in made.wheels_for(python)}
        assert f"wheels/{SHARED}" in names
        assert f"wheels/x-1.0-cp{python.replace('.', '')}" in str(names)
        assert f"cp{other.replace('.', '')}" not in str(names)
    pip = next(entry for entry in made.files if entry.path.endswith(SHARED))
    assert pip.unpacked > 1000


def test_the_same_content_makes_the_same_bytes(offline: Path, tmp_path: Path) -> None:
    make(tmp_path, offline, "one")
    make(tmp_path, offline, "two")
    for name in ("manifest.json", "manifest.json.minisig", sbom.NAME):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_layout_is_the_one_of_the_images(offline: Path, tmp_path: Path) -> None:
    made = make(tmp_path, offline)
    layout = json.loads((tmp_path / "made/system/layout.json").read_text())
    assert "steelyard.service" in layout["enabled"]
    listed = {f"system/{file['source']}" for file in layout["files"]}
    assert listed == {e.path for e in made.of("system")} - {"system/layout.json"}
    assert all(file["target"].startswith(("/etc/", "/usr/")) for file in layout["files"])


def test_the_bill_of_materials_names_every_binary(offline: Path, tmp_path: Path) -> None:
    made = make(tmp_path, offline)
    bill = json.loads((tmp_path / "made" / sbom.NAME).read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    refs = [part["bom-ref"] for part in bill["components"]]
    assert sorted(refs) == sorted(e.path for e in made.of("wheel", "engine"))
    engine = next(p for p in bill["components"] if p["name"] == "llama_cpp_python")
    assert engine["purl"] == "pkg:pypi/llama-cpp-python@0.3.36"
    assert bill["dependencies"][0]["dependsOn"] == refs


def test_licences_are_in_the_bill() -> None:
    entry = Entry("wheels/a.whl", 1, "0" * 64, "wheel")
    facts = Facts("A.b_c", "1", "MIT", "does it", 1)
    bill = json.loads(sbom.document("1.0.0", "now", {entry: facts}, licence="Apache-2.0"))
    part = bill["components"][0]
    assert part["licenses"] == [{"license": {"name": "MIT"}}]
    assert part["purl"] == "pkg:pypi/a-b-c@1"


def test_what_cannot_become_a_bundle_is_told(offline: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(BundleError, match="is there already"):
        make(tmp_path, offline, "there")
    stray = tmp_path / "x-1.0-py3-none-any.whl"
    stray.write_bytes(wheel_of("x", "1.0", {}))
    with pytest.raises(BundleError, match=r"is no wheel of llama-cpp-python"):
        make(tmp_path, stray)
    stray.write_bytes(b"no zip")
    with pytest.raises(BundleError, match="is no wheel"):
        make(tmp_path, stray)
    (tmp_path / "my model.gguf").write_bytes(b"GGUF")
    with pytest.raises(BundleError, match="cannot be a name"):
        make(tmp_path, offline, models=(tmp_path / "my model.gguf",))
    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(b"GGUF")
    with pytest.raises(BundleError, match=r"m-00002-of-00002\.gguf is missing"):
        make(tmp_path, offline, models=(first,))
    with pytest.raises(BundleError, match="name its first one"):
        make(tmp_path, offline, models=(second,))
    first.unlink()
    with pytest.raises(BundleError, match="is no version"):
        make(tmp_path, offline, min_version="new")
    with pytest.raises(BundleError, match="is no checkout"):
        create.create(tmp_path / "m", Plan(), KEY, lambda _: None, root=tmp_path)
    with pytest.raises(BundleError, match="built where the GPU is"):
        create.create(tmp_path / "m", Plan(backend="cuda"), KEY, lambda _: None)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"there", stray.name, offline.name, "my model.gguf"}


def test_the_command_makes_one(offline: Path, tmp_path: Path) -> None:
    write_pair(KEY, tmp_path / "own.key")
    arguments = ["--key", str(tmp_path / "own.key"), "--engine", str(offline)]
    done = CliRunner().invoke(steelyard, ["bundle", "create", str(tmp_path / "m"), *arguments])
    assert done.exit_code == 0, done.output
    assert f"Steelyard {__version__}" in done.output


def test_every_lock_can_be_followed_on_another_python() -> None:
    for name in {name for names in wheels.LOCKS.values() for name in names}:
        assert wheels.check_lock(ROOT / f"requirements/{name}.txt") > 0


def test_the_projects_wheel_is_whole_and_leaves_the_checkout_alone(tmp_path: Path) -> None:
    left_behind = ("build", "dist", "steelyard.egg-info")
    before = {name: (ROOT / name).exists() for name in left_behind}
    file = wheels.build_own(ROOT, tmp_path / "work", tmp_path)
    assert {name: (ROOT / name).exists() for name in left_behind} == before
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
    wanted = [
        path.relative_to(ROOT).as_posix()
        for pattern in ("appliance/**/*.py", "tui/**/*.py", "firmware_bridge/**/*.py")
        for path in ROOT.glob(pattern)
    ]
    for pattern in ("appliance/engine/kernels/*.h", "appliance/forecast/packaged/*.forecaster"):
        found = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)]
        assert found
        wanted += found
    assert set(wanted) <= names, set(wanted) - names
    assert not [name for name in names if name.startswith(("tests", "bench", "images"))]
