"""Quality by length, groups, coverage and novelty against loops over users, lists and items."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.ranking.breakdown import CUTOFFS, break_down, groups_of_items, quarters_of_users
from shunter.engine.ranking.evaluation import evaluate_ranking
from shunter.errors import DataError
from shunter.reporting.card.ranking_breakdown import RankingSides, groups_table, lengths_table, summarise_ranking
from tests.engine.ranking.test_evaluation import ITEMS, PAIRS, USERS, pairs_of, ranker_of


def lists_of(scores: torch.Tensor, chosen: set, seen: set) -> dict[int, tuple[list[int], set[int]]]:
    """What each user is shown, the best first, and what is to be found."""
    found = {}
    for user in range(1, USERS):
        wanted = {item for one, item in chosen - seen if one == user}
        if wanted:
            left = [item for item in range(1, ITEMS) if (user, item) not in seen]
            found[user] = sorted(left, key=lambda item: (-scores[user, item].item(), item)), wanted
    return found


def group_by_loop(counts: list[int]) -> list[str]:
    """Group of each item from 1 on, one by one from the most popular."""
    total, before, groups = sum(counts[1:]), 0, {}
    for item in sorted(range(1, len(counts)), key=lambda item: (-counts[item], item)):
        groups[item] = "head" if before < 0.2 * total else "middle" if before < 0.8 * total else "tail"
        before += counts[item]
    return [groups[item] for item in range(1, len(counts))]


@settings(max_examples=20, deadline=None)
@given(chosen=PAIRS, seen=PAIRS.filter(bool), seed=st.integers(0, 100), levels=st.sampled_from([1, 3, 1_000_000]))
def test_all_sides_are_those_of_loops(chosen, seen, seed, levels) -> None:
    scores = torch.randint(levels, (USERS, ITEMS), generator=torch.Generator().manual_seed(seed)).float()
    if not chosen - seen:
        return
    found = break_down(ranker_of(scores), pairs_of(chosen), pairs_of(seen), name="test")
    lists = lists_of(scores, chosen, seen)
    assert found.figures.users.tolist() == list(lists)
    assert found.history.tolist() == [sum(one == user for one, _ in seen) for user in lists]
    counts = [sum(one == item for _, one in seen) for item in range(ITEMS)]
    known_users = len({user for user, _ in seen})
    groups = group_by_loop(counts)
    names = ("head", "middle", "tail")
    assert [names[group] for group in found.group_of_item[1:]] == groups
    for row, (shown, wanted) in enumerate(lists.values()):
        for column, cutoff in enumerate(CUTOFFS):
            hits = [rank for rank, item in enumerate(shown[:cutoff]) if item in wanted]
            best = sum(1 / math.log2(rank + 2) for rank in range(min(cutoff, len(wanted))))
            assert found.recall[row, column] == pytest.approx(len(hits) / len(wanted))
            assert found.precision[row, column] == pytest.approx(len(hits) / cutoff)
            assert found.hit_rate[row, column] == bool(hits)
            assert found.ndcg[row, column] == pytest.approx(sum(1 / math.log2(rank + 2) for rank in hits) / best)
        told = [math.log2(known_users / max(1, counts[item])) for item in shown[:20]]
        assert found.novelty[row] == pytest.approx(sum(told) / len(told))
        for group, name in enumerate(names):
            of_group = {item for item in wanted if groups[item - 1] == name}
            assert found.group_chosen[row, group] == len(of_group)
            assert found.group_hits[row, group] == len(of_group & set(shown[:20]))
    shown = [item for first, _ in lists.values() for item in first[:20]]
    assert found.exposure.tolist() == [shown.count(item) for item in range(ITEMS)]
    assert found.coverage == pytest.approx(len(set(shown)) / (ITEMS - 1))
    assert found.figures.mean() == evaluate_ranking(ranker_of(scores), pairs_of(chosen), pairs_of(seen), name="test")


def test_groups_hold_a_fifth_three_fifths_and_a_fifth_of_the_interactions() -> None:
    assert groups_of_items(np.array([99, 2, 2, 2, 2, 2])).tolist()[1:] == [0, 1, 1, 1, 2]
    assert groups_of_items(np.array([0, 0, 100, 1])).tolist()[1:] == [2, 0, 2]  # one item holds nearly all


def test_users_of_equal_history_are_in_one_quarter() -> None:
    assert quarters_of_users(np.array([1, 2, 3, 4, 5, 6, 7, 8])).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert quarters_of_users(np.array([5, 5, 5, 9])).tolist() == [0, 0, 0, 3]


def test_figures_in_mlflow_have_the_same_names_for_the_result_and_its_baselines() -> None:
    scores = torch.randn(USERS, ITEMS, generator=torch.Generator().manual_seed(0))
    chosen = pairs_of({(user, item) for user in range(1, USERS) for item in (3 * user, 7, 29)})
    seen = pairs_of({(user, item) for user in range(1, USERS) for item in range(1, 2 + user)})
    broken = break_down(ranker_of(scores), chosen, seen, name="test")
    one, other = (summarise_ranking(name, broken) for name in ("ease", "popularity"))
    metrics = RankingSides(result=one, baselines=(other,)).metrics()
    suffixes = {name.removeprefix("quality.test.") for name in metrics if name.startswith("quality.test.")}
    assert suffixes == {name.removeprefix("baseline.popularity.test.") for name in metrics if "popularity" in name}
    assert {"ndcg1", "recall100", "hit_rate10", "coverage20", "novelty20_bits", "tail.exposure20"} <= suffixes
    assert metrics["quality.test.ndcg20"] == pytest.approx(broken.figures.ndcg20.mean())
    assert sum(metrics[f"quality.test.{name}.exposure20"] for name in ("head", "middle", "tail")) == pytest.approx(1)
    assert sum(quarter.users for quarter in one.user_groups) == len(broken.figures.users)
    assert sum(group.items for group in one.item_groups) == ITEMS - 1
    assert RankingSides.model_validate_json(RankingSides(result=one).model_dump_json()).result == one
    assert f"| 20 | {one.by_length[3].ndcg:.4f} (" in lengths_table(one)
    assert "| shortest | 2 | 2 | 3 |" in groups_table(one)


def test_a_part_without_any_known_positive_is_refused() -> None:
    with pytest.raises(DataError, match="No row of the test part is a positive"):
        break_down(ranker_of(torch.zeros(USERS, ITEMS)), pairs_of(set()), pairs_of(set()), name="test")
