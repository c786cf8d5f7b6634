"""The cloud price list: what is read, what is refused and why, what tokens would have cost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts.cost import NANO
from appliance.accounts.prices import CloudPrice, PricesError, read_prices

CIRRUS = """
[[price]]
name = "Example Cirrus"
input_per_mtok = 0.50
cached_per_mtok = 0.05
output_per_mtok = 1.50
"""
NIMBUS = """
[[price]]
name = "Example Nimbus"
input_per_mtok = 4
output_per_mtok = 16
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    return file


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(PricesError) as caught:
        read_prices(written(tmp_path, text), "EUR")
    return str(caught.value)


def test_entries_are_read_in_order_and_exactly(tmp_path: Path) -> None:
    assert read_prices(written(tmp_path, CIRRUS + NIMBUS), "EUR") == (
        CloudPrice("Example Cirrus", NANO // 2, NANO // 20, NANO * 3 // 2),
        CloudPrice("Example Nimbus", 4 * NANO, 4 * NANO, 16 * NANO),
    )


def test_a_million_tokens_of_each_kind_cost_what_the_list_says() -> None:
    price = CloudPrice("x", 3 * NANO, NANO, 7 * NANO)
    cost = price.cost(prompt_tokens=2_000_000, cached_tokens=1_000_000, completion_tokens=1_000_000)
    assert cost == 11 * NANO
    assert price.cost(prompt_tokens=0, cached_tokens=0, completion_tokens=0) == 0


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_reused_tokens_make_no_difference_at_one_price(prompt: int, reused: int) -> None:
    price = CloudPrice("x", 123_456_789, 123_456_789, 1)
    reused = min(prompt, reused)
    assert price.cost(
        prompt_tokens=prompt, cached_tokens=reused, completion_tokens=0
    ) == price.cost(prompt_tokens=prompt, cached_tokens=0, completion_tokens=0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it has no entries: write each under its own [[price]] line"),
        ("price = 1", "it has no entries"),
        ("price = [1]", "it has no entries"),
        ("[price]\nname = 'a'", "it has no entries"),
        ("[[prices]]\nname = 'a'", "the file: no key 'prices'; did you mean `price`?"),
        ("currency = 'USD'" + CIRRUS, "its currency is 'USD', and cost.currency is 'EUR'"),
        (
            CIRRUS.replace("0.50", "'0.50'"),
            "(Example Cirrus): input_per_mtok: it is no number: write 0.5",
        ),
        (CIRRUS.replace("0.50", "true"), "input_per_mtok: it is no number"),
        (CIRRUS.replace("0.50", "-1"), "entry 1 (Example Cirrus): input_per_mtok: out of bounds"),
        (CIRRUS.replace("0.50", "nan"), "out of bounds; it takes a number from 0 to 1000000"),
        (CIRRUS.replace("0.50", "inf"), "out of bounds"),
        (CIRRUS.replace("0.50", "1e7"), "out of bounds"),
        (CIRRUS.replace("0.50", "1" + "0" * 400), "out of bounds"),
        (CIRRUS.replace("0.50", "0x" + "f" * 5000), "out of bounds"),
        (CIRRUS.replace("output", "ouput"), "'ouput_per_mtok'; did you mean `output_per_mtok`?"),
        (
            NIMBUS.replace("output_per_mtok = 16", ""),
            "entry 1 (Example Nimbus): output_per_mtok: it",
        ),
        (NIMBUS + CIRRUS + NIMBUS, "entry 3 (Example Nimbus): name: an earlier entry has it"),
        (NIMBUS.replace("Example Nimbus", ""), "entry 1: name: a text of 1 to 64"),
        (NIMBUS.replace("Example Nimbus", "a\\u001bb"), "entry 1: name: a text of 1 to 64"),
        (NIMBUS.replace("Example Nimbus", "x" * 65), "entry 1: name: a text of 1 to 64"),
        ("[[price]]\n" * 257, "257 entries; at most 256 are allowed"),
        (CIRRUS.replace("0.50", f"[0x{'f' * 5000}]"), "input_per_mtok: it is no number"),
        (f"currency = 0x{'f' * 5000}" + CIRRUS, "its currency is no text, and cost.currency"),
        ("[[price", "not valid TOML"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("#" + "x" * 1_100_000, "larger than 1048576 bytes"),
    ],
)
def test_wrong_list_is_refused_with_file_entry_and_key(
    tmp_path: Path, text: str, says: str
) -> None:
    said = refusal(tmp_path, text)
    assert says in said
    assert all(line.startswith(str(tmp_path / "prices.toml")) for line in said.splitlines())


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = CIRRUS.replace("0.50", "-1").replace("1.50", "-1") + "[[price]]\n"
    assert len(refusal(tmp_path, text).splitlines()) == 5


def test_missing_file_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(PricesError, match=r"cannot be read: No such file.*see cost\.price_list"):
        read_prices(tmp_path / "none.toml", "EUR")


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_bytes(b"currency = '\xff'")
    with pytest.raises(PricesError, match="not valid TOML"):
        read_prices(file, "EUR")
