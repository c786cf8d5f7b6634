"""The filter after `/`: `key:crm state:wait wait>10 anything`. All its terms must hold."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Field = str | float | None
_TERM = re.compile(r"^(\w+)(:|<|>)(.*)$")


@dataclass(frozen=True, slots=True)
class Term:
    """`name` is empty for a bare word, which any text may hold."""

    name: str
    sign: str
    value: str


def parse(text: str) -> tuple[Term, ...]:
    """Never fails: what is no comparison is a word."""
    return tuple(_term(word) for word in text.casefold().split())


def _term(word: str) -> Term:
    found = _TERM.match(word)
    if found is None or (found[2] != ":" and _number(found[3]) is None):
        return Term("", ":", word)
    return Term(found[1], found[2], found[3])


def matches(terms: Sequence[Term], fields: Mapping[str, Field]) -> bool:
    return all(_holds(term, fields) for term in terms)


def _holds(term: Term, fields: Mapping[str, Field]) -> bool:
    if not term.name:
        return any(term.value in str(field).casefold() for field in fields.values() if field)
    if term.name not in fields:
        return False
    field = fields[term.name]
    if term.sign == ":":
        return term.value in str("" if field is None else field).casefold()
    wanted = _number(term.value)
    if wanted is None or not isinstance(field, int | float):
        return False
    return field > wanted if term.sign == ">" else field < wanted


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
