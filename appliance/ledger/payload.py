"""What is stored beside an entry: its digests in the entry's body, and redaction of texts."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from appliance.ledger.rows import Payload, Row

REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class Redaction:
    """What never to store: every match of `pattern` becomes `replacement`, as it stands."""

    pattern: re.Pattern[str]
    replacement: str = REDACTED


def redactions(patterns: Iterable[str]) -> tuple[Redaction, ...]:
    """Rules from the config's regular expressions. ValueError names the one that is none."""
    rules = []
    for pattern in patterns:
        try:
            rules.append(Redaction(re.compile(pattern)))
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return tuple(rules)


def redact(text: str, rules: Iterable[Redaction]) -> str:
    """The text as it may be stored: the rules in order, each on what the last one left."""
    for rule in rules:
        text = rule.pattern.sub(lambda _: rule.replacement, text)  # noqa: B023 (used at once)
    return text


def columns(payload: Payload | None) -> tuple[bytes | str | None, ...] | None:
    """The values of a `payloads` row after `seq`; None where there is nothing to store."""
    if payload is None:
        return None
    found = (payload.tokens, payload.prompt, payload.answers, payload.report)
    return found if found != (None, None, None, None) else None


def with_digests(row: Row, payload: Payload | None) -> Row:
    """The row with the SHA-256 of each part that is stored beside it."""
    parts = columns(payload)
    if parts is None:
        return row
    names = ("tokens_sha256", "prompt_sha256", "answers_sha256", "report_sha256")
    digests = {
        name: _sha256(part) for name, part in zip(names, parts, strict=True) if part is not None
    }
    return replace(row, **digests)


def _sha256(part: bytes | str) -> str:
    return hashlib.sha256(part.encode() if isinstance(part, str) else part).hexdigest()
