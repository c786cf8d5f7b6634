"""A bundle that is not what was signed, in every way that a stick or a stranger can bring about."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from appliance.bundle import fitting, manifest, versions
from appliance.bundle.errors import BundleError
from appliance.bundle.folder import check_files, copy, open_bundle
from appliance.bundle.manifest import Entry, parse
from appliance.cli import run, steelyard

from .bundle_box import KEY, PLAIN, STRANGER, entry_of, make_bundle, make_manifest, opened


def check(folder: Path) -> None:
    check_files(opened(folder))


def test_a_bundle_that_is_whole_passes_and_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    found = opened(make_bundle(tmp_path / "b"))
    check_files(found, lambda done, total: told.append((done, total)))
    total = sum(map(len, PLAIN.values()))
    assert told[-1] == (total, total)
    assert found.comment == "test 0.2.0"
    assert parse(found.manifest.dump()) == found.manifest


def truncate(folder: Path) -> None:
    os.truncate(folder / "docs/install.md", 100)


def grow(folder: Path) -> None:
    with (folder / "docs/install.md").open("ab") as file:
        file.write(b"x")


def tamper(folder: Path) -> None:
    data = bytearray((folder / "docs/install.md").read_bytes())
    data[5] ^= 1
    (folder / "docs/install.md").write_bytes(data)


def remove(folder: Path) -> None:
    (folder / "docs/install.md").unlink()


def link(folder: Path) -> None:
    """To the same bytes, which then somebody else may change."""
    file = folder / "docs/install.md"
    file.rename(folder.parent / "elsewhere")
    file.symlink_to(folder.parent / "elsewhere")


def link_folder(folder: Path) -> None:
    (folder / "docs").rename(folder.parent / "elsewhere")
    (folder / "docs").symlink_to(folder.parent / "elsewhere")


def pipe(folder: Path) -> None:
    remove(folder)
    os.mkfifo(folder / "docs/install.md")


def add(folder: Path) -> None:
    (folder / "docs/extra.py").write_text("import os")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (truncate, "is cut off: 100 of 7000 bytes"),
        (grow, "changed or damaged"),
        (tamper, "changed or damaged"),
        (remove, "cannot be read: No such file"),
        (link, "cannot be read"),
        (link_folder, "is no part of the bundle"),
        (pipe, "get the bundle again"),
        (add, "docs/extra.py is no part of the bundle"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_damage_is_told(tmp_path: Path, damage: Callable[[Path], None], told: str) -> None:
    folder = make_bundle(tmp_path / "b")
    damage(folder)
    with pytest.raises(BundleError, match=told):
        check(folder)


def test_the_manifest_is_what_was_signed(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "b")
    data = (folder / manifest.NAME).read_bytes()
    (folder / manifest.NAME).write_bytes(data.replace(b'"0.2.0"', b'"9.2.0"'))
    with pytest.raises(BundleError, match="the manifest is not what was signed"):
        opened(folder)
    (folder / manifest.NAME).write_bytes(data[:100])
    with pytest.raises(BundleError, match="the manifest is not what was signed"):
        opened(folder)
    with pytest.raises(BundleError, match="not trusted here"):
        open_bundle(make_bundle(tmp_path / "c", key=STRANGER), [KEY.public])


@pytest.mark.parametrize("missing", [manifest.NAME, manifest.SIGNATURE_NAME])
def test_without_manifest_or_signature_it_is_no_bundle(tmp_path: Path, missing: str) -> None:
    folder = make_bundle(tmp_path / "b")
    (folder / missing).unlink()
    with pytest.raises(BundleError, match=f"{missing} cannot be read"):
        opened(folder)
    with pytest.raises(BundleError, match="is no folder"):
        opened(tmp_path / "nowhere")


def test_a_copy_is_whole_or_not_there(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "b")
    entry = next(e for e in opened(folder).manifest.files if e.path == "docs/install.md")
    target = tmp_path / "to/copy.md"
    tamper(folder)
    with pytest.raises(BundleError):
        copy(folder / entry.path, entry, target)
    assert list(target.parent.iterdir()) == []
    (folder / entry.path).write_bytes(PLAIN[entry.path])
    copy(folder / entry.path, entry, target)
    assert target.read_bytes() == PLAIN[entry.path]


GOOD = make_manifest((entry_of("README.md", b"x"),))


def changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(GOOD.dump()), **members}).encode()


def with_entry(**members: Any) -> bytes:
    entry = json.loads(GOOD.dump())["files"][0]
    return changed(files=[{**entry, **members}])


BAD_MANIFESTS = {
    "no json": b"{",
    "not an object": b"[]",
    "deep": b"[" * 100_000,
    "another name": changed(name="other"),
    "another format": changed(format=2),
    "no version": changed(version="new"),
    "no Python": changed(pythons=[]),
    "an odd Python": changed(pythons=["3.11; rm"]),
    "no files": changed(files=[]),
    "a path upwards": with_entry(path="../etc/passwd"),
    "a path upwards inside": with_entry(path="docs/../../etc/passwd"),
    "an absolute path": with_entry(path="/etc/passwd"),
    "a hidden path": with_entry(path=".ssh/keys"),
    "an option": with_entry(path="-rf"),
    "a line break": with_entry(path="a\nb"),
    "its own name": with_entry(path="manifest.json"),
    "a wrong hash": with_entry(sha256="ab"),
    "a negative size": with_entry(size=-1),
    "a size that is true": with_entry(size=True),
    "an unknown role": with_entry(role="script"),
    "a file twice": changed(
        files=[
            *json.loads(GOOD.dump())["files"],
            {**json.loads(GOOD.dump())["files"][0], "path": "readme.MD"},
        ]
    ),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_manifest_that_cannot_be_used_is_refused(name: str) -> None:
    assert parse(GOOD.dump()) == GOOD
    with pytest.raises(BundleError):
        parse(BAD_MANIFESTS[name])


def test_wheels_are_those_of_the_python_that_is_there() -> None:
    both = Entry("wheels/a.whl", 1, "0" * 64, "wheel")
    older = replace(both, path="wheels/b-cp311.whl", python=("3.11",))
    newer = replace(both, path="wheels/b-cp312.whl", python=("3.12",))
    made = replace(GOOD, pythons=("3.11", "3.12"), files=(both, older, newer))
    assert made.wheels_for("3.11") == (both, older)
    assert made.wheels_for("3.12") == (both, newer)
    with pytest.raises(BundleError, match=r"for Python 3\.11 or 3\.12, and this machine has 3\.13"):
        made.wheels_for("3.13")


@pytest.mark.parametrize(
    ("installed", "offered", "lowest", "allowed", "told"),
    [
        ("0.1.0", "0.2.0", "0.1.0", False, None),
        ("0.2.0", "0.2.0", "0.1.0", False, None),
        ("0.10.0", "0.9.0", "0.1.0", False, "--allow-downgrade"),
        ("0.10.0", "0.9.0", "0.1.0", True, None),
        ("0.1.9", "0.3.0", "0.2.0", False, r"update to 0\.2\.0 first"),
    ],
)
def test_versions_may_follow_each_other_upwards(
    installed: str, offered: str, lowest: str, allowed: bool, told: str | None
) -> None:
    if told is None:
        versions.check_step(installed, offered, lowest, allow_downgrade=allowed)
        return
    with pytest.raises(BundleError, match=told):
        versions.check_step(installed, offered, lowest, allow_downgrade=allowed)


def test_a_bundle_for_another_machine_is_refused() -> None:
    fitting.check_machine(GOOD)
    with pytest.raises(BundleError, match="linux-riscv64"):
        fitting.check_machine(replace(GOOD, platform="linux-riscv64"))
    with pytest.raises(BundleError, match=r"needs glibc 99\.1 or newer"):
        fitting.check_machine(replace(GOOD, glibc="99.1"))


def test_the_command_verifies_and_lists(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "b")
    key = ("--key", KEY.public.line())
    told = CliRunner().invoke(steelyard, ["bundle", "verify", str(folder), *key, "--json"])
    assert json.loads(told.output)["version"] == "0.2.0"
    told = CliRunner().invoke(steelyard, ["bundle", "verify", str(folder), *key])
    assert told.output.startswith("ok: Steelyard 0.2.0")
    listed = CliRunner().invoke(steelyard, ["bundle", "list", str(folder), *key])
    assert "docs/install.md" in listed.output
    root = tmp_path / "root"
    (root / "etc/steelyard").mkdir(parents=True)
    (root / "etc/steelyard/bundle.pub").write_text(KEY.public.text())
    assert run(["bundle", "verify", str(folder), "--root", str(root)]) == 0


def test_the_command_says_why_not_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_bundle(tmp_path / "b")
    tamper(folder)
    key = ("--key", KEY.public.line())
    assert run(["bundle", "verify", str(folder), *key]) == 1
    assert "was changed or damaged. Get the bundle again" in capsys.readouterr().err
    assert run(["bundle", "verify", str(folder), "--root", str(tmp_path)]) == 1
    assert "bundle.pub is missing" in capsys.readouterr().err
    assert run(["update", str(folder), *key, "--root", str(tmp_path / "none")]) == 1
    assert "changed or damaged" in capsys.readouterr().err


def test_keygen_makes_a_pair_that_signs(tmp_path: Path) -> None:
    done = CliRunner().invoke(steelyard, ["bundle", "keygen", str(tmp_path / "own.key")])
    assert done.exit_code == 0
    from appliance.bundle.signing import read_secret

    key = read_secret(tmp_path / "own.key")
    assert key.public.line() in done.output
    assert (tmp_path / "own.pub").read_text() == key.public.text()
