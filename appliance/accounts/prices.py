"""The operator's cloud price list: what the same tokens would have cost elsewhere.

A TOML file of prices that the operator looked up; docs/cost.md has an example. Money in nano.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from appliance.accounts.cost import MICRO, NANO, rounded
from appliance.alike import alike
from appliance.errors import ForOperator

FILE_BYTES = 1024 * 1024
MOST_ENTRIES = 256
MOST_NAME = 64
HIGHEST = 1_000_000
"""Of the currency per million tokens: more is a misplaced decimal point."""

_PRICES = ("input_per_mtok", "cached_per_mtok", "output_per_mtok")
_KEYS = ("name", *_PRICES)
_TOP = ("currency", "price")


class PricesError(ForOperator):
    """The price list cannot be used. Says in which file and entry, and what to do."""


@dataclass(frozen=True, slots=True)
class CloudPrice:
    """One offer: nano per million tokens."""

    name: str
    input: int
    cached: int
    output: int

    def cost(self, *, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> int:
        """What these tokens would have cost there; `cached_tokens` of the prompt were reused."""
        computed = prompt_tokens - cached_tokens
        whole = (
            computed * self.input + cached_tokens * self.cached + completion_tokens * self.output
        )
        return rounded(whole, MICRO)


def read_prices(file: Path, currency: str) -> tuple[CloudPrice, ...]:
    """The list's entries in its order. Raises PricesError with everything that is wrong."""
    body = _parse(file)
    problems = [f"{file}: {text}" for text in _faults(body, currency)]
    if problems:
        raise PricesError("\n".join(problems))
    return tuple(_price(entry) for entry in body["price"])


def _parse(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            body = opened.read(FILE_BYTES + 1)
        if len(body) > FILE_BYTES:
            raise PricesError(f"{file}: larger than {FILE_BYTES} bytes, so it is no price list")
        return tomllib.loads(body.decode(), parse_float=Decimal)
    except OSError as error:
        why = error.strerror or error
        raise PricesError(f"{file}: cannot be read: {why}; see cost.price_list") from error
    except RecursionError:
        raise PricesError(f"{file}: nested too deeply") from None
    except ValueError as error:
        raise PricesError(f"{file}: not valid TOML: {error}") from error


def _faults(body: Mapping[str, Any], currency: str) -> Iterator[str]:
    """Everything that is wrong with the list."""
    yield from _unknown(body, _TOP, "the file")
    theirs = body.get("currency", currency)
    if theirs != currency:
        shown = repr(theirs[:40]) if isinstance(theirs, str) else "no text"
        yield (
            f"its currency is {shown}, and cost.currency is {currency!r}: convert the prices, "
            "then write that currency"
        )
    entries = body.get("price")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        yield "it has no entries: write each under its own [[price]] line"
        return
    if len(entries) > MOST_ENTRIES:
        yield f"{len(entries)} entries; at most {MOST_ENTRIES} are allowed"
        return
    seen: set[str] = set()
    for place, entry in enumerate(entries, 1):
        yield from _entry_faults(entry, place, seen)


def _entry_faults(entry: Mapping[str, Any], place: int, seen: set[str]) -> Iterator[str]:
    name = entry.get("name")
    where = f"entry {place}"
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MOST_NAME:
        yield f"{where}: name: a text of 1 to {MOST_NAME} printable characters is needed"
    else:
        where = f"entry {place} ({name})"
        if name in seen:
            yield f"{where}: name: an earlier entry has it already"
        seen.add(name)
    yield from _unknown(entry, _KEYS, where)
    for key in _PRICES:
        yield from _number_faults(entry, key, where)


def _number_faults(entry: Mapping[str, Any], key: str, where: str) -> Iterator[str]:
    if key not in entry:
        if key != "cached_per_mtok":
            yield f"{where}: {key}: it is missing"
        return
    number = entry[key]
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        yield f"{where}: {key}: it is no number: write 0.5, without quotes"
    elif (isinstance(number, Decimal) and not number.is_finite()) or not 0 <= number <= HIGHEST:
        yield f"{where}: {key}: out of bounds; it takes a number from 0 to {HIGHEST}"


def _unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> Iterator[str]:
    for key in table:
        if key not in known:
            close = alike(key, known)
            hint = f"did you mean `{close}`?" if close else f"known are {', '.join(known)}"
            yield f"{where}: no key {key[:40]!r}; {hint}"


def _price(entry: Mapping[str, Any]) -> CloudPrice:
    """Without a price of its own a reused token costs what any prompt token does."""
    cached = entry.get("cached_per_mtok", entry["input_per_mtok"])
    return CloudPrice(
        name=entry["name"],
        input=_nano(entry["input_per_mtok"]),
        cached=_nano(cached),
        output=_nano(entry["output_per_mtok"]),
    )


def _nano(amount: int | Decimal) -> int:
    return int((Decimal(amount) * NANO).to_integral_value())
