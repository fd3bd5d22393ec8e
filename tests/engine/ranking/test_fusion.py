"""Ensembles of rankers: scores against NumPy, files, and the choice of members against an exhaustive one."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.ranking.evaluation import evaluate_ranking
from shunter.engine.ranking.fusion import choose_fusion
from shunter.engine.ranking.interactions import Interactions
from shunter.engine.ranking.storage import StoredRanker, load_ranker, save_ranker
from shunter.models.graph import graph_spec, solved_model
from shunter.models.graph.fusion import FusedRanker
from shunter.models.graph.ranker import Ranker, VectorRanker
from shunter.models.graph.spec import WAYS, By, FusionSpec
from shunter.models.spec import CategoricalFeature, Features
from tests.models.graph.graphs import random_graph

USERS, ITEMS = 60, 30


def noisy(truth: torch.Tensor, noise: float, seed: int) -> VectorRanker:
    """Ranks by the truth and some noise; its vectors are the scores themselves."""
    random = torch.Generator().manual_seed(seed)
    scores = truth + noise * torch.randn(truth.shape, generator=random)
    degrees = torch.ones(USERS, dtype=torch.int64), torch.ones(ITEMS, dtype=torch.int64)
    return VectorRanker(scores, torch.eye(ITEMS), *degrees)


@pytest.fixture
def truth() -> torch.Tensor:
    return torch.randn(USERS, ITEMS, generator=torch.Generator().manual_seed(9))


def parts(truth: torch.Tensor) -> tuple[Interactions, Interactions]:
    """Of each known user the three best items are to be found, and nothing was seen."""
    best = truth[1:, 1:].topk(3).indices + 1
    users = np.repeat(np.arange(1, USERS), 3)
    return Interactions.of(users, best.flatten().numpy()), Interactions.of(np.array([1]), np.array([29]))


@pytest.mark.parametrize("by", WAYS)
def test_members_are_added_up_on_one_scale_for_each_user(by: By, truth: torch.Tensor) -> None:
    members: list[Ranker] = [noisy(truth, 0.5, 1), noisy(100 * truth, 7.0, 2)]
    found = FusedRanker(members, by).all_scores(torch.tensor([4, 7]))[:, 1:].numpy()
    expected = np.zeros((2, ITEMS - 1))
    for member in members:
        scores = member.all_scores(torch.tensor([4, 7]))[:, 1:].numpy()
        for row in range(2):
            if by == "z-scores":
                expected[row] += (scores[row] - scores[row].mean()) / scores[row].std()
            else:
                for item in range(ITEMS - 1):
                    expected[row, item] += 1 / (60 + 1 + (scores[row] > scores[row, item]).sum())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    users, items = torch.tensor([4, 7, 7, 4]), torch.tensor([1, 29, 3, 0])
    ranker = FusedRanker(members, by)
    torch.testing.assert_close(ranker(users, items), ranker.all_scores(users)[torch.arange(4), items])


def test_an_ensemble_of_every_kind_comes_back_from_its_files(tmp_path: Path) -> None:
    graph = random_graph(users=20, items=9, edges=70)
    members = [
        next(solved_model(family).rankers(graph_spec(family), graph, seed=0, device=torch.device("cpu")))
        for family in ("ease", "itemknn", "ials")
    ]
    ranker = FusedRanker(members, "reciprocal ranks")
    features = Features(
        dense=(),
        categorical=tuple(
            CategoricalFeature(name=name, rows=rows) for name, rows in (("who", graph.users), ("what", graph.items))
        ),
    )
    spec = FusionSpec(members="ease+itemknn+ials", by="reciprocal ranks")
    save_ranker(StoredRanker(ranker=ranker, spec=spec, features=features, user="who", item="what"), tmp_path)
    stored = load_ranker(tmp_path)
    assert stored.spec == spec
    assert stored.spec.as_text() == "of ease and itemknn and ials by reciprocal ranks"
    users = torch.arange(graph.users)
    assert torch.equal(stored.ranker.all_scores(users), ranker.all_scores(users))


def test_members_are_chosen_that_no_other_two_rank_better_than(truth: torch.Tensor) -> None:
    rankers: dict[str, Ranker] = {f"noisy {seed}": noisy(truth, 0.8, seed) for seed in range(4)}
    chosen, seen = parts(truth)

    def quality(names: tuple[str, ...], by: By) -> float:
        return evaluate_ranking(FusedRanker([rankers[name] for name in names], by), chosen, seen, name="x").ndcg20

    found = choose_fusion(rankers, chosen, seen, most=2, select_by="ndcg@20")
    assert found is not None
    best_alone = max(rankers, key=lambda name: evaluate_ranking(rankers[name], chosen, seen, name="x").ndcg20)
    pairs: list[tuple[tuple[str, ...], By]] = [
        (names, by) for names in permutations(rankers, 2) if names[0] == best_alone for by in WAYS
    ]
    assert found.validation.ndcg20 == pytest.approx(max(quality(*pair) for pair in pairs))
    assert quality(found.members, found.by) == pytest.approx(found.validation.ndcg20)
    assert 0 < found.low < found.gain < found.high


def test_no_ensemble_is_made_where_the_best_alone_is_as_good(truth: torch.Tensor) -> None:
    chosen, seen = parts(truth)
    rankers: dict[str, Ranker] = {"right": noisy(truth, 0.0, 0), "noise": noisy(0 * truth, 1.0, 1)}
    assert choose_fusion(rankers, chosen, seen, most=3, select_by="ndcg@20") is None
