"""Variance components of log lengths."""

import numpy as np
import pytest

from appliance.study.variance import components, effects


def made(
    prompts: float, columns: float, crossed: float, samples: float, shape: tuple[int, int, int]
) -> np.ndarray:
    chance = np.random.default_rng(3)
    n, m, r = shape
    return (
        5.0
        + chance.normal(0, prompts, (n, 1, 1))
        + chance.normal(0, columns, (1, m, 1))
        + chance.normal(0, crossed, (n, m, 1))
        + chance.normal(0, samples, (n, m, r))
    )


def test_components_are_recovered_from_data_made_of_them() -> None:
    found = components(made(0.8, 0.4, 0.3, 0.5, (400, 200, 4)))
    assert found.prompts == pytest.approx(0.64, rel=0.15)
    assert found.perturbations == pytest.approx(0.16, rel=0.2)
    assert found.interaction == pytest.approx(0.09, rel=0.05)
    assert found.samples == pytest.approx(0.25, rel=0.02)
    assert sum(
        found.share(part)
        for part in (found.prompts, found.perturbations, found.interaction, found.samples)
    ) == pytest.approx(1.0)


def test_noise_alone_is_all_between_samples() -> None:
    found = components(made(0, 0, 0, 0.7, (60, 12, 4)))
    assert found.samples == pytest.approx(0.49, rel=0.1)
    assert found.share(found.samples) > 0.95


def test_prompts_alone_leave_nothing_to_the_rest() -> None:
    found = components(made(1, 0, 0, 0, (50, 3, 2)))
    assert found.share(found.prompts) == pytest.approx(1.0)


def test_lengths_that_never_vary_have_no_shares() -> None:
    found = components(np.full((3, 3, 2), 4.0))
    assert found.total == 0
    assert found.share(found.prompts) == 0


@pytest.mark.parametrize("shape", [(1, 3, 3), (3, 1, 3), (3, 3, 1), (3, 3)])
def test_too_few_to_part_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least two"):
        components(np.zeros(shape))


def test_effect_is_the_ratio_of_geometric_means_and_the_reference_has_none() -> None:
    logs = made(1, 0, 0, 0.1, (200, 3, 4))
    logs[:, 2] += np.log(1.5)
    plain, same, longer = effects(logs)
    assert (plain.ratio, plain.low, plain.high) == (1, 1, 1)
    assert same.low < 1 < same.high
    assert longer.low < 1.5 < longer.high
    assert longer.low > 1.4
