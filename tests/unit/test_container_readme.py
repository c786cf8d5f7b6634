"""The page of images/ against what is there."""

import re

import pytest

from bench import images as bench_images
from images import build
from images.layout import HERE

TEXT = (HERE / "README.md").read_text()
LINES = re.findall(r"^(?:python -m|podman) .*$", TEXT, re.MULTILINE)


def options_of(kind: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    with pytest.raises(SystemExit):
        build.parser().parse_args([kind, "--help"])
    return set(re.findall(r"--[a-z]+", capsys.readouterr().out))


def test_every_command_that_is_shown_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    shown = [row.partition("#")[0].split() for row in LINES if "images.build" in row]
    assert len(shown) == 5
    for words in shown:
        known = options_of(words[3], capsys)
        assert {word for word in words if word.startswith("--")} <= known, words
        build.parser().parse_args(words[3:])


def test_bench_is_shown_as_it_is_called() -> None:
    assert any("bench.images --wheels" in row for row in LINES)
    assert set(bench_images.CHECKS) == {
        "tree", "squashfs", "boot", "setup", "engine", "daemon", "board", "update", "container",
        "offline",
    }  # fmt: skip


def test_files_that_are_named_exist() -> None:
    for name in re.findall(r"`([\w/.-]+\.(?:service|py|conf|txt))`", TEXT):
        places = [HERE / name, HERE / "systemd" / name, HERE / "rootfs" / name, HERE.parent / name]
        assert any(place.exists() for place in places), name


def test_every_folder_has_its_place_in_the_page() -> None:
    folders = {path.name for path in HERE.iterdir() if path.is_dir() and path.name[0] != "_"}
    told = set(re.findall(r"`?(\w+)/`?", TEXT)) | {"bundle", "firstboot", "udev"}
    assert folders <= told


def test_packages_to_install_are_those_that_the_scripts_name() -> None:
    told = re.search(r"`apt install ([\w -]+)`", TEXT)
    assert told is not None
    assert set(build.TOOLS.values()) <= set(told[1].split())
