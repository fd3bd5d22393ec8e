"""What a user or an item gets for whom nothing was learned."""

import math

import pytest
import torch

from shunter.models.graph import build_graph_model, graph_spec
from shunter.models.graph.ranker import VectorRanker
from tests.models.graph.graphs import random_graph


@pytest.fixture
def ranker() -> VectorRanker:
    return VectorRanker.of(build_graph_model(graph_spec(embedding_dim=5), random_graph()))


def test_a_known_pair_is_scored_by_the_product_of_its_vectors(ranker: VectorRanker) -> None:
    expected = ranker.user_vectors[3] @ ranker.item_vectors[4]
    assert ranker(torch.tensor([3]), torch.tensor([4])).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("user", [0, 1])
def test_an_unknown_user_and_one_without_an_edge_rank_by_popularity(ranker: VectorRanker, user: int) -> None:
    graph = random_graph()
    degrees, users = graph.item_degrees(), (graph.user_degrees() > 0).sum()
    scores = ranker.all_scores(torch.tensor([user]))[0]
    for item in range(1, graph.items):
        expected = math.log((degrees[item] + 0.5) / (users - degrees[item] + 0.5))
        assert scores[item].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("user", [0, 1, 3])
def test_an_unknown_item_comes_last(ranker: VectorRanker, user: int) -> None:
    scores = ranker.all_scores(torch.tensor([user]))[0]
    assert scores[0] == scores[1:].min()


def test_an_item_that_nobody_chose_is_scored_by_its_own_vector(ranker: VectorRanker) -> None:
    expected = ranker.user_vectors[3] @ ranker.item_vectors[1]
    assert ranker.item_degrees[1] == 0
    assert ranker(torch.tensor([3]), torch.tensor([1])).item() == pytest.approx(expected.item())


def test_pairs_are_scored_as_in_the_whole_matrix(ranker: VectorRanker) -> None:
    users, items = torch.cartesian_prod(torch.arange(9), torch.arange(7)).T
    torch.testing.assert_close(ranker(users, items), ranker.all_scores(torch.arange(9)).flatten())


def test_the_order_by_popularity_is_the_same_for_all_and_that_of_the_counts() -> None:
    counts = torch.tensor([0, 3, 9, 1, 5])
    ranker = VectorRanker(torch.randn(12, 4), torch.randn(5, 4), torch.tensor([0] + [2] * 11), counts)
    scores = ranker.by_popularity().all_scores(torch.arange(3))
    assert torch.equal(scores.argsort(1, descending=True)[:, :3], torch.tensor([[2, 4, 1]]).expand(3, 3))
