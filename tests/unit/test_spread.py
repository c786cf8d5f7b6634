"""How far values lie apart."""

import pytest

from appliance.spread import spread


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], (0, 0, 0)),
        ([7], (7, 7, 7)),
        ([9, 1], (9, 9, 9)),
        ([3, 1, 2], (2, 3, 3)),
        (range(100), (50, 99, 99)),
        (range(200, 0, -1), (101, 199, 200)),
        (range(2048), (1024, 2027, 2047)),
    ],
)
def test_median_99th_percentile_and_largest_are_of_the_values(
    values: list[float], found: tuple[float, float, float]
) -> None:
    assert spread(values) == found
