"""What is struck out of texts: as the patterns say, and never at the daemon's expense."""

import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from appliance.config import LedgerConfig
from appliance.ledger.books import texts_of
from appliance.ledger.errors import LedgerError
from appliance.ledger.striking import Striker

MAIL = r"[\w.+-]+@[\w-]+\.[\w.-]+"
"""As everybody writes it: on a long word without an `@`, its time grows with the square."""
CATASTROPHE = r"(a+)+$"
ENDLESS = "a" * 200 + "!"
"""With that pattern the universe would end first."""


@pytest.fixture
def striker() -> Iterator[Callable[..., Striker]]:
    made: list[Striker] = []

    def make(*patterns: str, limit_s: float = 60.0) -> Striker:
        made.append(Striker(patterns, limit_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_every_match_is_struck_out_of_one_text_after_the_other(
    striker: Callable[..., Striker],
) -> None:
    strike = striker(MAIL, r"\d{16}")
    assert strike("ask ann@example.org, card 1234567812345678\n") == (
        "ask [redacted], card [redacted]\n"
    )
    large = "Ünïcode, 中文, \ud800 and no match at all. " * 50_000
    assert strike(large) == large
    assert strike("") == ""


def test_without_patterns_nothing_is_started(striker: Callable[..., Striker]) -> None:
    strike = striker()
    assert strike("a@b.c") == "a@b.c"
    assert strike._child is None


def test_a_text_that_takes_for_ever_is_struck_out_whole_and_the_next_one_is_not(
    striker: Callable[..., Striker], caplog: pytest.LogCaptureFixture
) -> None:
    strike = striker(CATASTROPHE, limit_s=60.0)
    assert strike("hello") == "hello"
    strike._limit_s = 0.2
    with caplog.at_level(logging.WARNING):
        assert strike(ENDLESS) == "[redacted]"
    strike._limit_s = 60.0
    assert strike("hello aaa") == "hello [redacted]"
    (record,) = [found for found in caplog.records if found.name == "appliance.ledger.striking"]
    assert "longer than 0.2 s" in record.getMessage()
    assert "aaaa" not in record.getMessage()


def test_a_process_that_was_killed_costs_one_text(striker: Callable[..., Striker]) -> None:
    strike = striker(MAIL)
    assert strike("a@b.c") == "[redacted]"
    assert strike._child is not None
    os.kill(strike._child.pid, signal.SIGKILL)
    strike._child.wait()
    assert strike("plain words") == "[redacted]"
    assert strike("plain words") == "plain words"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_ends_the_daemon_leaves_its_last_texts(
    striker: Callable[..., Striker], number: signal.Signals
) -> None:
    strike = striker(MAIL)
    assert strike("a@b.c") == "[redacted]"
    assert strike._child is not None
    os.kill(strike._child.pid, number)
    assert strike("plain words") == "plain words"


def test_it_ends_with_who_asks() -> None:
    strike = Striker([MAIL])
    strike("a@b.c")
    child = strike._child
    assert child is not None
    del strike
    gc.collect()
    assert child.returncode == -signal.SIGKILL


def test_as_configured() -> None:
    texts = texts_of(LedgerConfig(store_prompts=True, redact=(MAIL,)))
    assert texts.answers is None
    assert texts.prompts is not None
    assert texts.prompts("a@b.c!") == "[redacted]!"
    assert texts_of(LedgerConfig(redact=(MAIL,))).prompts is None
    with pytest.raises(LedgerError, match="regular expression"):
        texts_of(LedgerConfig(store_answers=True, redact=("(",)))
