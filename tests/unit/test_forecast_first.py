"""What the model makes of a prompt: read from its first logits, without seeing the own family."""

import numpy as np
import pytest
from numpy.typing import NDArray

from appliance.engine.reports import FIRST_LOGITS
from appliance.forecast.first import LOGITS, MOST_READ, BadFirst, Reader, logits_of
from appliance.forecast.firstfit import fit, thresholds
from appliance.forecast.network import MOST_PARAMETERS, parameters_of
from appliance.forecast.projection import LIMIT
from tests.unit.bundle_parts import first_logits, make_first

CAP = 512
PROMPTS = 300
Said = list[list[tuple[int, bool]]]


def told(seed: int = 0, strength: float = 1.0) -> tuple[NDArray[np.float32], Said]:
    """Logits, of which twenty lie the higher the longer the two answers are."""
    dice = np.random.default_rng(seed)
    wish = dice.normal(size=PROMPTS)
    logits = dice.normal(-15, 3, size=(PROMPTS, LOGITS))
    logits[:, :20] += 3 * strength * wish[:, None]
    lengths = np.exp(4.5 + wish[:, None] + 0.3 * dice.normal(size=(PROMPTS, 2)))
    answers = [[(min(round(n), CAP), n >= CAP) for n in row] for row in lengths.tolist()]
    return logits.astype(np.float32), answers


def families() -> NDArray[np.int64]:
    return np.arange(PROMPTS, dtype=np.int64)


def longest(answers: Said) -> list[float]:
    return [float(np.mean([np.log(length) for length, _ in said])) for said in answers]


def test_engine_and_forecaster_agree_on_how_many_logits_there_are() -> None:
    assert LOGITS == FIRST_LOGITS
    assert parameters_of(85 + MOST_READ) + LOGITS * MOST_READ < MOST_PARAMETERS


def test_what_logits_tell_of_new_prompts_goes_with_the_length_of_their_answers() -> None:
    logits, answers = told()
    reader, _ = fit(logits, answers, families(), CAP)
    fresh, later = told(seed=1)
    read = reader.features_of(fresh)
    assert read.shape == (PROMPTS, reader.features)
    assert np.abs(read).max() <= LIMIT
    related = np.corrcoef(read.mean(axis=1), longest(later))[0, 1]
    assert related > 0.85


def test_a_training_prompt_is_read_as_a_new_one_would_be() -> None:
    logits, answers = told(strength=0.0)
    reader, read = fit(logits, answers, families(), CAP)
    seen = np.corrcoef(reader.features_of(logits).mean(axis=1), longest(answers))[0, 1]
    unseen = np.corrcoef(read.mean(axis=1), longest(answers))[0, 1]
    assert seen > 0.4, "the ridge has learned the noise of its own prompts"
    assert unseen < 0.2


def test_lengths_asked_about_are_below_the_limit_and_different() -> None:
    assert thresholds([7] * 50, CAP) == (7,)
    found = thresholds(list(range(1, 600)), CAP)
    assert len(found) == MOST_READ
    assert list(found) == sorted(set(found))
    assert found[-1] < CAP


def test_answers_cut_before_a_length_say_nothing_of_it() -> None:
    logits, answers = told()
    cut = [[(min(n, 60), n > 60) for n, _ in said] for said in answers]
    mixed = [whole if row % 2 else short for row, (whole, short) in
             enumerate(zip(answers, cut, strict=True))]  # fmt: skip
    reader, _ = fit(logits, mixed, families(), CAP)
    fresh, later = told(seed=1)
    related = np.corrcoef(reader.features_of(fresh).mean(axis=1), longest(later))[0, 1]
    assert related > 0.8


def test_logits_come_as_the_engine_sends_them() -> None:
    values = np.linspace(-30, 0, LOGITS).astype("<f4")
    np.testing.assert_array_equal(logits_of(values.tobytes()), values)
    for bad in (b"", values.tobytes()[:-1], values.tobytes() + bytes(4)):
        with pytest.raises(BadFirst, match="are no 128 logits"):
            logits_of(bad)
    values[5] = np.nan
    with pytest.raises(BadFirst, match="not a number"):
        logits_of(values.tobytes())


def test_a_reader_is_the_same_after_storing() -> None:
    reader = make_first(10).reader
    again = Reader.from_arrays(reader.arrays())
    row = logits_of(first_logits())
    np.testing.assert_array_equal(again.features_of(row), reader.features_of(row))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weights": None}, "lacks weights"),
        ({"weights": np.zeros((LOGITS, MOST_READ + 1), np.float32)}, "another shape"),
        ({"weights": np.zeros(LOGITS, np.float32)}, "another shape"),
        ({"read_mean": np.zeros(2, np.float32)}, "do not fit together"),
        ({"logits_mean": np.full(LOGITS, np.nan, np.float32)}, "not a number"),
        ({"weights": np.zeros((LOGITS, 3))}, "not a number"),
    ],
)
def test_a_damaged_reader_is_refused_by_what_is_wrong(
    change: dict[str, NDArray[np.float32] | None], says: str
) -> None:
    arrays = {**make_first(10).reader.arrays(), **change}
    with pytest.raises(BadFirst, match=says):
        Reader.from_arrays({name: a for name, a in arrays.items() if a is not None})


def test_parts_that_read_other_features_are_refused() -> None:
    make_first(10).check(10)
    with pytest.raises(BadFirst, match="not 11 and 3"):
        make_first(10).check(11)
