"""How a forecaster is compared with simpler ways, and when it wins."""

import numpy as np
import pytest

from appliance.forecast import baselines as rivals
from appliance.forecast.baselines import GLOBAL, RIVALS, baselines
from appliance.forecast.evaluate import IN_USE, OURS, Bounds, Comparison, compare, verdict
from appliance.forecast.hazard import EDGES, Lengths, fitted
from appliance.forecast.progress import residual_medians, steps
from appliance.forecast.rows import Asked, Rows, rows_of

CAP = 512
Floats = np.ndarray


def make_rows(count: int, seed: int = 0, samples: int = 2) -> Rows:
    """The median length is exp of one feature; the others are noise. Cut at 512."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 8)).astype(np.float32)
    real = np.exp(4.8 + x[:, [0]] + 0.5 * rng.standard_normal((count, samples)))
    lengths = np.clip(np.rint(real), 1, CAP).astype(int)
    return rows_of(
        Asked(
            x=x,
            names=(
                "words",
                "log_tokens",
                *(f"component_{n}" for n in range(4)),
                "near_a",
                "near_b",
            ),
            embedding=rng.standard_normal((count, 16)).astype(np.float32),
            prompt_tokens=rng.integers(10, 300, count),
            families=np.arange(count) // 2,
            sources=tuple("chat" if n % 3 else "code" for n in range(count)),
            lengths=tuple(map(tuple, lengths.tolist())),
            censored=tuple(map(tuple, (real > CAP).tolist())),
        )
    )


def told(rows: Rows, spread: float = 0.5, slope: float = 1.0) -> Floats:
    """Hazards of a log-normal around what the feature says."""
    middle = 4.8 + slope * rows.x[:, [0]].astype(float)
    at = (np.log(np.maximum(EDGES, 0.5)) - middle) / spread
    alive = 1 / (1 + np.exp(1.7 * at))
    return np.clip(1 - alive[:, 1:] / alive[:, :-1], 1e-6, 1 - 1e-6)


@pytest.fixture(scope="module")
def good() -> Comparison:
    train, test = make_rows(200), make_rows(120, 1)
    return compare(train, test, told(test), cap=CAP)


def test_answers_are_rows_of_their_prompts() -> None:
    rows = make_rows(5, samples=3)
    assert len(rows) == 15
    assert rows.prompts.tolist() == [n for n in range(5) for _ in range(3)]
    assert {len(lengths) for lengths in rows.groups().values()} == {3}
    assert np.isnan(rows.quality).all()
    some = rows.at(rows.prompts == 3)
    assert np.array_equal(some.x, rows.x[9:12])
    assert rows.columns("near_").shape == (15, 2)


def test_every_baseline_of_the_protocol_is_there(good: Comparison) -> None:
    assert set(good.methods) == {
        OURS,
        "global median",
        "global hazard",
        "max_tokens",
        "linear, log prompt tokens",
        "median of the source",
        "words, GBDT",
        "kNN-16, embedding",
        "PCA-16, ridge",
        "PCA-16, MLP",
        "embedding, ridge",
        *RIVALS,
    }


def test_a_forecaster_that_knows_wins(good: Comparison) -> None:
    assert good.wins
    assert good.ours.mae < good.methods[GLOBAL].mae
    assert all(name in good.why for name in ("MAE", "CRPS"))
    low, high = good.methods[GLOBAL].behind
    assert 0 < low < high
    assert good.skill_interval is not None
    assert good.skill_interval[0] < (good.ours.skill or 0) < good.skill_interval[1]


def test_one_that_tells_the_same_of_all_does_not_win() -> None:
    train, test = make_rows(200), make_rows(120, 1)
    alone = np.tile(fitted(train.lengths, train.censored).hazards, (len(test), 1))
    found = compare(train, test, alone, cap=CAP)
    assert not found.wins
    assert "no better than one distribution for all" in found.why


def test_one_that_a_rival_beats_surely_does_not_win() -> None:
    train, test = make_rows(200), make_rows(120, 1)
    found = compare(train, test, told(test, slope=0.3), cap=CAP)
    assert not found.wins
    assert "same features is better" in found.why


def test_the_version_in_use_stays_where_the_new_one_is_no_better() -> None:
    train, test = make_rows(200), make_rows(120, 1)
    found = compare(train, test, told(test), cap=CAP, in_use=told(test))
    assert IN_USE in found.methods
    assert not found.wins
    assert "version in use is as good" in found.why
    assert compare(train, test, told(test), cap=CAP, in_use=told(test, 3.0)).wins


def test_a_verdict_needs_no_scikit_learn(monkeypatch: pytest.MonkeyPatch, good: Comparison) -> None:
    monkeypatch.setattr(rivals.importlib.util, "find_spec", lambda name: None)
    train, test = make_rows(60), make_rows(40, 1)
    found = baselines(train, test, CAP)
    assert rivals.without()
    assert not set(rivals.without()) & set(found)
    left = {n: m for n, m in good.methods.items() if n not in rivals.without()}
    assert verdict(left)[0]


def test_prompts_without_a_vector_leave_its_baselines_out() -> None:
    train, test = make_rows(60), make_rows(40, 1)
    none = [
        Rows(r.x[:, :2], r.embedding[:, :0], *[getattr(r, n) for n in _REST], r.names[:2])
        for r in (train, test)
    ]
    assert not any("embedding" in name or "PCA" in name for name in baselines(*none, CAP))


_REST = ("prompt_tokens", "families", "sources", "lengths", "censored", "prompts", "quality")


def test_ridge_chooses_its_penalty_by_leaving_one_out() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    train, test = make_rows(80), make_rows(40, 1)
    ours = baselines(train, test, CAP, only={"ridge, same features"})["ridge, same features"]
    model = linear.RidgeCV(alphas=rivals._ALPHAS).fit(train.x, train.lengths)
    assert ours.point == pytest.approx(np.clip(model.predict(test.x), 1, CAP), rel=1e-3)


def test_neighbours_are_prompts_and_tell_a_distribution() -> None:
    train, test = make_rows(200), make_rows(60, 1)
    found = baselines(train, test, CAP, only={RIVALS[0], GLOBAL})
    assert list(found) == [GLOBAL, RIVALS[0]]
    near = found[RIVALS[0]]
    assert near.crps is not None
    assert near.crps.mean() < np.abs(near.point - test.lengths).mean()


def test_bounds_are_judged_as_they_were_told(good: Comparison) -> None:
    train, test = make_rows(200), make_rows(120, 1)
    wide = Bounds(np.zeros(len(test)), np.full(len(test), CAP), np.full(len(test), CAP))
    found = compare(train, test, told(test), cap=CAP, bounds=wide)
    assert found.upper_90["coverage"] == 1.0 == found.central_90["coverage"]
    assert 0.8 < good.upper_90["coverage"] < 1.0
    assert good.upper_90["mean_bound"] < CAP


def test_every_answer_is_in_one_source_and_one_third(good: Comparison) -> None:
    for parts in (good.sources, good.thirds):
        assert sum(part.answers for part in parts) == good.answers
        mean = sum(part.mae * part.answers for part in parts) / good.answers
        assert mean == pytest.approx(good.ours.mae)


def test_a_comparison_is_json(good: Comparison) -> None:
    import msgspec

    assert msgspec.json.decode(msgspec.json.encode(good), type=Comparison).ours == good.ours


def test_what_is_left_is_told_by_the_prior_given_how_far_it_got() -> None:
    rows = make_rows(40)
    hazards, g = told(rows), np.full(len(rows), 64)
    found = residual_medians(hazards, g, CAP)
    each = [Lengths(row).residual(64).capped(CAP).quantile(0.5) for row in hazards]
    assert found.tolist() == each


def test_an_answer_beyond_its_forecast_is_expected_to_go_on() -> None:
    train, test = make_rows(100), make_rows(60, 1)
    found = {step.place: step for step in steps(told(test), train, test, CAP)}
    assert found["0 tokens"].countdown == found["0 tokens"].residual
    assert found["128 tokens"].residual < found["128 tokens"].countdown
    assert found["0 tokens"].residual < found["0 tokens"].alone
    assert found["0 tokens"].answers == len(test)


def test_the_end_is_foreseen_by_who_knows_it(good: Comparison) -> None:
    for end in good.ends:
        assert end.residual["brier"] < end.alone["brier"]
        assert end.residual["auroc"] > 0.6
