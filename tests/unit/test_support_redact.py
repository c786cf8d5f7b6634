"""No secret of any kind comes through, and what is not one stays."""

import json
import string

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts.keyrow import new_secret
from appliance.support.redact import MARK, Redactor, secrets_in
from appliance.tls.certificates import make_ca
from tests.unit.certificates import NOW

SECRET = "Xy7-hunter2_Zz"


def clean(text: str, *known: str) -> str:
    return Redactor(known).text(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "sk-steelyard-{}",
        "id=sk-steelyard-{}, next",
        "sk-{}-and-more-of-it",
        "ghp_{}aaaaaaaa",
        "Authorization: Bearer {}",
        'curl -H "Authorization: Bearer {}" http://box',
        '{{"authorization": "Basic {}"}}',
        "authorization={}",
        "X-Api-Key: {}",
        "Cookie: session={}; theme=dark",
        "bearer {}",
        "Basic {}==",
        "https://user:{}@proxy.lan:3128/x",
        "postgres://{}@db/ledger",
        "amqp://u:a@{}@host",
        "GET /x?api_key={}&n=1",
        "GET /x?n=1&access_token={}",
        "https://host/x?sig={}",
        'password = "{}"',
        "password: {}",
        "PASSWORD={}",
        "db_password='{}'",
        '"clientSecret": "{}"',
        "passphrase = {}",
        "STEELYARD_ADMIN_KEY={}",
        "OPENAI_API_KEY={}",
        'private_key: "{}"',
        "tool --password {} --verbose",
        "tool --token={}",
        "auth_token: {}",
        '"hf_token": "{}"',
        'password = "{} and no end',
        'password = "with \\" a quote {}"',
        "# old: admin_key = {}",
    ],
)
def test_secret_is_struck_out(text: str) -> None:
    found, counts = Redactor().text(f"before\n{text.format(SECRET)}\nafter")
    assert SECRET not in found
    assert MARK in found
    assert sum(counts.values()) >= 1
    assert found.startswith("before\n")
    assert found.endswith("\nafter")


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens=12 completion_tokens=3",
        '"prompt_tokens": 12, "kv_per_token": 23040, "next_token": [{"n": 1}]',
        "steelyard:prompt_tokens_total 41.0",
        "token_days = 30",
        '# key = ""',
        'cert = "/etc/steelyard/tls.pem"',
        "tls.key: /etc/steelyard/tls-key.pem cannot be read",
        "http://127.0.0.1:8421/v1/chat/completions?stream=1",
        "basic configuration of the box",
        '"sha256": "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"',
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "keys.valid: 1 valid for admin",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert clean(text) == text


def pem() -> str:
    key = make_ca("elsewhere", NOW).key
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def test_private_key_is_struck_out_whole_or_in_part() -> None:
    whole = pem()
    lines = secrets_in(whole)
    assert lines
    for text in (
        f"a {whole} z",
        f"a {whole[: len(whole) // 2]}",
        f"{whole[40:]} z",
        json.dumps({"key": whole}),
        whole.replace("PRIVATE KEY", "EC PRIVATE KEY"),
        whole.replace("PRIVATE KEY", "OPENSSH PRIVATE KEY"),
    ):
        found = clean(text)
        assert not any(line in found for line in lines), text


def test_each_line_of_a_key_of_this_box_is_known_by_itself() -> None:
    lines = secrets_in(pem())
    found = clean(f"somebody pasted {lines[0]} here", *lines)
    assert found == f"somebody pasted {MARK} here"


def test_signing_key_of_minisign_is_struck_out() -> None:
    text = "untrusted comment: minisign encrypted secret key\n" + "RWRTY0IyEkNh" * 8
    assert "RWRTY0Iy" not in clean(text)


def test_json_stays_json() -> None:
    told = {
        "password": SECRET, "headers": {"authorization": f"Bearer {SECRET}"}, "n": 1,
        "secret": [SECRET, 2], "pwd": 1234567, "credentials": {"a": SECRET},
    }  # fmt: skip
    for indent in (None, 1):
        assert json.loads(clean(json.dumps(told, indent=indent))) == {
            "password": MARK, "headers": {"authorization": MARK}, "n": 1, "secret": MARK,
            "pwd": MARK, "credentials": MARK,
        }  # fmt: skip


def test_every_key_that_the_box_makes_is_struck_out() -> None:
    for _ in range(50):
        secret = new_secret()
        assert secret[len("sk-steelyard-") :] not in clean(f"x={secret};{secret}")


def test_striking_out_twice_changes_nothing_more() -> None:
    once = clean(f'password = "{SECRET}" sk-steelyard-{SECRET} https://u:{SECRET}@h/?key={SECRET}')
    assert clean(once) == once


AROUND = st.text(st.sampled_from(string.ascii_letters + string.digits + " \n\t:=\"'{}[],;/-_.@"))


@given(AROUND, AROUND)
def test_no_text_around_it_saves_a_key(before: str, after: str) -> None:
    secret = "sk-steelyard-" + "Q" * 43
    assert "Q" * 43 not in clean(before + secret + " " + after)


@given(AROUND, AROUND, st.text(st.sampled_from(string.ascii_letters + "+/="), min_size=8))
def test_no_text_around_it_saves_a_known_secret(before: str, after: str, secret: str) -> None:
    assert secret not in clean(before + secret + after, secret)


def test_hostile_text_takes_no_long() -> None:
    """Patterns whose work grows with the square of the text would never end here."""
    for piece in ("password", "a.", "token:", "-----BEGIN ", "?a", "eyJ-", "secret key ", '"\\'):
        clean(piece * (100_000 // len(piece)))
