"""Gives the prompts of the forecast bench a check, where their answers can be checked.

usage: python -m bench.forecast_checks prompts.jsonl > checked.jsonl

Reads `ref` (gsm8k, mgsm_zh, bbh), `instruction_ids` with `instruction_kwargs` (ifeval) and
`target_words`; writes the same lines with `check` (appliance/forecast/checks.py) added.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Check = dict[str, Any]
Values = Mapping[str, Any]

LABELS = (("yes", "no"), ("True", "False"), ("valid", "invalid"))
SCRIPTS = {
    "ar": "ARABIC",
    "bg": "CYRILLIC",
    "bn": "BENGALI",
    "fa": "ARABIC",
    "gu": "GUJARATI",
    "hi": "DEVANAGARI",
    "kn": "KANNADA",
    "ko": "HANGUL",
    "mr": "DEVANAGARI",
    "ne": "DEVANAGARI",
    "pa": "GURMUKHI",
    "ru": "CYRILLIC",
    "ta": "TAMIL",
    "te": "TELUGU",
    "th": "THAI",
    "ur": "ARABIC",
    "zh": "HAN",
}
"""Of languages that can be told by their letters; an answer in another is not checked."""
NEAR = 0.2
"""A number of words that was asked for is met within this share of it."""
FEW = 300
"""Words: more do not fit into the 512 tokens that the bench lets an answer have."""
ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def check_of(record: Values) -> Check | None:
    """None: it cannot be checked here."""
    source, ref = record.get("source", ""), record.get("ref")
    if source in ("gsm8k", "mgsm_zh") and ref is not None:
        return {"type": "number", "value": float(str(ref).replace(",", ""))}
    if source == "bbh" and ref is not None:
        return _reference(str(ref))
    if record.get("instruction_ids"):
        return _instructions(record["instruction_ids"], record["instruction_kwargs"])
    words = record.get("target_words", 0)
    if 0 < words <= FEW:
        return {"type": "words", "min": int(words * (1 - NEAR)), "max": int(words * (1 + NEAR))}
    return None


def _reference(ref: str) -> Check:
    if re.fullmatch(r"\([A-Z]\)", ref):
        return {"type": "choice", "value": ref[1]}
    if re.fullmatch(r"-?\d+", ref):
        return {"type": "number", "value": int(ref)}
    for labels in LABELS:
        for label in labels:
            if label.casefold() == ref.casefold():
                return {"type": "label", "value": label, "among": list(labels)}
    return {"type": "contains", "words": [ref]}


def _instructions(ids: list[str], values: list[Values]) -> Check | None:
    checks = []
    for name, value in zip(ids, values, strict=True):
        found = _INSTRUCTIONS[name](value) if name in _INSTRUCTIONS else None
        if found is None:
            return None
        checks.append(found)
    return checks[0] if len(checks) == 1 else {"type": "all", "checks": checks}


def _counted(kind: str, key: str, relation: str = "relation", **more: str) -> Callable[..., Check]:
    def made(v: Values) -> Check:
        count = int(v[key])
        bound = {"max": count - 1} if v.get(relation) == "less than" else {"min": count}
        return {"type": kind, **bound, **{name: v[other] for name, other in more.items()}}

    return made


def _exactly(kind: str, key: str, **more: Any) -> Callable[[Values], Check]:
    return lambda v: {"type": kind, "count": int(v[key]), **more}


def _given(kind: str, name: str, key: str) -> Callable[[Values], Check]:
    return lambda v: {"type": kind, name: v[key]}


def _fixed(**check: Any) -> Callable[[Values], Check]:
    return lambda _: dict(check)


def _nth(v: Values) -> Check:
    first = {"type": "paragraph_word", "nth": v["nth_paragraph"], "word": v["first_word"]}
    return {"type": "all", "checks": [{"type": "paragraphs", "count": v["num_paragraphs"]}, first]}


def _language(v: Values) -> Check | None:
    script = SCRIPTS.get(v["language"])
    return None if script is None else {"type": "script", "name": script}


_INSTRUCTIONS: dict[str, Callable[[Values], Check | None]] = {
    "change_case:capital_word_frequency": _counted(
        "capitals", "capital_frequency", "capital_relation"
    ),
    "change_case:english_capital": _fixed(type="case", **{"is": "upper"}),
    "change_case:english_lowercase": _fixed(type="case", **{"is": "lower"}),
    "combination:repeat_prompt": _given("starts", "text", "prompt_to_repeat"),
    "combination:two_responses": _fixed(type="responses", count=2),
    "detectable_content:number_placeholders": _counted("placeholders", "num_placeholders"),
    "detectable_content:postscript": lambda v: {
        "type": "contains",
        "words": [v["postscript_marker"]],
    },
    "detectable_format:constrained_response": _fixed(
        type="any", checks=[{"type": "contains", "words": [one]} for one in ANSWERS]
    ),
    "detectable_format:json_format": _fixed(type="json"),
    "detectable_format:multiple_sections": _counted(
        "sections", "num_sections", word="section_spliter"
    ),
    "detectable_format:number_bullet_lists": _exactly("bullets", "num_bullets"),
    "detectable_format:number_highlighted_sections": _counted("highlights", "num_highlights"),
    "detectable_format:title": _fixed(type="title"),
    "keywords:existence": _given("contains", "words", "keywords"),
    "keywords:forbidden_words": _given("forbidden", "words", "forbidden_words"),
    "keywords:frequency": _counted("frequency", "frequency", word="keyword"),
    "keywords:letter_frequency": _counted(
        "letters", "let_frequency", "let_relation", letter="letter"
    ),
    "language:response_language": _language,
    "length_constraints:nth_paragraph_first_word": _nth,
    "length_constraints:number_paragraphs": _exactly("paragraphs", "num_paragraphs", stars=True),
    "length_constraints:number_sentences": _counted("sentences", "num_sentences"),
    "length_constraints:number_words": _counted("words", "num_words"),
    "punctuation:no_comma": _fixed(type="forbidden", words=[","]),
    "startend:end_checker": _given("ends", "text", "end_phrase"),
    "startend:quotation": _fixed(type="quoted"),
}


def main(path: Path) -> None:
    checked = total = 0
    for line in path.read_text().splitlines():
        record = json.loads(line)
        check = check_of(record)
        total, checked = total + 1, checked + (check is not None)
        if check is not None:
            record["check"] = check
        print(json.dumps(record, ensure_ascii=False))
    print(f"{checked} of {total} prompts can be checked", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
