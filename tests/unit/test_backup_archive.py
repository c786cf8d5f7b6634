"""Files that are no whole backups, or were made to mislead: told, and nothing is written."""

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from appliance.backup import BackupError, archive, restore, sealing, take, verify
from appliance.backup.listing import backups
from appliance.backup.manifest import Manifest, Part, decoded, encoded
from appliance.backup.places import ENDING
from tests.unit.backup_parts import PASSPHRASE, make_state


@pytest.fixture(scope="module", autouse=True)
def _hurried() -> Iterator[None]:
    """To make a key takes some tenths of a second, by intent. It is the same here, but small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "N", 1 << 10)
        yield


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read, never written to."""
    return make_state(tmp_path_factory.mktemp("backup") / "state")


@pytest.fixture(scope="module")
def plain(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return take(state, tmp_path_factory.mktemp("plain") / "b").path


@pytest.fixture(scope="module")
def sealed(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return take(state, tmp_path_factory.mktemp("sealed") / "b", passphrase=PASSPHRASE).path


@pytest.mark.parametrize("which", ["plain", "sealed"])
def test_a_backup_cut_off_anywhere_is_told(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    whole = request.getfixturevalue(which).read_bytes()
    cut = tmp_path / "cut"
    for share in range(24):
        cut.write_bytes(whole[: len(whole) * share // 24])
        with pytest.raises(BackupError, match=str(cut)):
            verify(cut, passphrase=PASSPHRASE)
    cut.write_bytes(whole[:-1])
    with pytest.raises(BackupError, match=str(cut)):
        verify(cut, passphrase=PASSPHRASE)


@pytest.mark.parametrize("which", ["plain", "sealed"])
def test_a_backup_changed_anywhere_is_told(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    whole = request.getfixturevalue(which).read_bytes()
    changed = tmp_path / "changed"
    for share in range(24):
        at = 10 + (len(whole) - 20) * share // 24
        data = bytearray(whole)
        data[at] ^= 0x55
        if which == "plain" and _says(data) == _says(whole):
            continue  # a copy of other, equal bytes: another way to say the same
        changed.write_bytes(data)
        with pytest.raises(BackupError):
            verify(changed, passphrase=PASSPHRASE)


def _says(packed: bytes) -> bytes | None:
    """What a gzip file holds; None: it is damaged."""
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        return None


def test_more_bytes_after_the_end_are_told(plain: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer"
    longer.write_bytes(plain.read_bytes() + b"more")
    with pytest.raises(BackupError):
        verify(longer)


@pytest.mark.parametrize(
    "name",
    ["../evil", "state/../../evil", "/etc/passwd", "state//x", "other/x", "state/a\nb", "state/."],
)
def test_a_manifest_that_leads_elsewhere_is_refused(plain: Path, name: str) -> None:
    with archive.open_archive(plain, None) as opened:
        manifest = opened.manifest
    made = replace(manifest, files=(*manifest.files, Part(name, 0, "00" * 32)))
    with pytest.raises(BackupError, match="no backup of Steelyard"):
        decoded(encoded(made))


def test_a_manifest_without_a_ledger_is_refused(plain: Path) -> None:
    with archive.open_archive(plain, None) as opened:
        manifest = opened.manifest
    with pytest.raises(BackupError, match="names no ledger"):
        decoded(encoded(replace(manifest, files=manifest.files[1:])))


@pytest.mark.parametrize("where", ["elsewhere/00-x", "config/files/../../x", "/etc/passwd"])
def test_a_manifest_whose_configuration_leads_elsewhere_is_refused(plain: Path, where: str) -> None:
    with archive.open_archive(plain, None) as opened:
        manifest = opened.manifest
    with pytest.raises(BackupError, match="where none can be"):
        decoded(encoded(replace(manifest, referenced={where: "/etc/x"})))


def header(kind: bytes, size: int) -> bytes:
    """Of a member that is about the next one."""
    made = tarfile.TarInfo("about")
    made.type, made.size = kind, size
    return made.tobuf(tarfile.USTAR_FORMAT) + bytes(size + -size % 512)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        *(header(kind, 1 << 20) for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE)),
        *(header(kind, 1 << 20) for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)),
        header(tarfile.GNUTYPE_LONGNAME, 0) * 2000,
    ],
    ids=["pax", "global", "name", "link", "chain"],
)
def test_headers_without_end_are_not_read(
    plain: Path, tmp_path: Path, headers: bytes, first: bool
) -> None:
    """What packs to a thousandth would fill the memory, or the stack."""
    whole = gzip.decompress(plain.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        tar.next()
        at = 0 if first else getattr(tar.next(), "offset", 0)
    bomb = tmp_path / f"bomb{ENDING}"
    bomb.write_bytes(gzip.compress(whole[:at] + headers + whole[at:], 1))
    with pytest.raises(BackupError, match="more than its manifest says"):
        verify(bomb)
    (listed,) = backups(tmp_path)
    assert bool(listed.problem) == first


def test_what_no_backup_can_hold_is_told_and_the_rest_can_be_restored(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    odd = [b"line\nbreak", b"no-utf8-\xe9", b"/".join([b"deep"] * 20)]
    for name in odd:
        path = Path(os.fsdecode(os.fsencode(state) + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"somebody's")
    taken = take(state, tmp_path / "b")
    assert len(taken.warnings) == len(odd)
    assert all(warning.isascii() and "rename it" in warning for warning in taken.warnings)
    assert not verify(taken.path).problems
    restore(taken.path, tmp_path / "new")


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = len(data), kind, "/etc/passwd"
    return made


def links(manifest: Manifest) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [(member(part.path, kind=tarfile.SYMTYPE), b"") for part in manifest.files]


def more(manifest: Manifest) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [(member("state/evil", b"evil"), b"evil")]


def larger(manifest: Manifest) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [(member(manifest.files[0].path, bytes(9000)), bytes(9000))]


@pytest.mark.parametrize("what", [links, more, larger, lambda manifest: []])
def test_an_archive_that_is_not_what_its_manifest_says_writes_nothing(
    plain: Path, tmp_path: Path, what: Callable[[Manifest], list[tuple[tarfile.TarInfo, bytes]]]
) -> None:
    with archive.open_archive(plain, None) as opened:
        manifest = replace(opened.manifest, files=opened.manifest.files[:1])
    told = encoded(manifest)
    with tarfile.open(tmp_path / "made", "w") as tar:
        for info, data in [(member("manifest.json", told), told), *what(manifest)]:
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(BackupError):
        restore(tmp_path / "made", tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"daemon.lock"}


def test_a_key_that_would_take_all_memory_is_not_made(sealed: Path, tmp_path: Path) -> None:
    greedy = tmp_path / "greedy"
    data = sealed.read_bytes().replace(b'"n":1024', b'"n":8388608')
    assert data != sealed.read_bytes()
    greedy.write_bytes(data)
    with pytest.raises(BackupError, match="damaged"):
        verify(greedy, passphrase=PASSPHRASE)
