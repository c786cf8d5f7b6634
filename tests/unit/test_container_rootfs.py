"""The recipe of the Debian tree and the entry script, as far as they go without root."""

import contextlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from images import build
from images.layout import HERE
from images.rootfs import customize, debian
from images.rootfs.debian import Source, mmdebstrap, packages, quoted
from images.rootfs.same import difference


def test_packages_are_names_without_doubles() -> None:
    found = packages()
    assert {"systemd", "udev", "python3", "python3-venv", "libgomp1"} <= set(found)
    assert len(found) == len(set(found))
    assert all(name.replace("-", "").replace("+", "").replace(".", "").isalnum() for name in found)


def test_command_names_everything_that_decides_the_tree(tmp_path: Path) -> None:
    source = Source(wheels=tmp_path / "it's here")
    command = mmdebstrap(tmp_path / "out.tar", source, "python3", Path("/etc/sources"))
    assert command[0] == "mmdebstrap"
    assert command[-3:] == [debian.SUITE, str(tmp_path / "out.tar"), "/etc/sources"]
    hook = next(part for part in command if part.startswith("--customize-hook="))
    assert f"'{tmp_path}/it'\\''s here' '--root' \"$1\"" in hook
    assert any("path-include=/usr/share/doc/*/copyright" in part for part in command)


def test_words_reach_the_shell_as_they_are() -> None:
    words = ["a b", "it's", "$HOME", '"']
    shell = ["sh", "-c", f"printf '%s\\n' {quoted(words)}"]
    assert subprocess.check_output(shell, text=True).splitlines() == words


def test_tree_gets_no_identity_of_the_builder(tmp_path: Path) -> None:
    for entry in debian.DROPPED:
        path = tmp_path / entry.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of the builder")
    (tmp_path / "var/lib/apt/lists").unlink()
    (tmp_path / "var/lib/apt/lists").mkdir()
    (tmp_path / "var/lib/apt/lists/some").write_text("of today")
    (tmp_path / "var/cache/apt").unlink()
    customize.drop(tmp_path)
    assert (tmp_path / "etc/machine-id").read_text() == ""
    assert (tmp_path / "etc/hostname").read_text() == "steelyard\n"
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in left} == {"machine-id", "hostname"}


def test_units_of_debian_are_enabled(tmp_path: Path) -> None:
    customize.enable(tmp_path)
    customize.enable(tmp_path)
    link = tmp_path / "etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
    assert str(link.readlink()) == "/lib/systemd/system/systemd-networkd.service"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--root", "/x"],
        ["--root", "/x", "--wheels", "a", "--bundle", "b", "--key", "k"],
        ["--root", "/x", "--bundle", "b"],
    ],
)
def test_tree_needs_one_source_of_software(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        customize.main(arguments)
    assert "--wheels" in capsys.readouterr().err or arguments[-1] == "b"


def test_bundle_is_installed_by_itself_inside_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.pub"
    key.write_text("untrusted comment: minisign public key\nRWQf6LRCGA9i\n")
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(customize, "inside", lambda root, *command: ran.append(command))
    monkeypatch.setattr(customize, "mounted", lambda folder, at: contextlib.nullcontext())
    customize.install_bundle(tmp_path, tmp_path / "bundle", key)
    assert ran == [
        ("sh", "/mnt/install.sh", "--key", "RWQf6LRCGA9i", "--no-start", "--no-selftest",
         "--appliance"),
    ]  # fmt: skip


def tar_of(path: Path, content: bytes, mode: int = 0o644, name: str = "./etc/file") -> Path:
    with tarfile.open(path, "w") as made:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), mode
        made.addfile(entry, io.BytesIO(content))
    return path


def test_same_trees_do_not_differ_and_others_say_where(tmp_path: Path) -> None:
    one = tar_of(tmp_path / "one", b"same")
    assert difference(one, tar_of(tmp_path / "two", b"same")) == []
    assert "content" in difference(one, tar_of(tmp_path / "three", b"diff"))[0]
    assert "mode 0o644 / 0o755" in difference(one, tar_of(tmp_path / "four", b"same", 0o755))[0]
    assert difference(one, tar_of(tmp_path / "five", b"same", name="./other")) == [
        "./etc/file: only in the first",
        "./other: only in the second",
    ]


def test_missing_tool_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main(["rootfs", str(tmp_path / "out"), "--wheels", str(tmp_path)]) == 1
    assert "mmdebstrap is not installed: apt install mmdebstrap" in capsys.readouterr().err
    assert build.main(["squashfs", str(tmp_path / "out"), "--rootfs", "x"]) == 1
    assert "apt install squashfs-tools" in capsys.readouterr().err


def test_who_is_not_root_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "mmdebstrap"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert build.main(["rootfs", str(tmp_path / "out"), "--wheels", str(tmp_path)]) == 1
    assert "run this as root" in capsys.readouterr().err


def test_time_of_the_files_is_the_one_that_is_asked_for() -> None:
    assert build.epoch(7, {"SOURCE_DATE_EPOCH": "8"}) == 7
    assert build.epoch(None, {"SOURCE_DATE_EPOCH": "8"}) == 8


def test_two_trees_that_differ_are_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = iter([b"one", b"two"])

    def run(command: list[str], seconds: int) -> None:
        tar_of(Path(command[-1]), next(contents))

    monkeypatch.setattr(build, "need", lambda tool: None)
    monkeypatch.setattr(build, "run", run)
    arguments = ["--epoch", "7", "rootfs", str(tmp_path / "out.tar"), "--wheels", str(tmp_path)]
    assert build.main([*arguments, "--twice"]) == 1
    assert "./etc/file: content" in capsys.readouterr().err


def test_mkosi_builds_the_same_packages() -> None:
    """It is not tried here, so at least it must not fall behind."""
    text = (HERE / "mkosi/mkosi.conf").read_text()
    for name in packages():
        assert f"\n    {name}\n" in f"{text}\n", name
