"""The study of byte lengths, on a model in a few lines."""

import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from appliance.forecast.bytelengths import Grouping
from appliance.study import bytesize


class Chain:
    """A first-order model: the next token's row depends on the last token alone."""

    def __init__(self, rows: Sequence[Sequence[float]], sizes: Sequence[int], end: int) -> None:
        with np.errstate(divide="ignore"):
            self._rows = np.log(np.array(rows, dtype=np.float32))
        self.sizes = tuple(sizes)
        self.ends = frozenset({end})
        self.grouping = Grouping(sizes, {end})

    def begin(self, text: str) -> NDArray[np.float32]:
        return self._rows[zlib.crc32(text.encode()) % len(self._rows)]

    def go_on(self, token: int) -> NDArray[np.float32]:
        return self._rows[token]


SIZES = (1, 6, 2, 0)
INDEPENDENT = Chain([[0.5, 0.3, 0.19, 0.01]] * 4, SIZES, end=3)
STICKY = Chain([[0.9, 0.05, 0.05, 0], [0.05, 0.9, 0.05, 0], [0.05, 0.05, 0.9, 0], [1, 0, 0, 0]],
               SIZES, end=3)  # fmt: skip
TEXTS = {"one": tuple("abcdefghijkl"), "two": tuple("mnopqrstuvwx")}
SETTINGS = bytesize.Settings(tokens=64)


def studied(rows: bytesize.Rows, settings: bytesize.Settings = SETTINGS) -> bytesize.Report:
    written = bytesize.write(rows, TEXTS, settings, lambda: None)
    return bytesize.report("chain", "ab", settings, written)


def test_prediction_of_the_model_s_own_tokens_is_unbiased() -> None:
    for rows in (INDEPENDENT, STICKY):
        found = studied(rows)
        assert [line.group for line in found.lines] == ["one", "two", "all"]
        assert all(abs(line.z) < 3 for line in found.lines)
        assert found.predicted[1] == pytest.approx(found.seen[1], abs=0.05)


def test_wrong_byte_lengths_are_found_out() -> None:
    wrong = Chain([[0.5, 0.3, 0.19, 0.01]] * 4, SIZES, end=3)
    wrong.grouping = Grouping((2, 6, 2, 0), {3})
    assert abs(studied(wrong).lines[-1].z) > 3


def test_independent_tokens_are_covered_as_promised() -> None:
    for window in studied(INDEPENDENT).from_row:
        assert window.covered >= 0.8
        assert window.error == pytest.approx(window.deviation, rel=0.35)
        assert window.seen == pytest.approx(window.predicted, rel=0.15)


def test_tokens_that_hang_together_are_not_and_the_study_says_so() -> None:
    windows = {window.tokens: window for window in studied(STICKY).from_average}
    assert windows[1].error == pytest.approx(windows[1].deviation, rel=0.1)
    assert windows[16].error > 1.5 * windows[16].deviation
    assert windows[16].covered < 0.8


def test_text_ends_with_the_end_token_and_nothing_is_drawn_after_it() -> None:
    written = bytesize.write(INDEPENDENT, TEXTS, SETTINGS, lambda: None)
    ended = [text for text in written if text.ended]
    assert ended
    assert all(text.sizes[-1] == 0 for text in ended)
    assert all(0 not in text.sizes[:-1] for text in written)
    assert all(len(text.sizes) <= SETTINGS.tokens for text in written)
    assert all(len(text.sizes) == len(text.steps) for text in written)


def test_same_seed_writes_the_same_and_each_beginning_ticks_once() -> None:
    ticks: list[int] = []
    few = bytesize.Settings(tokens=8, beginnings=3, seed=5)
    first = bytesize.write(STICKY, TEXTS, few, lambda: ticks.append(1))
    second = bytesize.write(STICKY, TEXTS, few, lambda: None)
    assert [text.sizes for text in first] == [text.sizes for text in second]
    assert len(ticks) == 6


def test_windows_longer_than_the_texts_are_left_out() -> None:
    found = studied(STICKY, bytesize.Settings(tokens=5))
    assert [window.tokens for window in found.from_row] == [1, 2, 4]


def test_end_at_once_leaves_a_report_of_ends_alone() -> None:
    found = studied(Chain([[0, 0, 0, 1]] * 4, SIZES, end=3))
    (_, _, line) = found.lines
    assert (line.tokens, line.seen, line.z, line.ends_seen) == (24, 0, 0, 24)
    assert sum(found.predicted) == sum(found.seen) == 0
