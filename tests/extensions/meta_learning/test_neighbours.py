"""The distance between data sets."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.meta_learning.features import FARTHEST, SCALES, distance

FIGURES = st.dictionaries(
    st.sampled_from(sorted(SCALES)), st.floats(0, 1e9, allow_subnormal=False), min_size=1, max_size=len(SCALES)
)


@given(FIGURES, FIGURES)
def test_it_is_symmetric_bounded_and_zero_to_itself(first: dict[str, float], second: dict[str, float]) -> None:
    assert distance(first, first) == 0
    assert distance(first, second) == distance(second, first)
    far = distance(first, second)
    assert 0 <= far <= FARTHEST if first.keys() & second.keys() else far == math.inf


def test_units_by_hand() -> None:
    assert distance({"rows": 1_000.0}, {"rows": 10_000.0}) == 1
    assert distance({"landmark_bayes_auc": 0.5}, {"landmark_bayes_auc": 0.7}) == pytest.approx(2)
    assert distance({"rows": 1.0}, {"rows": 1e9}) == FARTHEST
    both = distance({"rows": 1_000.0, "zipf_exponent": 1.0}, {"rows": 10_000.0, "zipf_exponent": 1.0})
    assert both == pytest.approx(math.sqrt(1 / 2))


def test_what_one_data_set_lacks_counts_and_what_is_no_number_does_not_exist() -> None:
    assert distance({"rows": 10.0, "bag_length": 2.0}, {"rows": 10.0}) == pytest.approx(math.sqrt(1 / 2))
    assert distance({"rows": 10.0, "bag_length": math.nan}, {"rows": 10.0}) == 0
    assert distance({"rows": 1.0}, {"something else": 1.0}) == math.inf
