"""The two catalogues say the same things."""

import re
import string

import pytest

from tui.cells import drawn
from tui.words import LANGS, Lang, Words, catalogue, language

_APART = ("alarm.",)
"""Told by the box in English, so only other languages have them."""


def keys(lang: Lang) -> set[str]:
    return {key for key in catalogue(lang) if not key.startswith(_APART)}


def test_both_languages_have_the_same_keys() -> None:
    assert keys("en") == keys("zh")


def test_both_languages_tell_the_same_things() -> None:
    for key in sorted(keys("en")):
        assert fields(catalogue("en")[key]) == fields(catalogue("zh")[key]), key


def fields(text: str) -> int:
    """How many things are told."""
    return len(
        {
            at if name == "" else name
            for at, (_, name, _, _) in enumerate(string.Formatter().parse(text))
            if name is not None
        }
    )


@pytest.mark.parametrize("lang", LANGS)
def test_every_word_can_be_drawn(lang: Lang) -> None:
    for key, text in catalogue(lang).items():
        bad = [sign for sign in text if not drawn(sign) and sign != "\n"]
        assert not bad, (key, bad)


def test_a_word_nobody_wrote_shows_its_key() -> None:
    assert Words()("no.such") == "no.such"
    assert Words()("frame.age") == "age {}"


@pytest.mark.parametrize(
    ("environ", "lang"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({}, "en"),
    ],
)
def test_the_locale_says_which_language(environ: dict[str, str], lang: str) -> None:
    assert language(environ) == lang


def test_one_of_a_thing_is_told_as_one() -> None:
    words = Words("en")
    told = {"month": "0.00", "currency": "USD", "band": ""}
    assert words("accounts.summary", keys=1, tenants=1, **told) == "1 key, 1 tenant, month 0.00 USD"
    assert words("accounts.summary", keys=2, tenants=0, **told).startswith("2 keys, 0 tenants,")
    assert words("overview.restarts", "1") == "1 restart in 5 min"
    assert words("overview.restarts", "?") == "? restarts in 5 min"
    assert words("audit.rows", rows=1, seals=1, head="9f", age="2 s").startswith("1 row, 1 seal,")
    assert words("engine.restarts") == words._texts["engine.restarts"]


THINGS = "answers channels evictions faults frames keys minutes ones prompts requests restarts \
rows samples seals seqs tenants times"


def test_no_text_tells_of_one_thing_as_of_many() -> None:
    words = Words("en")
    for key, text in catalogue("en").items():
        names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        told = words(key, *["1"] * 9, **dict.fromkeys(names, "1"))
        for thing in THINGS.split():
            assert not re.search(rf"\b1 (\w+ )?{thing}\b(?!/s)", told), (key, told)
