"""Which prompts are of one family, so that no test is learned by heart."""

import numpy as np
import pytest

from appliance.forecast.families import PARTS, SHARES, families, split


def unit(*rows: list[float]) -> np.ndarray:
    found = np.array(rows, dtype=np.float32)
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)


def test_near_vectors_are_one_family_even_through_a_third() -> None:
    steps = [[np.cos(a), np.sin(a)] for a in (0.0, 0.4, 0.8, 2.0)]
    found = families(unit(*steps))
    assert found[0] == found[1] == found[2] != found[3]


def test_the_same_template_is_one_family_however_far_apart() -> None:
    found = families(unit([1, 0], [0, 1], [-1, 0]), ["greet", "", "greet"])
    assert found[0] == found[2] != found[1]


def test_prompts_without_a_vector_are_like_nothing() -> None:
    found = families(np.zeros((3, 4), dtype=np.float32))
    assert len(set(found.tolist())) == 3


def test_a_large_set_is_compared_block_by_block() -> None:
    rng = np.random.default_rng(0)
    base = rng.standard_normal((1500, 32))
    found = families(unit(*base.tolist(), *base.tolist()))
    assert np.array_equal(found[:1500], found[1500:])
    assert len(set(found.tolist())) > 1400


@pytest.mark.parametrize("seed", range(5))
def test_a_family_is_never_parted(seed: int) -> None:
    family = np.random.default_rng(seed).integers(0, 300, 1000)
    part = split(family, np.zeros(1000, dtype=bool), seed=seed)
    for name in np.unique(family):
        assert len(set(part[family == name])) == 1
    for name, share in zip(PARTS, SHARES, strict=True):
        assert (part == name).mean() == pytest.approx(share, abs=0.03)


def test_what_may_only_be_tested_on_takes_its_family_with_it() -> None:
    family = np.repeat(np.arange(50), 4)
    only = np.zeros(200, dtype=bool)
    only[[3, 77]] = True
    part = split(family, only)
    assert set(part[np.isin(family, family[only])]) == {"test"}


def test_the_seed_decides_the_split() -> None:
    family, only = np.arange(400), np.zeros(400, dtype=bool)
    assert np.array_equal(split(family, only, seed=1), split(family, only, seed=1))
    assert not np.array_equal(split(family, only, seed=1), split(family, only, seed=2))


def test_a_handful_of_prompts_is_split_all_the_same() -> None:
    assert len(split(np.arange(3), np.zeros(3, dtype=bool))) == 3
    assert split(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)).tolist() == []
