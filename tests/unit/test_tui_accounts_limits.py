"""Limits that are set, and keys that are rotated and revoked."""

from dataclasses import replace as changed

import pytest

from tests.unit.accounts_screen_parts import ALICE, CRM, GONE, key, made, press, typed
from tests.unit.console_views import view
from tests.unit.screen_checks import printed
from tui.screen import Ask, Call, Choose, Copy, Query, Tell
from tui.screens.accounts import COST, KEYS, TENANTS, Accounts

# -- limits ----------------------------------------------------------------------------------------


def test_limits_start_as_they_are_and_are_set_whole() -> None:
    screen = made()
    press(screen, "E")
    assert screen.form is not None
    assert screen.form.texts["requests_per_min"] == "60"
    press(screen, "tab", "ctrl+u")
    typed(screen, "5000")
    press(screen, "tab", "ctrl+u", "tab")
    typed(screen, "12.50")
    ask = press(screen, "enter")
    assert ask.lines[0] == "60 req/min, 5000 tok/min, 12.50 a month"
    assert ask.effect.path == "/admin/keys/k_7Q2M/limits"
    assert ask.effect.body == {
        "requests_per_min": 60,
        "tokens_per_min": 5000,
        "cost_per_month": "12.50",
    }


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        (0, "0", "a whole number from 1"),
        (0, "-4", "a whole number from 1"),
        (3, "free", "an amount such as"),
        (3, "0.00", "an amount such as"),
        (5, "gold", "priority, default, flex, or empty"),
    ],
)
def test_limits_that_cannot_be_are_told(field: int, text: str, why: str) -> None:
    screen = made()
    press(screen, "E", *["tab"] * field, "ctrl+u")
    typed(screen, text)
    assert press(screen, "enter") is None
    assert why in printed(screen, view())


def test_limits_of_a_tenant_go_to_the_tenants() -> None:
    screen = made()
    press(screen, "tab", "down", "E")
    ask = press(screen, "enter")
    assert ask.effect.path == "/admin/tenants"
    assert ask.effect.body == {"name": "sales", "limits": {"cost_per_month": "30.00"}}


def test_a_new_tenant_is_a_name_with_limits() -> None:
    screen = made()
    press(screen, "tab", "N")
    typed(screen, "lab")
    press(screen, "tab")
    typed(screen, "7")
    ask = press(screen, "enter")
    assert ask.effect.body == {"name": "lab", "limits": {"requests_per_min": 7}}


def test_throttling_keeps_the_other_limits() -> None:
    choose = press(made(), "T")
    assert isinstance(choose, Choose)
    ask = choose.then(choose.options[choose.chosen][0])
    assert isinstance(ask, Ask)
    assert isinstance(ask.effect, Call)
    assert ask.effect.body is not None
    assert ask.effect.body["tokens_per_min"] == 4250
    assert ask.effect.body["tokens_per_day"] == 100_000


# -- rotating and revoking -------------------------------------------------------------------------


def test_rotating_asks_and_says_that_the_old_secret_stops() -> None:
    ask = press(made(), "O")
    assert isinstance(ask, Ask)
    assert "The old secret stops at once" in ask.lines[0]
    assert ask.effect == Call(
        "POST", "/admin/keys/k_7Q2M/rotate", {}, done="crm-bot has a new secret"
    )


def test_revoking_asks_and_names_whom_it_hits() -> None:
    ask = press(made(), "X")
    assert ask.typed is None
    assert "tenant sales, scopes infer, 8500 tok/min now" in ask.lines
    assert (ask.effect.method, ask.effect.path) == ("DELETE", "/admin/keys/k_7Q2M")


def test_the_name_of_the_last_admin_key_must_be_typed() -> None:
    screen = made()
    press(screen, "down", "down", "down")
    ask = press(screen, "X")
    assert ask.typed == "alice"
    assert ask.effect.path == "/admin/keys/k_A1?force=1"
    assert any("last valid admin key" in line for line in ask.lines)
    with_other = made(CRM, ALICE, key("k_A2", "bob", scopes=["admin"]))
    press(with_other, "down")
    assert press(with_other, "X").typed is None


@pytest.mark.parametrize("pressed", ["O", "X", "T", "E"])
def test_nothing_can_be_done_to_a_revoked_key(pressed: str) -> None:
    screen = made(GONE)
    assert press(screen, pressed) == Tell("gone is REVOKED: make another with N.")


@pytest.mark.parametrize("pressed", ["O", "X", "T", "E", "c"])
def test_without_keys_there_is_nothing_to_act_on(pressed: str) -> None:
    assert press(Accounts(), pressed) == Tell("No key is selected.")


def test_copying_takes_the_id() -> None:
    assert press(made(), "c") == Copy("k_7Q2M")


def test_names_of_others_stay_text_in_dialogs() -> None:
    ask = press(made(key("k_9", "a\x1b]0;x\x07")), "O")
    assert ask.title == "New secret for a\\x1b]0;x\\x07?"


def test_nothing_but_reading_happens_by_looking() -> None:
    seen = changed(view(), width=140)
    assert all(isinstance(query, Query) for query in made().wants(seen))
    assert made().wants(view()) == (KEYS, TENANTS, COST)
