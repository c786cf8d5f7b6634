"""Strikes secrets out of text. Pure.

It errs on the side of striking out: a word too few helps less, a key too many opens a box. Counts,
sizes and times whose names end in `token` stay, because they are what a bundle is read for.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

MARK = "[redacted]"
LEAST = 8
"""Characters of a known secret; a shorter one would strike out ordinary words."""

_NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|credential|"
    r"(?:api|access|private|secret|signing|admin|encryption)[_ .-]?key)\w{0,16}"
)
_IS = r"""["']?\s{0,8}[:=]\s{0,8}"""
_VALUE = (
    r"""(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|"""
    r"""\[[^\]]{0,2000}\]?|\{[^}]{0,2000}\}?|[^\s,;'"}\]]+)"""
)
_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
_END = _BEGIN.replace("BEGIN", "END")

Match = re.Match[str]


def _nothing(_: Match) -> str:
    return MARK


def _before(found: Match) -> str:
    """What names the secret stays, and the quotes around it, so that JSON stays JSON."""
    name, value = found[1].rstrip(), found[0][len(found[1]) :]
    quote = value[0] if value[0] in "\"'" else ""
    if name[-1] in ":=" and '"' in name:
        quote = '"'
    return f"{found[1]}{quote}{MARK}{quote}"


def _between(found: Match) -> str:
    return f"{found[1]}{MARK}{found[2]}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret, and what stands in its place."""

    name: str
    pattern: re.Pattern[str]
    instead: Callable[[Match], str] = _nothing


def _rule(name: str, pattern: str, instead: Callable[[Match], str] = _nothing) -> Rule:
    return Rule(name, re.compile(pattern), instead)


# Every repetition is bounded or starts at a word of its own, so that no text takes long.
RULES: tuple[Rule, ...] = (
    _rule("private key", rf"(?s){_BEGIN}.*?(?:{_END}|\Z)"),
    _rule("private key", rf"(?s)\A.*?{_END}"),  # one whose beginning was cut off
    _rule("signing key", r"(?i)(secret key[^\n]{0,200}\n)[A-Za-z0-9+/=]{40,}", _before),
    _rule("api key", r"sk-steelyard-[A-Za-z0-9_-]{2,}"),
    _rule("api key", r"\b(?:sk|hf|xox[a-z]|gh[pousr]|github_pat)[-_][A-Za-z0-9_-]{12,}"),
    _rule("api key", r"\bAKIA[0-9A-Z]{12,}"),
    _rule("api key", r"(?<![\w-])eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"),
    _rule(
        "header",
        r"""(?i)(\b(?:authorization|cookie|x-api-key)["']?\s{0,8}[:=]\s{0,8}["']?)[^\n"']+""",
        _before,
    ),
    _rule("bearer", r"(\b(?i:bearer)\s{1,8})[A-Za-z0-9._~+/=-]{8,}", _before),
    _rule("bearer", r"(\b(?i:basic)\s{1,8})(?=\S{0,99}[0-9A-Z=])[A-Za-z0-9+/=_-]{8,}", _before),
    _rule("address", r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s/'\"<>]+(@)", _between),
    _rule(
        "address",
        rf"(?i)([?&;][\w.-]{{0,40}}(?:{_NAMES}|token|key|sig|signature|auth)=)[^&\s'\"]+",
        _before,
    ),
    _rule("password", rf"(?i)(--(?:{_NAMES}|token)[= ])[^\s'\"]+", _before),
    _rule("password", rf"(?i)({_NAMES}{_IS})(?!\[redacted\]){_VALUE}", _before),
    # Numbers are counts of tokens, and lists are tokens of another kind.
    _rule(
        "token",
        rf"(?i)(?<![a-z])(token{_IS})(?![-\d.]+\b|\[|\{{|null\b|true\b|false\b){_VALUE}",
        _before,
    ),
)


class Redactor:
    """Counts what it strikes out."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known`: secrets of this box, struck out wherever they stand, whole or a line of them."""
        lines = {line.strip() for secret in known for line in secret.splitlines()}
        words = sorted((line for line in lines if len(line) >= LEAST), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, words))) if words else None

    def text(self, text: str) -> tuple[str, Mapping[str, int]]:
        """Without secrets; and how many of each kind there were."""
        counts: Counter[str] = Counter()
        if self._known is not None:
            text, struck = self._known.subn(MARK, text)
            counts["known"] += struck
        for rule in RULES:
            text, struck = rule.pattern.subn(rule.instead, text)
            counts[rule.name] += struck
        return text, {name: count for name, count in counts.items() if count}


def secrets_in(pem: str) -> list[str]:
    """The lines of a private key that give it away."""
    return [line for line in pem.splitlines() if line and not line.startswith("-----")]
