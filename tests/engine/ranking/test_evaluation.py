"""Recall and NDCG against a slow oracle, ties and empty users included."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.ranking import evaluation
from shunter.engine.ranking.evaluation import evaluate_ranking, first_items, sparse_first_items
from shunter.engine.ranking.interactions import Interactions
from shunter.errors import DataError
from shunter.models.graph import Graph, history_rankers
from shunter.models.graph.history_rankers import SparseHistoryRanker
from shunter.models.graph.itemknn import ItemKnn, ItemKnnSpec
from shunter.models.graph.ranker import VectorRanker, popularity_ranker
from shunter.statistics import mean_interval

USERS, ITEMS = 6, 30
PAIRS = st.sets(st.tuples(st.integers(1, USERS - 1), st.integers(1, ITEMS - 1)), max_size=60)


def pairs_of(pairs: set[tuple[int, int]]) -> Interactions:
    users, items = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    return Interactions.of(users, items)


def ranker_of(scores: torch.Tensor) -> VectorRanker:
    """Scores any matrix: each item's vector is its column, each user's a unit vector."""
    ones = torch.ones(max(scores.shape), dtype=torch.int64)
    return VectorRanker(torch.eye(len(scores)), scores.T.contiguous(), ones[: len(scores)], ones[: scores.shape[1]])


def oracle(scores: torch.Tensor, chosen: set[tuple[int, int]], seen: set[tuple[int, int]]) -> tuple[float, float]:
    recalls, gains = [], []
    for user in range(1, USERS):
        wanted = {item for one, item in chosen - seen if one == user}
        if not wanted:
            continue
        left = [item for item in range(1, ITEMS) if (user, item) not in seen]
        ranked = sorted(left, key=lambda item: (-scores[user, item].item(), item))[:20]
        gain = sum(1 / math.log2(rank + 2) for rank, item in enumerate(ranked) if item in wanted)
        best = sum(1 / math.log2(rank + 2) for rank in range(min(20, len(wanted))))
        recalls.append(len(wanted & set(ranked)) / len(wanted))
        gains.append(gain / best)
    return float(np.mean(recalls)), float(np.mean(gains))


@settings(max_examples=30, deadline=None)
@given(
    chosen=PAIRS,
    seen=PAIRS,
    seed=st.integers(0, 100),
    levels=st.sampled_from([1, 3, 1_000_000]),
    repeats=st.sampled_from(["drop", "keep"]),
)
def test_figures_are_those_of_a_slow_oracle(chosen, seen, seed, levels, repeats) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (USERS, ITEMS), generator=generator).float()
    hidden = seen if repeats == "drop" else set()
    if not chosen - hidden:
        return
    found = evaluate_ranking(ranker_of(scores), pairs_of(chosen), pairs_of(seen), name="test", repeats=repeats)
    expected = oracle(scores, chosen, hidden)
    assert (found.recall20, found.ndcg20) == pytest.approx(expected)
    assert found.users == len({user for user, _ in chosen - hidden})
    assert (found.pairs, found.positives) == (len(chosen - hidden), len(chosen))
    assert found.repeats == len(chosen & seen)


def test_users_in_several_parts_are_judged_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.randn(USERS, ITEMS, generator=torch.Generator().manual_seed(0))
    chosen = pairs_of({(user, 3 * user) for user in range(1, USERS)})
    seen = pairs_of({(1, 5), (4, 7), (5, 1)})
    whole = evaluate_ranking(ranker_of(scores), chosen, seen, name="test")
    monkeypatch.setattr(evaluation, "USERS_AT_ONCE", 3)
    assert evaluate_ranking(ranker_of(scores), chosen, seen, name="test") == whole
    monkeypatch.setattr(evaluation, "SCORES_AT_ONCE", 2 * ITEMS)
    assert evaluate_ranking(ranker_of(scores), chosen, seen, name="test") == whole


def test_equal_scores_are_ranked_by_id() -> None:
    top = first_items(ranker_of(torch.zeros(USERS, ITEMS)), np.array([2]), pairs_of({(2, 1), (2, 4)}), 5)
    assert top.tolist() == [[2, 3, 5, 6, 7]]


@pytest.mark.parametrize("levels", [2, 40])
def test_equal_scores_beyond_the_first_width_are_found(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.randint(levels, (USERS, 100), generator=torch.Generator().manual_seed(0)).float()
    monkeypatch.setattr(evaluation, "FIRST_WIDTH", 8)
    top = first_items(ranker_of(scores), np.arange(USERS), pairs_of({(1, 2)}), 9)
    scores[:, 0] = scores[1, 2] = -torch.inf
    assert top.tolist() == (-scores).argsort(dim=1, stable=True)[:, :9].tolist()


def test_popularity_ranks_as_its_scores_do() -> None:
    degrees = torch.randint(1, 4, (ITEMS,), generator=torch.Generator().manual_seed(0))
    popularity = popularity_ranker(torch.ones(USERS, dtype=torch.int64), degrees)
    seen = pairs_of({(1, 2), (1, 5), *((2, item) for item in range(1, ITEMS - 2))})
    expected = first_items(ranker_of(degrees.float().repeat(USERS, 1)), np.array([1, 2, 4]), seen, 5)
    assert popularity.is_popularity
    assert first_items(popularity, np.array([1, 2, 4]), seen, 5).tolist() == expected.tolist()


@pytest.mark.parametrize("count", [5, 20])
def test_sparse_scores_give_the_lists_of_all_scores(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for users with few scored items, with ties, and without interactions."""
    monkeypatch.setattr(history_rankers, "MOST_CELLS", 0)
    random = np.random.default_rng(0)
    known = Interactions.of(random.integers(1, 60, 400), random.zipf(1.3, 400) % 150 + 1)
    graph = Graph(users=64, items=152, edge_users=known.users, edge_items=known.items)
    (ranker,) = ItemKnn.rankers(ItemKnnSpec(neighbours=10), graph, seed=0, device=torch.device("cpu"))
    assert isinstance(ranker, SparseHistoryRanker)
    assert ranker.adds_positive_weights
    seen = known.union(Interactions.of(random.integers(1, 60, 90), random.integers(1, 150, 90)))
    users = np.arange(1, 64)
    found, is_known = sparse_first_items(ranker, users, seen, count)
    expected = evaluation._first_items_in_blocks(ranker, users, seen, count)
    assert 0 < is_known.sum() < len(users)
    np.testing.assert_array_equal(found[is_known], expected[is_known])
    np.testing.assert_array_equal(first_items(ranker, users, seen, count), expected)


def test_what_cannot_be_filled_is_the_unknown_item() -> None:
    seen = pairs_of({(2, item) for item in range(1, ITEMS - 2)})
    assert first_items(ranker_of(torch.zeros(USERS, ITEMS)), np.array([2]), seen, 4).tolist() == [[28, 29, 0, 0]]


def test_positives_that_nobody_can_rank_are_counted() -> None:
    chosen = Interactions.of(np.array([0, 1, 1, 1, 2, 2]), np.array([3, 0, 2, 2, 4, 4]))
    found = evaluate_ranking(ranker_of(torch.zeros(USERS, ITEMS)), chosen, pairs_of({(2, 4)}), name="test")
    assert (found.users, found.left_out) == (1, 2)
    assert (found.positives, found.pairs, found.repeats) == (6, 1, 2), "rows are counted, not pairs"


def test_a_part_without_any_known_positive_is_refused() -> None:
    with pytest.raises(DataError, match="No row of the validation part is a positive of a user and an item known"):
        evaluate_ranking(ranker_of(torch.zeros(USERS, ITEMS)), pairs_of(set()), pairs_of(set()), name="validation")


@pytest.mark.parametrize("levels", [1, 4, 1_000_000])
def test_the_interval_of_a_mean_is_that_of_the_normal_distribution_where_there_are_many_users(levels: int) -> None:
    values = np.random.default_rng(0).integers(0, levels + 1, 4_000) / levels
    low, high = mean_interval(values)
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - error, values.mean() + error), abs=error / 5)
    assert mean_interval(np.array([0.25])) == (0.25, 0.25)
