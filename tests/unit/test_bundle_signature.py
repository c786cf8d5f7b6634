"""Signatures of bundles: our arithmetic against the standard's vectors and another library, our
files against minisign's own program."""

import argparse
import base64
import errno
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.bundle import ed25519, entry, minisign, signing
from appliance.bundle.errors import BundleError
from appliance.bundle.minisign import PublicKey
from appliance.bundle.passphrase import work
from appliance.bundle.signing import SecretKey
from appliance.cli import run

from .bundle_box import KEY, STRANGER

ORDER = 2**252 + 27742317777372353535851937790883648493

# RFC 8032, section 7.1: public key, message, signature.
VECTORS = {
    "empty": (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    "one byte": (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    "two bytes": (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    "a hash": (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
        "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
        "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
}

SMALL_ORDER = (
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
)
"""Points whose multiple by eight is zero; as keys they accept what nobody signed."""


@pytest.mark.parametrize("name", VECTORS)
def test_the_standards_vectors_verify_and_nothing_near_them_does(name: str) -> None:
    key, message, signature = (bytes.fromhex(part) for part in VECTORS[name])
    assert ed25519.verify(key, signature, message)
    assert not ed25519.verify(key, signature, message + b"x")
    for at in (0, 31, 32, 63):
        changed = bytearray(signature)
        changed[at] ^= 1
        assert not ed25519.verify(key, bytes(changed), message)


def test_a_signature_whose_number_is_above_the_order_is_refused() -> None:
    """It would be a second signature of the same message."""
    key, message, signature = (bytes.fromhex(part) for part in VECTORS["one byte"])
    number = int.from_bytes(signature[32:], "little") + ORDER
    assert not ed25519.verify(key, signature[:32] + number.to_bytes(32, "little"), message)


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_keys_of_small_order_sign_nothing(point: str) -> None:
    key = bytes.fromhex(point)
    zero = bytes.fromhex(SMALL_ORDER[0])
    for r in (key, zero):
        assert not ed25519.verify(key, r + bytes(32), b"anything")


@pytest.mark.parametrize("key", [b"", bytes(31), b"\xff" * 32, b"\x02" + bytes(31)])
def test_what_is_no_point_is_no_key(key: bytes) -> None:
    signature = bytes.fromhex(VECTORS["empty"][2])
    assert not ed25519.verify(key, signature, b"")


@settings(max_examples=25, deadline=None)
@given(seed=st.binary(min_size=32, max_size=32), message=st.binary(max_size=200), flip=st.data())
def test_it_agrees_with_the_library(seed: bytes, message: bytes, flip: st.DataObject) -> None:
    private = Ed25519PrivateKey.from_private_bytes(seed)
    key, signature = private.public_key().public_bytes_raw(), private.sign(message)
    assert ed25519.verify(key, signature, message)
    bit = flip.draw(st.integers(0, 511))
    number = int.from_bytes(signature, "little") ^ (1 << bit)
    changed = number.to_bytes(64, "little")
    assert not ed25519.verify(key, changed, message)
    assert not signing.verify(key, changed, message)


@pytest.mark.parametrize("verify", [ed25519.verify, signing.verify])
def test_a_signature_says_who_signed_what(verify: minisign.Verify) -> None:
    text = KEY.sign(b"a manifest", "of today").text()
    found = minisign.parse_signature(text)
    assert minisign.check(b"a manifest", found, [STRANGER.public, KEY.public], verify) == KEY.public
    assert found.comment == "of today"
    with pytest.raises(BundleError, match="changed or damaged"):
        minisign.check(b"a manifesT", found, [KEY.public], verify)
    with pytest.raises(BundleError, match="not trusted here"):
        minisign.check(b"a manifest", found, [STRANGER.public], verify)
    other = minisign.parse_signature(text.replace("of today", "of never"))
    with pytest.raises(BundleError, match="comment was changed"):
        minisign.check(b"a manifest", other, [KEY.public], verify)


def test_another_key_under_a_trusted_name_is_found_out() -> None:
    forger = SecretKey(KEY.key_id, STRANGER.seed)
    forged = minisign.parse_signature(forger.sign(b"data", "x").text())
    with pytest.raises(BundleError, match="changed or damaged"):
        minisign.check(b"data", forged, [KEY.public])


@pytest.mark.parametrize(
    "text",
    ["", "one line", "a\nb\nc\nd\n", "untrusted comment: x\nRW==\ntrusted comment: y\n!!\n"],
)
def test_a_damaged_signature_file_is_told(text: str) -> None:
    with pytest.raises(BundleError, match="damaged"):
        minisign.parse_signature(text)


def test_keys_come_from_files_and_from_lines(tmp_path: Path) -> None:
    public = signing.write_pair(KEY, tmp_path / "own.key")
    assert signing.read_secret(tmp_path / "own.key") == KEY
    assert (tmp_path / "own.key").stat().st_mode & 0o777 == 0o600
    assert signing.key_given(str(public)) == signing.key_given(KEY.public.line()) == KEY.public
    both = f"# ours\n{KEY.public.text()}\n# the supplier's\n{STRANGER.public.line()}\n"
    assert minisign.parse_keys(both) == (KEY.public, STRANGER.public)
    with pytest.raises(BundleError, match=r"own.key is there already.* another name"):
        signing.write_pair(STRANGER, tmp_path / "own.key")
    assert signing.read_secret(tmp_path / "own.key") == KEY
    for bad in ("", "RWQ", "untrusted comment: only"):
        with pytest.raises(BundleError):
            minisign.parse_keys(bad)


@pytest.mark.parametrize("given", ["A" * 5000, "a\0b", ""])
def test_what_is_neither_a_key_nor_a_file_is_told(given: str) -> None:
    with pytest.raises(BundleError, match=r"public key|cannot be read"):
        signing.key_given(given)
    with pytest.raises(BundleError, match=r"public key|cannot be read"):
        entry._keys(argparse.Namespace(key=given or " ", root=Path("/")))


@pytest.mark.parametrize("name", ["own.pub", "own.key"])
def test_half_a_pair_of_keys_is_never_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "own.pub").touch()
    with pytest.raises(BundleError, match=r"own\.pub .*give"):
        signing.write_pair(KEY, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["own.pub"]

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BundleError, match=r"No space left.*Name a place with room"):
        signing.write_pair(KEY, tmp_path / "other.key")
    assert [path.name for path in tmp_path.iterdir()] == ["own.pub"]


def test_a_damaged_secret_key_is_refused() -> None:
    lines = KEY.text().splitlines()
    middle = len(lines[1]) // 2
    other = "A" if lines[1][middle + 40] != "A" else "B"
    lines[1] = lines[1][: middle + 40] + other + lines[1][middle + 41 :]
    with pytest.raises(BundleError, match="damaged"):
        signing.parse_secret("\n".join(lines))


def sealed(passphrase: bytes, ops: int, memory: int, cost: int, parallel: int) -> str:
    """KEY's file as minisign seals it, with scrypt's numbers said rather than derived."""
    first, line = KEY.text().splitlines()
    data = base64.b64decode(line)
    salt = bytes(range(32))
    stream = hashlib.scrypt(passphrase, salt=salt, n=cost, r=8, p=parallel, dklen=104)
    body = bytes(one ^ other for one, other in zip(data[54:], stream, strict=True))
    head = b"EdScB2" + salt + ops.to_bytes(8, "little") + memory.to_bytes(8, "little")
    return f"{first}\n{base64.b64encode(head + body).decode()}\n"


@pytest.mark.parametrize(
    ("ops", "memory", "cost", "parallel"),
    [(32768, 16 << 20, 1024, 1), (0, 1 << 20, 1024, 1), (1 << 20, 4 << 20, 4096, 8)],
)
def test_a_secret_key_opens_with_its_passphrase_alone(
    ops: int, memory: int, cost: int, parallel: int
) -> None:
    text = sealed(b"open sesame", ops, memory, cost, parallel)
    assert signing.parse_secret(text, lambda: b"open sesame") == KEY
    with pytest.raises(BundleError, match="the passphrase is another"):
        signing.parse_secret(text, lambda: b"open barley")
    with pytest.raises(BundleError, match="has a passphrase, and none was given"):
        signing.parse_secret(text)
    assert signing.parse_secret(KEY.text(), lambda: pytest.fail("asked for nothing")) == KEY


def test_a_bundle_is_not_begun_with_another_passphrase(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, words = tmp_path / "own.key", tmp_path / "words"
    key.write_text(sealed(b"open sesame", 32768, 16 << 20, 1024, 1))
    words.write_text("open barley\n")
    command = ["bundle", "create", str(tmp_path / "out"), "--key", str(key)]
    assert run([*command, "--passphrase-file", str(words)]) == 1
    assert "the passphrase is another" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_work_is_what_minisign_itself_asks_of_a_machine() -> None:
    assert work(1 << 25, 1 << 30) == (1 << 20, 1), "its own keys, a GiB"
    assert work(1 << 24, 1 << 29) == (1 << 19, 1), "where that was not to be had"


def test_a_key_that_asks_for_endless_work_is_refused_at_once() -> None:
    text = sealed(b"x", 32768, 16 << 20, 1024, 1).splitlines()
    data = bytearray(base64.b64decode(text[1]))
    for ops, memory in ((1 << 60, 1 << 60), (1 << 62, 1 << 30), (1 << 40, 1 << 29)):
        data[38:54] = ops.to_bytes(8, "little") + memory.to_bytes(8, "little")
        line = base64.b64encode(data).decode()
        with pytest.raises(BundleError, match="more than any key of minisign's"):
            signing.parse_secret(f"{text[0]}\n{line}\n", lambda: b"x")


def test_minisigns_own_program_agrees(tmp_path: Path) -> None:
    program = shutil.which("minisign")
    if program is None:
        pytest.skip("the program minisign is not installed (apt install minisign)")
    file = tmp_path / "manifest.json"
    file.write_bytes(b"the manifest")
    signing.write_pair(KEY, tmp_path / "own.key")
    (tmp_path / "manifest.json.minisig").write_text(KEY.sign(b"the manifest", "ours").text())
    command = [program, "-Vm", str(file), "-P", KEY.public.line()]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    file.write_bytes(b"another one!")
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0

    command = [program, "-Sm", str(file), "-s", str(tmp_path / "own.key"), "-t", "theirs"]
    subprocess.run(command, check=True, capture_output=True)
    made = minisign.parse_signature((tmp_path / "manifest.json.minisig").read_text())
    assert minisign.check(b"another one!", made, [KEY.public]) == KEY.public
    assert made.comment == "theirs"


def test_a_key_is_named_as_minisign_names_it() -> None:
    assert PublicKey(bytes.fromhex("0102030405060708"), bytes(32)).name == "0807060504030201"
