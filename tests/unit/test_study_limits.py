"""Whether a study of limits tells a box that keeps them from one that does not."""

from dataclasses import replace

import pytest

from appliance.forecast.dataset import Message, Prompt
from appliance.study import limits
from appliance.study.errors import StudyError
from appliance.study.store import Answer

PROMPTS = [Prompt(id="a", messages=(Message("user", "Count."),))]
PIECES = ["One", " two", ", th", "ree", ", fo", "ur", ".", ""]
"""Eight tokens; the last one ends the answer."""
IDS = tuple(range(len(PIECES)))
SETTINGS = limits.Settings(max_tokens=20)


def spell(ids: list[int]) -> str:
    return "".join(PIECES[token] for token in ids)


def natural(reason: str = "stop") -> Answer:
    return Answer(
        key="a natural", tokens=8, finish_reason=reason, text=spell(list(IDS)), token_ids=IDS
    )


def wanted(answer: Answer) -> list[limits.Check]:
    return limits.checks(PROMPTS, SETTINGS, {answer.key: answer}, spell)


def delivered(checks: list[limits.Check]) -> dict[str, Answer]:
    """What a box without fault gives."""
    found = {
        check.key: Answer(
            key=check.key,
            tokens=check.tokens,
            finish_reason=check.finish_reason,
            text=check.text if check.text is not None else spell(list(check.token_ids)),
            token_ids=check.token_ids,
        )
        for check in checks
    }
    return {natural().key: natural(), **found}


def judged(checks: list[limits.Check], answers: dict[str, Answer]) -> limits.Report:
    return limits.report("small", "ab", PROMPTS, SETTINGS, checks, answers)


def test_limits_around_the_natural_length_have_known_outcomes() -> None:
    found = [check for check in wanted(natural()) if not check.stop]
    assert [(c.kind, c.limit, c.tokens, c.finish_reason) for c in found] == [
        ("L-2", 6, 6, "length"),
        ("L-1", 7, 7, "length"),
        ("L", 8, 8, "stop"),
        ("L+1", 9, 8, "stop"),
        ("L+2", 10, 8, "stop"),
    ]
    assert found[0].token_ids == IDS[:6]


def test_answer_that_was_cut_off_tells_nothing_of_longer_limits() -> None:
    found = [check for check in wanted(natural("length")) if not check.stop]
    assert [(c.kind, c.tokens, c.finish_reason) for c in found] == [
        ("L-2", 6, "length"),
        ("L-1", 7, "length"),
        ("L", 8, "length"),
    ]


def test_stop_string_ends_with_the_token_that_completes_it() -> None:
    for check in wanted(natural()):
        if check.stop:
            assert check.stop in spell(list(check.token_ids))
            assert check.stop not in spell(list(check.token_ids[:-1]))
            assert check.text == spell(list(IDS)).partition(check.stop)[0]


def test_stop_strings_are_checked_at_all() -> None:
    stops = [check.stop for check in wanted(natural()) if check.stop]
    assert [len(stop) for stop in stops] == [1, 3]  # eight characters do not fit at the end
    jobs = list(limits.checking(PROMPTS, wanted(natural())))
    assert [job.body["stop"] for job in jobs if "stop" in job.body] == [[s] for s in stops]
    assert all(job.body["exclusive"] and job.body["temperature"] == 0 for job in jobs)


def test_box_that_keeps_its_limits_is_exact() -> None:
    checks = wanted(natural())
    found = judged(checks, delivered(checks))
    assert found.exact
    assert found.natural == (8,)
    assert found.biases("L") == {0: 1}


@pytest.mark.parametrize(
    "fault",
    [
        {"tokens": 7},
        {"finish_reason": "stop"},
        {"token_ids": (*IDS[:5], 99)},
    ],
    ids=["one more", "wrong reason", "other tokens"],
)
def test_any_fault_is_found(fault: dict[str, object]) -> None:
    checks = wanted(natural())
    answers = delivered(checks)
    good = answers["a L-2"]
    told = {
        name: getattr(good, name)
        for name in ("key", "tokens", "finish_reason", "token_ids", "text")
    }
    answers["a L-2"] = Answer(**{**told, **fault})
    found = judged(checks, answers)
    assert not found.exact
    (outcome,) = [outcome for outcome in found.outcomes if not outcome.exact]
    assert outcome.kind == "L-2"
    assert outcome.bias == (1 if "tokens" in fault else 0)


def test_text_beyond_a_stop_string_is_found() -> None:
    checks = wanted(natural())
    answers = delivered(checks)
    stop = next(check for check in checks if check.stop)
    spilt = answers[stop.key]
    answers[stop.key] = Answer(
        key=spilt.key,
        tokens=spilt.tokens,
        finish_reason="stop",
        text=spilt.text + stop.stop,
        token_ids=spilt.token_ids,
    )
    assert not judged(checks, answers).exact


def test_refused_prompt_is_left_out_and_none_at_all_says_why() -> None:
    two = [*PROMPTS, Prompt(id="b", messages=(Message("user", "?"),))]
    refused = Answer(key="b natural", problem="too long")
    answers = {"a natural": natural(), "b natural": refused}
    checks = limits.checks(two, SETTINGS, answers, spell)
    found = limits.report("small", "ab", two, SETTINGS, checks, delivered(checks))
    assert found.left_out == ("b",)
    with pytest.raises(StudyError, match=r"too long.*limits\.exclusive"):
        limits.checks(two[1:], SETTINGS, {"b natural": refused}, spell)


def test_settings_shorten_the_natural_answer() -> None:
    (job,) = limits.naturals(PROMPTS, replace(SETTINGS, max_tokens=5))
    assert job.body["max_tokens"] == 5
