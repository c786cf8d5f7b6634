"""Screen 4: keys and tenants, what they may, use and cost, and what may be done to them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.accounts_screen_parts import (
    TENANT_LIST,
    costs,
    key,
    keys,
    made,
    press,
    tenants,
    typed,
)
from tests.unit.console_draws import views
from tests.unit.console_views import view
from tests.unit.golden import agree
from tests.unit.screen_checks import exact, printed
from tui.screen import Ask, Call, Show
from tui.screens.accounts import COST, KEYS, TENANTS, Accounts
from tui.view import View

# -- looks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_accounts_at_80x24_look_as_agreed(lang: str) -> None:
    empty = Accounts()
    empty.receive(KEYS, {"keys": []}, None)
    empty.receive(TENANTS, {"tenants": []}, None)
    many = made(*(key(f"k_{at}", f"app-{at:02}", tenant=f"t{at % 7}") for at in range(60)))
    agree(f"accounts-empty-{lang}", printed(empty, view(lang=lang)))
    agree(f"accounts-normal-{lang}", printed(made(), view(lang=lang)))
    agree(f"accounts-many-{lang}", printed(many, view(lang=lang)))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_tenants_and_forms_look_as_agreed(lang: str) -> None:
    screen = made()
    press(screen, "tab")
    agree(f"accounts-tenants-{lang}", printed(screen, view(lang=lang)))
    press(screen, "tab", "N", seen=view(lang=lang))
    agree(f"accounts-form-{lang}", printed(screen, view(lang=lang)))


def test_thirty_days_stand_beside_the_table_where_there_is_room() -> None:
    screen, seen = made(), view(width=140, height=45, ascii=True)
    query = next(one for one in screen.wants(seen) if one.path.startswith("/admin/usage"))
    assert query.path == "/admin/usage?by=key,day&from=2025-11-01"
    rows = [
        {"key": "k_7Q2M", "day": f"2025-11-{day:02}", "total_tokens": day * 100}
        for day in range(1, 31)
    ]
    screen.receive(query, {"rows": rows}, None)
    agree("accounts-wide-en", printed(screen, seen))


@given(
    views(least=60, most=160),
    st.lists(keys, max_size=12, unique_by=lambda one: one["id"]),
    st.lists(tenants, max_size=5),
    st.sampled_from([(), ("tab",), ("N",), ("tab", "N"), ("E",), ("tab", "E"), ("s", "down")]),
)
def test_every_line_has_the_width_asked_for(
    seen: View, told: list[dict[str, Any]], of: list[dict[str, Any]], pressed: tuple[str, ...]
) -> None:
    screen = Accounts()
    screen.receive(KEYS, {"keys": told}, None)
    screen.receive(TENANTS, {"tenants": of}, None)
    screen.receive(COST, costs(k_7Q2M=3), None)
    press(screen, *pressed, seen=seen)
    exact(screen, seen)


# -- what is shown ---------------------------------------------------------------------------------


def row_of(screen: Accounts, name: str, seen: View | None = None) -> str:
    rows = printed(screen, seen or view()).splitlines()
    return next(row for row in rows if row[1:].startswith(name))


def test_rates_are_from_the_frames_where_they_have_the_key() -> None:
    screen = made()
    assert "8500/20000" in row_of(screen, "crm-bot")
    assert "2600/4000" in row_of(screen, "nightly")
    assert "0/20000" in row_of(screen, "crm-bot", view("empty"))


def test_month_has_a_band_only_where_every_tenant_has_a_limit() -> None:
    screen = made()
    assert printed(screen, view()).startswith("4 keys, 2 tenants, month 15.15 USD (<40) (")
    screen.receive(TENANTS, {"tenants": [*TENANT_LIST, {"name": "free"}]}, None)
    assert printed(screen, view()).startswith("4 keys, 3 tenants, month 15.15 USD\n")


def test_revoked_keys_come_last() -> None:
    screen = made()
    assert [row.key.name for row in screen.keys.rows][-1] == "gone"
    assert "REVOKED" in row_of(screen, "gone")
    assert "EXPIRED" in row_of(screen, "old-app")


def test_cost_of_the_selected_key_is_split_by_stage() -> None:
    screen = made()
    text = printed(screen, view())
    assert "cost    prefill 0.080 + decode 0.19 + cached 0.010 + idle 0.020 = 0.30 USD" in text
    press(screen, "down")
    assert "nothing used this month" in printed(screen, view())


def test_what_cannot_be_read_is_said_and_the_rest_stays() -> None:
    screen = made()
    screen.receive(COST, None, "no ledger")
    assert "crm-bot" in printed(screen, view())
    empty = Accounts()
    empty.receive(KEYS, None, "the ledger is away \u202e")
    assert "keys not read: the ledger is away \\u202e" in printed(empty, view())
    empty.receive(KEYS, {"keys": [{"id": 1}]}, None)
    assert "otherwise than this console" in printed(empty, view())


def test_filter_finds_by_tenant_and_use() -> None:
    screen = made()
    screen.find("tenant:ops tokens>1000")
    assert [row.key.name for row in screen.keys.rows] == ["nightly"]
    press(screen, "escape")
    assert screen.found == ""


def test_old_values_are_dim() -> None:
    body = made().body(view("lost"))
    assert {span.role for line in body for span in line} == {"dim"}


# -- a new key -------------------------------------------------------------------------------------


def test_a_key_for_an_app_takes_a_name_and_enter() -> None:
    screen = made()
    assert press(screen, "N") is None
    assert screen.typing
    typed(screen, "wiki-app")
    ask = press(screen, "enter")
    assert isinstance(ask, Ask)
    assert ask.title == "Make key wiki-app?"
    assert ask.lines[0] == "tenant sales, scopes infer, good until 2026-02-28"
    assert ask.effect == Call(
        "POST",
        "/admin/keys",
        {"name": "wiki-app", "tenant": "sales", "scopes": ["infer"], "expires": "2026-02-28"},
        done="key wiki-app made",
    )


def test_the_secret_is_shown_once_and_kept_nowhere() -> None:
    screen = made()
    press(screen, "N")
    typed(screen, "wiki-app")
    ask = press(screen, "enter")
    secret = "sk-steelyard-" + "a" * 43
    shown = screen.answered(ask.effect, {"key": {"name": "wiki-app"}, "secret": secret})
    assert isinstance(shown, Show)
    assert shown.title == "Secret of wiki-app, shown once"
    assert secret in shown.lines
    assert not screen.typing
    assert secret not in printed(screen, view())
    assert secret not in repr(vars(screen))


def test_a_form_that_failed_stays_to_be_corrected() -> None:
    screen = made()
    press(screen, "N")
    typed(screen, "crm-bot")
    press(screen, "enter")
    assert screen.form is not None
    assert screen.form.texts["name"] == "crm-bot"
    press(screen, "escape")
    assert not screen.typing


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        (0, "", "a name is needed"),
        (0, "-x", "a name is needed"),
        (0, "k_x", "a name is needed"),
        (1, "称重", "a name is needed"),
        (2, "", "one or more of infer"),
        (2, "root", "one or more of infer"),
        (3, "soon", "days such as 90 d"),
        (3, "2020-01-01", "that day is over"),
    ],
)
def test_what_cannot_be_is_told_at_its_field(field: int, text: str, why: str) -> None:
    screen = made()
    press(screen, "N")
    typed(screen, "app")
    press(screen, *["tab"] * field, "ctrl+u")
    typed(screen, text)
    assert press(screen, "enter") is None
    assert screen.form is not None
    assert screen.form.at == field
    assert why in printed(screen, view())


@pytest.mark.parametrize(
    ("text", "until"),
    [("30", "2025-12-30"), ("7 d", "2025-12-07"), ("2027-12-31", "2027-12-31"), ("", None)],
)
def test_a_key_ends_after_days_on_a_day_or_never(text: str, until: str | None) -> None:
    screen = made()
    press(screen, "N")
    typed(screen, "app")
    press(screen, "tab", "tab", "tab", "ctrl+u")
    typed(screen, text)
    assert press(screen, "enter").effect.body.get("expires") == until


def test_digits_and_capitals_are_text_while_a_form_is_open() -> None:
    screen = made()
    press(screen, "N")
    typed(screen, "X2 app")
    assert screen.form is not None
    assert screen.form.texts["name"] == "X2 app"


def test_pasted_text_goes_into_the_field() -> None:
    screen = made()
    press(screen, "N")
    screen.paste("wiki\n", view())
    assert screen.form is not None
    assert screen.form.texts["name"] == "wiki"
