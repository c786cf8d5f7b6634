"""What a forecast came to, in the detail of a request that has ended."""

from typing import Any

import pytest

from tests.unit.console_views import view
from tui.lines import text_of
from tui.screens.requests_ended import whole
from tui.screens.requests_rows import Ended

TOLD = {"p10_tok": 3, "p50_tok": 9, "p90_tok": 20, "confidence": 0.25}


def detail(lang: str = "en", **forecast: Any) -> str:
    row = Ended(
        seq=7, hash="ab" * 32, id="chatcmpl-7", wall_ns=1, outcome="stop", completion_tokens=8,
        forecast=TOLD | forecast,
    )  # fmt: skip
    return "\n".join(map(text_of, whole(row, None, view(lang=lang))))


def test_verdict_after_the_end_stands_beside_what_was_told_before() -> None:
    text = detail(confidence_after=[0.3125], claim_after="quality")
    assert "quality 0.31 (told before: 0.25)" in text
    assert "质量 0.31 (事前预测：0.25)" in detail(
        "zh", confidence_after=[0.3125], claim_after="quality"
    )


def test_what_was_not_checked_on_tasks_is_called_confidence_and_each_choice_is_told() -> None:
    text = detail(confidence_after=[0.3, None, 0.9], claim_after="confidence", confidence=None)
    assert "confidence 0.30, ?, 0.90 (told before: ?)" in text


@pytest.mark.parametrize("found", [None, [], [None], ["x"], [7], [float("nan")], 0.5])
def test_what_cannot_be_told_has_no_line(found: Any) -> None:
    text = detail(confidence_after=found, claim_after="quality")
    assert "told before" not in text
    assert text == detail()


def test_forecast_is_told_as_it_was_refined_while_the_answer_grew() -> None:
    assert "refined p50 96 at 8, 131 at 64" in detail(at_end=[[8, 96], [64, 131]])
    assert "修正 p50 生成 8 后 96" in detail("zh", at_end=[[8, 96]])


@pytest.mark.parametrize("found", [None, [], "x", [[1]], [["a", "b"]], [None], [[1, 2, 3]]])
def test_what_was_never_refined_has_no_line(found: Any) -> None:
    assert "refined" not in detail(at_end=found)
