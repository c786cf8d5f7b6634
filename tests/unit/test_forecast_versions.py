"""Which forecaster is in use: installed, packaged, chosen, and the way back."""

from pathlib import Path

import pytest

from appliance.forecast.bundle import SUFFIX, BadForecaster, Bundle
from appliance.forecast.versions import CURRENT, KEEP, Versions
from tests.unit.bundle_parts import MODEL, OTHER_MODEL, make_bundle, packaged


def make_versions(state: Path, bundle: Bundle | None = None) -> Versions:
    """With that bundle as the packaged one."""
    return Versions(state, MODEL, packaged(state, bundle))


def home(state: Path) -> Path:
    return state / "forecasters" / MODEL[:12]


def names(versions: Versions) -> list[str]:
    return [version.name for version in versions.list()]


def in_use(versions: Versions) -> str | None:
    current = versions.current()
    return current.name if current is not None else None


def test_fresh_box_has_none(tmp_path: Path) -> None:
    versions = make_versions(tmp_path)
    assert versions.list() == ()
    assert versions.current() is None
    assert versions.load() is None


def test_packaged_one_of_the_model_is_used_until_another_is_installed(tmp_path: Path) -> None:
    versions = make_versions(tmp_path, make_bundle(name="from-the-box"))
    assert in_use(versions) == "packaged"
    installed = versions.install(make_bundle(name="made-here"))
    assert (installed.name, installed.current) == ("v0001", True)
    assert names(versions) == ["packaged", "v0001"]
    found = versions.load()
    assert found is not None
    assert found[1].manifest.name == "made-here"


def test_packaged_one_of_another_model_does_not_count(tmp_path: Path) -> None:
    assert make_versions(tmp_path, make_bundle(model_sha256=OTHER_MODEL)).current() is None


def test_damaged_packaged_file_does_not_count(tmp_path: Path) -> None:
    versions = make_versions(tmp_path)
    (tmp_path / "packaged" / f"x{SUFFIX}").write_bytes(b"PK\x03\x04 nothing more")
    assert versions.list() == ()


def test_rollback_goes_back_one_at_a_time_and_then_says_that_it_cannot(tmp_path: Path) -> None:
    versions = make_versions(tmp_path, make_bundle())
    versions.install(make_bundle(name="a"))
    versions.install(make_bundle(name="b"))
    assert versions.rollback().name == "v0001"
    assert versions.rollback().name == "packaged"
    with pytest.raises(BadForecaster, match="no forecaster before this one"):
        versions.rollback()
    assert in_use(versions) == "packaged"


def test_rollback_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadForecaster, match="steelyard calibrate"):
        make_versions(tmp_path).rollback()


def test_installing_after_a_rollback_takes_a_new_number(tmp_path: Path) -> None:
    versions = make_versions(tmp_path)
    for name in "ab":
        versions.install(make_bundle(name=name))
    versions.rollback()
    assert versions.install(make_bundle(name="c")).name == "v0003"
    assert in_use(versions) == "v0003"


def test_any_version_can_be_chosen_by_name(tmp_path: Path) -> None:
    versions = make_versions(tmp_path, make_bundle())
    versions.install(make_bundle())
    assert versions.use("packaged").current
    assert in_use(versions) == "packaged"
    with pytest.raises(BadForecaster, match=r"no forecaster 'v0007' .*: packaged, v0001"):
        versions.use("v0007")


def test_damaged_version_is_not_chosen(tmp_path: Path) -> None:
    versions = make_versions(tmp_path)
    for name in "ab":
        versions.install(make_bundle(name=name))
    (home(tmp_path) / f"v0001{SUFFIX}").write_bytes(b"nothing")
    with pytest.raises(BadForecaster, match="v0001 is not used: the file is damaged"):
        versions.rollback()
    assert in_use(versions) == "v0002"


def test_bundle_of_another_model_is_not_installed(tmp_path: Path) -> None:
    versions = make_versions(tmp_path)
    with pytest.raises(BadForecaster, match="made for the model"):
        versions.install(make_bundle(model_sha256=OTHER_MODEL))
    assert versions.list() == ()


def test_bundle_that_cannot_be_read_back_is_not_installed(tmp_path: Path) -> None:
    versions = make_versions(tmp_path)
    with pytest.raises(BadForecaster, match="version 99 of the features"):
        versions.install(make_bundle(features=99))
    assert versions.list() == ()


def test_name_of_a_version_that_is_gone_falls_to_the_newest(tmp_path: Path) -> None:
    versions = make_versions(tmp_path, make_bundle())
    versions.install(make_bundle())
    (home(tmp_path) / CURRENT).write_text("v0042\n")
    assert in_use(versions) == "v0001"
    (home(tmp_path) / CURRENT).write_bytes(b"\xff" * 1000)
    assert in_use(versions) == "v0001"


def test_old_versions_go_and_their_numbers_never_come_back(tmp_path: Path) -> None:
    versions = make_versions(tmp_path)
    for n in range(KEEP + 2):
        versions.install(make_bundle(name=f"n{n}"))
    assert names(versions) == [f"v{n:04d}" for n in range(3, KEEP + 3)]
    assert in_use(versions) == f"v{KEEP + 2:04d}"


def test_file_of_a_write_that_was_cut_off_is_no_version(tmp_path: Path) -> None:
    versions = make_versions(tmp_path)
    versions.install(make_bundle())
    (home(tmp_path) / ".new-abc").write_bytes(b"half")
    (home(tmp_path) / f"vx{SUFFIX}").write_bytes(b"?")
    assert names(versions) == ["v0001"]


def test_full_or_forbidden_disk_keeps_the_former_in_use(tmp_path: Path) -> None:
    (tmp_path / "forecasters").write_text("not a directory")
    with pytest.raises(BadForecaster, match="the former one stays in use"):
        make_versions(tmp_path).install(make_bundle())
