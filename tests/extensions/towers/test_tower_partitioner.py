"""The towers that are learned: balanced whatever the fields, and those that were planted where some were."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from shunter.errors import RequestError
from shunter.extensions.towers.tower_partitioner import (
    TowerPartition,
    _match,
    balanced_clusters,
    field_coordinates,
    interactions,
    load_limit,
    partition_fields,
)


def planted(groups: list[int], seed: int) -> torch.Tensor:
    """Interactions read from embeddings in which the fields of a group point about the same way in every sample."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(512, max(groups) + 1, 16, generator=generator)
    own = torch.randn(512, len(groups), 16, generator=generator)
    pooled = shared[:, groups] + 0.7 * own
    return interactions(pooled.split(100))


def labels_of(partition: TowerPartition) -> list[int]:
    tower = {field: number for number, fields in enumerate(partition.towers) for field in fields}
    return [tower[field] for field in sorted(tower)]


def random_interaction(fields: int, seed: int) -> torch.Tensor:
    values = torch.rand(fields, fields, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return ((values + values.T) / 2).fill_diagonal_(0.0)


def test_interactions_are_the_absolute_mean_cosines() -> None:
    pooled = torch.randn(300, 3, 4)
    pooled[:, 1] = -2 * pooled[:, 0]  # opposite, whatever the length
    pooled[:5, 2] = 0.0  # an empty bag meets nobody
    found = interactions(pooled.split(128))
    cosine = torch.nn.functional.cosine_similarity(pooled[:, 0], pooled[:, 2]).mean().abs()
    assert found[0, 1] == pytest.approx(1.0)
    assert found[0, 2] == pytest.approx(float(cosine), abs=1e-6)
    assert torch.equal(found, found.T)
    assert not found.diagonal().any()


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_groups_are_recovered_and_the_diverse_towers_mix_them(seed: int) -> None:
    groups = np.random.default_rng(seed).permutation([field % 4 for field in range(26)]).tolist()
    found = planted(groups, seed)
    coherent = partition_fields(found, 4, strategy="coherent", seed=seed)
    diverse = partition_fields(found, 4, strategy="diverse", seed=seed)
    assert adjusted_rand_score(groups, labels_of(coherent)) == 1.0
    assert sorted(map(len, coherent.towers)) == [6, 6, 7, 7]
    assert coherent.within > coherent.between
    assert diverse.within < 0.5 * coherent.within
    assert partition_fields(found, 4, strategy="coherent", seed=seed) == coherent


@settings(max_examples=12, deadline=None)
@given(fields=st.integers(1, 18), towers=st.integers(1, 18), seed=st.integers(0, 999), diverse=st.booleans())
def test_towers_are_of_equal_size_or_one_more(fields: int, towers: int, seed: int, diverse: bool) -> None:
    if towers > fields:
        with pytest.raises(RequestError, match=f"{fields} categorical fields cannot be divided into {towers}"):
            partition_fields(random_interaction(fields, seed), towers)
        return
    strategy = "diverse" if diverse else "coherent"
    found = partition_fields(random_interaction(fields, seed), towers, strategy=strategy, seed=seed)
    assert sorted(field for tower in found.towers for field in tower) == list(range(fields))
    assert {len(tower) for tower in found.towers} <= {fields // towers, -(-fields // towers)}
    assert len(found.towers) == towers


@settings(max_examples=15, deadline=None)
@given(
    loads=st.lists(st.floats(0, 100, allow_subnormal=False), min_size=1, max_size=14),
    towers=st.integers(1, 6),
    balance=st.floats(1.0, 2.0),
    seed=st.integers(0, 99),
)
def test_no_tower_carries_more_than_the_limit(loads: list[float], towers: int, balance: float, seed: int) -> None:
    towers = min(towers, len(loads))
    found = partition_fields(random_interaction(len(loads), seed), towers, loads=loads, load_balance=balance, seed=seed)
    assert sorted(field for tower in found.towers for field in tower) == list(range(len(loads)))
    assert all(found.towers)
    limit = load_limit(np.asarray(loads), towers, balance)
    assert max(found.loads) <= limit * (1 + 1e-12)
    # The limit itself: what was asked for, unless that is out of reach of longest-first.
    reached = longest_first(loads, towers)
    assert limit == pytest.approx(max(balance * sum(loads) / towers, reached))


def longest_first(loads: list[float], towers: int) -> float:
    """Load of the fullest tower, by the textbook."""
    carried = [0.0] * towers
    for load in sorted(loads, reverse=True):
        carried[carried.index(min(carried))] += load
    return max(carried)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 999), towers=st.integers(2, 3))
def test_the_clusters_are_the_best_of_all_balanced_ones(seed: int, towers: int) -> None:
    """Against every assignment of a tiny case: each matching is optimal, the k-means around it nearly."""
    points = np.random.default_rng(seed).normal(size=(6, 2))

    def inertia(labels: tuple[int, ...]) -> float:
        chosen = np.asarray(labels)
        return sum(((points[chosen == t] - points[chosen == t].mean(0)) ** 2).sum() for t in range(towers))

    def matched(cost: np.ndarray) -> np.ndarray:
        return np.asarray(min(balanced, key=lambda labels: cost[np.arange(6), list(labels)].sum()))

    balanced = [
        one for one in product(range(towers), repeat=6) if all(one.count(t) == 6 // towers for t in range(towers))
    ]
    cost = np.random.default_rng(seed + 1).random((6, towers))
    every = np.arange(6)
    assert cost[every, _match(cost)].sum() == pytest.approx(cost[every, matched(cost)].sum())
    found = tuple(balanced_clusters(points, towers, _match, seed=seed).tolist())
    assert found in balanced
    assert inertia(found) <= 1.25 * min(map(inertia, balanced))


def test_coordinates_lie_apart_as_wanted_where_they_can() -> None:
    points = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = torch.cdist(points, points)
    found = torch.from_numpy(field_coordinates(wanted, seed=3))
    torch.testing.assert_close(torch.cdist(found, found), wanted, atol=1e-3, rtol=0)


@pytest.mark.parametrize("seed", range(4))
def test_coordinates_lie_where_no_step_brings_them_nearer(seed: int) -> None:
    """Distances that no points have: the descent must have come to its end, not to the last of its steps."""
    wanted = 1 - random_interaction(12, seed).fill_diagonal_(1.0)
    points = torch.from_numpy(field_coordinates(wanted, seed=seed)).requires_grad_()
    left, right = torch.triu_indices(12, 12, offset=1)
    apart = (points[left] - points[right]).norm(dim=1)
    (apart - wanted[left, right]).square().sum().backward()
    assert points.grad is not None
    assert points.grad.abs().max() < 1e-6


def test_a_negative_load_is_refused() -> None:
    with pytest.raises(RequestError, match="load -1 of a field is negative"):
        partition_fields(random_interaction(3, 0), 2, loads=[1.0, -1.0, 2.0])
