"""The definitions of hashes and signatures, against others' and against their wording."""

import hashlib
import zlib

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from appliance.ledger.verify import (
    GENESIS,
    pack_tokens,
    row_hash,
    signed_by,
    token_digest,
    unpack_tokens,
)
from appliance.ledger.verify.numbers import NumberSet

ids = st.lists(st.integers(0, 2**32 - 1), max_size=50)


# -- definitions -----------------------------------------------------------------------------------


def test_a_row_hash_is_over_exactly_what_the_contract_says() -> None:
    told = GENESIS + bytes([0, 0, 0, 0, 0, 0, 1, 2]) + b"\0\0\0\4note" + b'\0\0\0\6{"\xc3\xa9"}'
    assert row_hash(GENESIS, 258, "note", '{"é"}') == hashlib.sha256(told).digest()
    assert row_hash(GENESIS, 258, b"note", '{"é"}'.encode()) == hashlib.sha256(told).digest()


@given(ids, ids)
def test_a_token_digest_is_over_each_id_and_its_position(
    prompt: list[int], answer: list[int]
) -> None:
    plain = b"steelyard-token-v1\n"
    for position, token in enumerate(prompt + answer, 1):
        plain += token.to_bytes(4, "little") + position.to_bytes(4, "little")
    assert token_digest(prompt, answer) == hashlib.sha256(plain).hexdigest()


def test_a_token_digest_of_a_long_context_is_right_too() -> None:
    long = list(range(70_000))
    plain = b"".join(i.to_bytes(4, "little") + (i + 1).to_bytes(4, "little") for i in long)
    assert token_digest(long, []) == hashlib.sha256(b"steelyard-token-v1\n" + plain).hexdigest()


@given(st.lists(ids, max_size=5))
def test_packed_tokens_come_back(lists: list[list[int]]) -> None:
    assert [list(found) for found in unpack_tokens(pack_tokens(lists))] == lists


@given(st.binary(max_size=60))
def test_what_is_no_packed_tokens_raises_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"zlib|cut off|add up"):
        unpack_tokens(raw)


@pytest.mark.parametrize("words", [(1,), (1, 2, 7), (2, 1, 0, 5, 6), (0, 9), (2**32 - 1,)])
def test_lengths_that_do_not_add_up_raise_value_error(words: tuple[int, ...]) -> None:
    raw = b"".join(word.to_bytes(4, "little") for word in words)
    with pytest.raises(ValueError, match="add up"):
        unpack_tokens(zlib.compress(raw))


@given(st.sets(st.integers(0, 2**63)), st.integers(0, 2**20))
def test_a_number_set_knows_what_it_has(numbers: set[int], start: int) -> None:
    found = NumberSet()
    numbers |= {start, start + 1}
    assert all(found.add(number) for number in numbers)
    assert not any(found.add(number) for number in numbers)


# -- signatures ------------------------------------------------------------------------------------

# RFC 8032, section 7.1: public key, message, signature.
RFC_8032 = (
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701c"
        "f9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0"
        "f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f76098"
        "4dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        hashlib.sha512(b"abc").hexdigest(),
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c664"
        "31e0303dca179c138ac17ad9bef1177331a704",
    ),
)


@pytest.mark.parametrize(("key", "message", "signature"), RFC_8032)
def test_signatures_of_the_rfc_hold(key: str, message: str, signature: str) -> None:
    assert signed_by(bytes.fromhex(key), bytes.fromhex(message), bytes.fromhex(signature))


def test_no_bit_of_a_signature_or_its_key_may_differ() -> None:
    key, message, signature = (bytes.fromhex(part) for part in RFC_8032[2])
    for at in range(0, 512, 7):
        assert not signed_by(key, message, flipped(signature, at))
    for at in range(0, 256, 7):
        assert not signed_by(flipped(key, at), message, signature)
    for at in range(16):
        assert not signed_by(key, flipped(message, at), signature)


def flipped(raw: bytes, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200), st.integers(0, 511))
def test_signatures_agree_with_those_of_cryptography(seed: bytes, message: bytes, bit: int) -> None:
    secret = Ed25519PrivateKey.from_private_bytes(seed)
    key = secret.public_key().public_bytes_raw()
    signature = secret.sign(message)
    assert signed_by(key, message, signature)
    assert not signed_by(key, message, flipped(signature, bit))


@pytest.mark.parametrize("key", [b"", b"\xff" * 32, b"\1" + b"\0" * 31, b"\0" * 32, bytes(31)])
def test_keys_that_are_none_verify_nothing(key: bytes) -> None:
    signature = b"\1" + b"\0" * 31 + b"\1" + b"\0" * 31
    assert not signed_by(key, b"", signature)
    assert not signed_by(bytes.fromhex(RFC_8032[0][0]), b"", bytes(63))


def test_a_scalar_that_is_too_large_is_refused_as_cryptography_refuses_it() -> None:
    key, message, signature = (bytes.fromhex(part) for part in RFC_8032[1])
    order = 2**252 + 27742317777372353535851937790883648493
    large = int.from_bytes(signature[32:], "little") + order
    other = signature[:32] + large.to_bytes(32, "little")
    assert not signed_by(key, message, other)
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(key).verify(other, message)
