"""Firmware images and their signatures, at both ends."""

import json
import struct
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from hypothesis import given, settings
from hypothesis import strategies as st

from firmware_bridge.firmware import schema, signature
from firmware_bridge.firmware.slots import (
    HEAD,
    HEAD_SIZE,
    MAGIC,
    MAX_FILES,
    MAX_HEAD,
    Flash,
    manifest_of,
    outcome,
)
from firmware_bridge.image import (
    ImageError,
    build,
    firmware_files,
    is_signed_by,
    lay_out,
    parse_version,
    read,
    trust_line,
    trusted,
    version_of,
)
from firmware_bridge.wire import Decoder, encode
from tests.unit import micropython
from tests.unit.update_parts import signer, small_files, small_image, stranger, trust

TEXT = b"what is signed"


def modulus() -> int:
    return signer().public_key().public_numbers().n


def signed(text: bytes = TEXT) -> bytes:
    return signer().sign(text, PKCS1v15(), SHA256())


def holds(text: bytes, proof: bytes, key: int) -> bool:
    return outcome(signature.check(text, proof, key)) is True


def test_a_signature_holds_for_its_text_and_key_alone() -> None:
    assert holds(TEXT, signed(), modulus())
    assert not holds(TEXT + b"!", signed(), modulus())
    assert not holds(TEXT, signed(), stranger().public_key().public_numbers().n)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2047))
def test_no_bit_of_a_signature_may_change(bit: int) -> None:
    proof = bytearray(signed())
    proof[bit // 8] ^= 1 << bit % 8
    assert not holds(TEXT, bytes(proof), modulus())


@pytest.mark.parametrize(
    "proof",
    [
        b"",
        bytes(256),
        b"\xff" * 256,
        signed()[:-1],
        signed() + b"\0",
        signer().sign(TEXT, PKCS1v15(), SHA1()),
        (int.from_bytes(signed(), "big") + signer().public_key().public_numbers().n).to_bytes(
            257, "big"
        ),
        (1).to_bytes(256, "big"),
    ],
    ids=["none", "zeros", "ones", "short", "long", "other hash", "plus modulus", "one"],
)
def test_what_is_no_signature_does_not_hold(proof: bytes) -> None:
    assert not holds(TEXT, proof, modulus())


def test_a_forged_padding_does_not_hold() -> None:
    """With exponent 3 and a lenient parser this would do: digest on the left, garbage after it."""
    wrong = b"\0\x01\xff\0" + signature.DIGEST_INFO + sha256(TEXT).digest()
    value = int.from_bytes(wrong.ljust(256, b"\x01"), "big")
    assert not holds(TEXT, value.to_bytes(256, "big"), modulus())


@pytest.mark.parametrize(
    "key",
    [0, 1, 65537, (1 << 1023) | 1, 1 << 4000],
    ids=["0", "1", "exponent", "1024", "4001"],
)
def test_a_key_of_another_size_is_no_key(key: int) -> None:
    assert not holds(TEXT, signed(), key)


def test_only_keys_of_2048_bits_are_read_from_a_trust_file() -> None:
    small = generate_private_key(65537, 1024).public_key()
    text = "\n# a comment\n" + trust_line(small) + trust_line(signer().public_key())
    assert signature.moduli(text.encode(), 10) == [modulus()]
    assert len(trusted(text)) == 1
    with pytest.raises(ImageError, match="no public key"):
        trusted("nothing")


def test_micropython_checks_as_we_do() -> None:
    program = f"""
from firmware_bridge.firmware.signature import check
from firmware_bridge.firmware.slots import outcome
n = int({hex(modulus())!r}, 16)
good = bytes.fromhex({signed().hex()!r})
bad = bytes([good[0] ^ 1]) + good[1:]
print([outcome(check({TEXT!r}, one, n)) for one in (good, bad, good[:-1])])
"""
    done = micropython.run(program)
    assert done.stdout.strip() == "[True, False, False]", done.stderr


def test_the_firmwares_own_image_is_whole_and_signed() -> None:
    image = build(firmware_files(), signer(), minimum=(1, 0, 0))
    assert read(image.data) == image
    assert (image.version, image.schema) == (schema.VERSION, schema.SCHEMA)
    assert (image.board, image.minimum) == (schema.BOARD, (1, 0, 0))
    assert is_signed_by(image, trusted(trust()))
    assert not is_signed_by(image, (stranger().public_key(),))
    assert image.head_size < MAX_HEAD


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_damaged_image_is_no_image_or_bears_no_signature(data: st.DataObject) -> None:
    image = small_image()
    at = data.draw(st.integers(0, len(image.data) - 1))
    spoilt = bytearray(image.data)
    spoilt[at] ^= data.draw(st.integers(1, 255))
    try:
        found = read(bytes(spoilt))
    except ImageError:
        return
    assert at < image.head_size
    assert not is_signed_by(found, trusted(trust()))


@given(st.binary(max_size=600))
def test_garbage_is_no_image(garbage: bytes) -> None:
    with pytest.raises(ImageError):
        read(garbage)
    with pytest.raises(ValueError, match=r"head|image|manifest|JSON"):
        manifest_of(garbage)


@pytest.mark.parametrize(
    "name",
    [
        "../escape.py",
        "firmware_bridge/../../main.py",
        "firmware_bridge//wire.py",
        "/firmware_bridge/wire.py",
        "firmware_bridge/wire.mpy",
        "firmware_bridge/" + "a" * 60 + ".py",
        "main.py",
        "firmware_bridge/Wire.py",
    ],
)
def test_a_file_that_would_leave_its_slot_makes_no_image(name: str) -> None:
    with pytest.raises(ImageError, match="name of a file"):
        build(small_files("1.2.0") | {name: b"x"}, signer())


def head_saying(text: str | bytes) -> bytes:
    """With a manifest that nobody would write."""
    raw = text.encode() if isinstance(text, str) else text
    image = small_image()
    return struct.pack(HEAD, MAGIC, len(raw), len(image.data) - image.head_size, bytes(256)) + raw


def heads_of_nonsense() -> list[bytes]:
    sound = manifest_of(small_image().data[: small_image().head_size])
    worthless = [
        {"version": ["1", "2", "3"]},
        {"version": "123"},
        {"version": {"0": 1, "1": 2, "2": 3}},
        {"version": [1.5, 0, 0]},
        {"version": [1e308 * 10, 0, 0]},
        {"version": [True, 0, 0]},
        {"minimum": [None, 0, 0]},
        {"schema": True},
        {"schema": 1 << 40},
        {"board": ""},
        {"board": "\x1b[2K"},
        {"board": 7},
    ]
    heads = [head_saying(json.dumps(sound | changed)) for changed in worthless]
    return [*heads, head_saying("[" * 5000), head_saying('{"a":' * 1100), head_saying(b"\xff")]


def test_a_manifest_of_nonsense_makes_no_image() -> None:
    for head in heads_of_nonsense():
        with pytest.raises(ImageError):
            read(head + small_image().data[small_image().head_size :])


def test_nor_does_it_on_the_board() -> None:
    """Where anything else than ValueError would end the firmware."""
    program = f"""
from firmware_bridge.firmware.slots import manifest_of
for head in {[head.hex() for head in heads_of_nonsense()]!r}:
    try:
        manifest_of(bytes.fromhex(head))
        print("taken", head[540:640])
    except ValueError:
        pass
print("done")
"""
    done = micropython.run(program)
    assert done.stdout.split() == ["done"], done.stdout + done.stderr


def test_too_much_is_no_image() -> None:
    many = {f"firmware_bridge/f{number}.py": b"" for number in range(MAX_FILES)}
    with pytest.raises(ImageError):
        build(small_files("1.2.0") | many, signer())
    with pytest.raises(ImageError):
        build(small_files("1.2.0") | {"firmware_bridge/big.py": bytes(300_000)}, signer())


@pytest.mark.parametrize("text", ["1.2", "1.2.3.4", "a.b.c", "1.2.256", "-1.0.0", "", "1.2.٣"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ImageError, match="no version"):
        parse_version(text)


def test_files_without_a_version_make_no_image() -> None:
    with pytest.raises(ImageError, match="VERSION"):
        version_of({"firmware_bridge/firmware/schema.py": b"x = 1"})


def test_a_new_boards_flash_holds_loader_slot_and_keys(tmp_path: Path) -> None:
    lay_out(tmp_path, firmware_files(), trust())
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"main.py", "slots.py", "trusted_key", "a/head", "a/firmware_bridge/wire.py"} <= found
    assert not [name for name in found if name.startswith("b/")]
    head = Flash(str(tmp_path)).read("a/head")
    assert manifest_of(head)["version"] == list(schema.VERSION)
    assert len(head) > HEAD_SIZE


def test_update_messages_keep_the_layout_that_every_version_knows() -> None:
    """Frozen for ever: a host of any version must be able to renew a board of any other."""
    from firmware_bridge import messages as m

    layouts = (m.UPDATE_TELL, m.UPDATE_BEGIN_ASK, m.UPDATE_DATA_ASK, m.UPDATE_DATA_TELL)
    assert layouts == ("<BBBBB3s3sIII", "<HI", "<I", "<I")
    assert m.UPDATE_CONFIRM_ASK == "<3s"
    kinds = (m.UPDATE_STATE, m.UPDATE_BEGIN, m.UPDATE_DATA, m.UPDATE_BOOT, m.UPDATE_CONFIRM)
    assert kinds == (0x30, 0x31, 0x32, 0x33, 0x34)
    assert not {row[0] for row in m.LAYOUTS} & set(kinds), "else no board of another schema"
    longest = encode(1, m.UPDATE_DATA, 1, 0, bytes(4 + m.UPDATE_PIECE))
    assert len(Decoder().feed(longest)) == 1
