"""Learned maps: every value has a row, frequent ones one each, values that behave alike one together."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.learned_hashing.learned_ids import LearnedIds, group, split_points
from shunter.ingestion.encoding.vocabulary import mix


@given(counts=st.lists(st.integers(0, 50), max_size=40), rows=st.integers(2, 30), seed=st.integers(0, 9))
def test_every_value_has_a_row_and_frequent_ones_have_one_each(counts: list[int], rows: int, seed: int) -> None:
    counts = sorted(counts, reverse=True)
    random = np.random.default_rng(seed)
    points = random.integers(0, 3, (len(counts), 2)).astype(float)  # many alike
    grouping = group(np.array(counts, np.int64), points, rows)
    keys = mix(np.arange(1, len(counts) + 1, dtype=np.uint64))
    ids = LearnedIds.of(keys, grouping)

    assert ids.rows <= rows + 1
    found = ids.ids(keys)
    assert found.tolist() == [row + 1 for row in grouping.rows]
    assert found[: ids.own].tolist() == list(range(1, ids.own + 1))
    assert (found[ids.own :] > ids.own).all()
    assert set(found[ids.own :].tolist()) == set(range(ids.own + 1, ids.own + ids.shared + 1))
    others = ids.ids(random.integers(1, 2**63, 200).astype(np.uint64))
    assert others.min() >= 1
    assert others.max() < ids.rows
    assert ids.ids(np.zeros(1, np.uint64)).tolist() == [0]
    again = LearnedIds.from_arrays(ids.arrays)
    assert again.is_same(ids)
    assert np.array_equal(again.ids(keys), found)


def test_unseen_values_mostly_have_rows_that_no_known_value_has() -> None:
    grouping = group(np.arange(400, 0, -1), np.arange(400.0)[:, None], 80)
    ids = LearnedIds.of(mix(np.arange(1, 401, dtype=np.uint64)), grouping)
    assert (ids.own, ids.shared, ids.hashed) == (35, 35, 10)
    unseen = ids.ids(mix(np.arange(1_000, 3_000, dtype=np.uint64)))
    assert (unseen > ids.own + ids.shared).mean() > 0.9
    assert len(np.unique(unseen[unseen > ids.own + ids.shared])) == ids.hashed


def test_values_seen_too_seldom_to_know_them_are_hashed_like_new_ones() -> None:
    counts, points = np.arange(400, 0, -1), np.arange(400.0)[:, None]
    keys = mix(np.arange(1, 401, dtype=np.uint64))
    ids = LearnedIds.of(keys, group(counts, points, 80, least=301))  # 100 values
    assert (ids.own, ids.shared, ids.hashed) == (35, 35, 10)
    found = ids.ids(keys)
    assert (found[:100] <= 70).all()
    assert (found[100:] > 70).mean() > 0.9
    for least, own in ((361, 70), (np.inf, 70)):  # too few to be grouped: the rows go to the most frequent
        assert group(counts, points, 80, least).own == own


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 5)), min_size=2, max_size=6))
def test_the_first_cut_of_numbers_is_the_best_of_all(points: list[tuple[int, int]]) -> None:
    values, weights = (np.array(column, float) for column in zip(*points, strict=True))

    def squares(members: np.ndarray) -> float:
        if not members.any():
            return 0.0
        mean = np.average(values[members], weights=weights[members])
        return float((weights[members] * (values[members] - mean) ** 2).sum())

    groups = split_points(values[:, None], weights, 2)
    everyone = range(len(points))
    best = min(
        squares(np.isin(everyone, chosen)) + squares(~np.isin(everyone, chosen))
        for size in range(1, len(points))
        for chosen in combinations(everyone, size)
    )
    assert squares(groups == 0) + squares(groups == 1) == pytest.approx(best, abs=1e-9)
    assert weights[groups == 0].sum() >= weights[groups == 1].sum()


@given(st.integers(1, 12), st.integers(0, 5))
def test_there_are_as_many_groups_as_asked_for(count: int, seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 2, (12, 3)).astype(float)
    groups = split_points(points, np.ones(12), count)
    assert sorted(set(groups.tolist())) == list(range(count))


def test_arrays_of_no_map_are_refused() -> None:
    ids = LearnedIds.of(np.array([5, 6], np.uint64), group(np.array([2, 1]), np.zeros((2, 1)), 8))
    with pytest.raises(ValueError, match="slots"):
        LearnedIds.from_arrays({**ids.arrays, "slots": ids.arrays["slots"][1:]})
    with pytest.raises(ValueError, match="sizes"):
        LearnedIds.from_arrays({**ids.arrays, "sizes": -ids.arrays["sizes"]})
