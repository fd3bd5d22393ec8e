"""Each solved model against its definition, computed in another way; and what it costs."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity

from benchmarks.large_rankings import generated
from shunter.errors import ModelTooLargeError, RequestError
from shunter.model_families import RANKING_MODELS
from shunter.models.graph import Graph, GraphSpec, ease, graph_spec, history_rankers, ials, itemknn, solved_model
from shunter.models.graph.counting import count_graph_model
from shunter.models.graph.ease import Ease, EaseSpec
from shunter.models.graph.fusion import RANKERS
from shunter.models.graph.history_rankers import SparseHistoryRanker
from shunter.models.graph.ials import Ials, IalsSpec, solve_side, strength
from shunter.models.graph.ranker import Ranker, VectorRanker
from shunter.models.graph.registry import check_graph_spec
from tests.models.graph.graphs import random_graph

CPU = torch.device("cpu")
every_family = pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=True))


def solved(spec: GraphSpec, graph: Graph) -> Ranker:
    return next(solved_model(spec.family).rankers(spec, graph, seed=0, device=CPU))


def chosen(graph: Graph) -> np.ndarray:
    """`[users, items]`, a one for each edge."""
    matrix = np.zeros((graph.users, graph.items))
    matrix[graph.edge_users, graph.edge_items] = 1
    return matrix


def known_scores(ranker: Ranker, graph: Graph) -> np.ndarray:
    """Of users and items with an edge or without one, the unknown item left out."""
    users = np.flatnonzero(graph.user_degrees())
    return ranker.all_scores(torch.from_numpy(users)).numpy()[:, 1:]


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("dropout", "user_exponent"), [(0.0, 0.0), (0.25, 0.0), (0.0, 0.5), (0.25, 1.0)])
def test_ease_is_the_ridge_regression_of_each_item_on_all_others(
    dropout: float, user_exponent: float, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        monkeypatch.setattr(ease, "MOST_ITEMS_IN_FLOAT64", 0)
        monkeypatch.setattr(history_rankers, "MOST_CELLS", 0)
    graph = random_graph(users=30, items=12, edges=120)
    matrix, expected = chosen(graph), np.zeros((12, 12))
    shares = np.maximum(matrix.sum(1), 1) ** -user_exponent
    weighted = matrix * (shares * matrix.sum() / (shares * matrix.sum(1)).sum())[:, None]
    for item in range(12):
        others = [one for one in range(12) if one != item]
        gram = weighted[:, others].T @ matrix[:, others]
        penalty = 3.0 + dropout / (1 - dropout) * gram.diagonal()
        expected[others, item] = np.linalg.solve(gram + np.diag(penalty), weighted[:, others].T @ matrix[:, item])
    spec = graph_spec("ease", regularization=3.0, dropout=dropout, user_exponent=user_exponent)
    found = known_scores(solved(spec, graph), graph)
    np.testing.assert_allclose(found, (matrix @ expected)[graph.user_degrees() > 0][:, 1:], atol=1e-5)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("neighbours", "shrinkage"), [(3, 0.0), (100, 0.0), (100, 5.0)])
def test_itemknn_adds_up_the_cosines_of_an_items_nearest_neighbours(
    neighbours: int, shrinkage: float, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_rankers, "MOST_CELLS", 0 if is_large else 1_000)
    monkeypatch.setattr(itemknn, "MEETINGS_AT_ONCE", 40 if is_large else 4_000_000)
    graph = random_graph(users=200, items=10, edges=800)
    matrix = chosen(graph)
    similar = cosine_similarity(matrix.T)
    if shrinkage:
        norms = np.linalg.norm(matrix, axis=0)
        similar = matrix.T @ matrix / (np.outer(norms, norms) + shrinkage)
    np.fill_diagonal(similar, 0.0)
    for item in range(10):
        weakest = np.argsort(-similar[:, item])[neighbours:]
        similar[weakest, item] = 0.0
    found = known_scores(solved(graph_spec("itemknn", neighbours=neighbours, shrinkage=shrinkage), graph), graph)
    np.testing.assert_allclose(found, (matrix @ similar)[graph.user_degrees() > 0][:, 1:], atol=1e-5)


def test_equally_similar_items_are_neighbours_by_their_id() -> None:
    pairs = [(user, item) for user in (1, 2) for item in (3, 1, 2, 4)]
    users, items = (np.array(ids) for ids in zip(*pairs, strict=True))
    graph = Graph(users=3, items=5, edge_users=users, edge_items=items)
    ranker = solved(graph_spec("itemknn", neighbours=1), graph)
    assert isinstance(ranker, SparseHistoryRanker)
    sources = torch.repeat_interleave(ranker.target_counts).tolist()
    assert sorted(zip(ranker.targets.tolist(), sources, strict=True)) == [(1, 2), (2, 1), (3, 1), (4, 1)]


@pytest.mark.parametrize("neighbours", [20, 100])
def test_memory_of_item_knn_is_what_its_solution_takes(neighbours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(itemknn, "MEETINGS_AT_ONCE", 200_000)
    pairs = generated(users=2_000, items=2_500, pairs=40_000)
    graph = Graph(
        users=2_001, items=2_501, edge_users=pairs["user"].to_numpy() + 1, edge_items=pairs["item"].to_numpy() + 1
    )
    spec = itemknn.ItemKnnSpec(neighbours=neighbours)
    told = itemknn.ItemKnn.counts(spec, graph).peak_bytes
    tracemalloc.start()
    list(itemknn.ItemKnn.rankers(spec, graph, seed=0, device=torch.device("cpu")))
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told == pytest.approx(taken, rel=0.2)


WEIGHTS = {"unobserved_weight": 0.3, "regularization": 0.01}


def ials_loss(
    users: torch.Tensor, items: torch.Tensor, graph: Graph, *, unobserved_weight: float, regularization: float
) -> torch.Tensor:
    """As the paper writes it, over all pairs of known nodes."""
    scores, likes = users @ items.T, torch.from_numpy(chosen(graph))
    count = torch.tensor([graph.users, graph.items])
    decays = [
        (squares.square().sum(1) * (likes.sum(axis) + unobserved_weight * count[axis])).sum()
        for squares, axis in ((users, 1), (items, 0))
    ]
    explicit = (likes * (scores - 1).square()).sum()
    return explicit + unobserved_weight * scores.square().sum() + regularization * (decays[0] + decays[1])


def test_a_side_of_ials_is_where_the_gradient_of_its_loss_is_zero() -> None:
    graph = random_graph(users=20, items=9, edges=60)
    items = torch.randn(9, 4, dtype=torch.float64)
    neighbours, degrees = torch.from_numpy(graph.edge_items), torch.from_numpy(graph.user_degrees())
    users = solve_side(items, neighbours, degrees, **WEIGHTS).double().requires_grad_()
    ials_loss(users, items, graph, **WEIGHTS).backward()
    assert users.grad is not None
    assert users.grad[degrees > 0].abs().max().item() < 1e-4
    assert not users[degrees == 0].any()


@pytest.mark.parametrize("gathered", [1, 30, 1_000])
def test_nodes_of_any_degree_are_solved_together_as_they_are_alone(
    gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ials, "GATHERED_AT_ONCE", gathered)
    monkeypatch.setattr(ials, "SOLVED_AT_ONCE", 7)
    degrees = torch.tensor([0, 1, 12, 0, *range(1, 13), 3, 0])
    neighbours = torch.cat([torch.randperm(12)[:count] for count in degrees.tolist()])
    items = torch.randn(12, 4, dtype=torch.float64)
    found = solve_side(items, neighbours, degrees, **WEIGHTS)
    for vector, own in zip(found, neighbours.split(degrees.tolist()), strict=True):
        decay = WEIGHTS["regularization"] * (len(own) + WEIGHTS["unobserved_weight"] * 12)
        matrix = items[own].T @ items[own] + WEIGHTS["unobserved_weight"] * items.T @ items + decay * torch.eye(4)
        torch.testing.assert_close(vector, torch.linalg.solve(matrix, items[own].sum(0)))


def test_each_pass_of_ials_lowers_its_loss() -> None:
    graph, spec = random_graph(users=40, items=15, edges=200), graph_spec("ials", embedding_dim=4)
    assert isinstance(spec, IalsSpec)
    rankers = solved_model("ials").rankers(spec, graph, seed=1, device=CPU)
    weight, losses = spec.unobserved_weight, []
    regularization = spec.relative_regularization * strength(graph, weight)
    for _ in range(4):
        ranker = next(rankers)
        assert isinstance(ranker, VectorRanker)
        vectors = ranker.user_vectors, ranker.item_vectors
        loss = ials_loss(*vectors, graph, unobserved_weight=weight, regularization=regularization)
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)


def normalised(graph: Graph, unobserved_weight: float) -> np.ndarray:
    """Every edge, divided by the roots of what its user's and its item's terms weigh together."""
    matrix = chosen(graph)
    users, items = (matrix.sum(axis) + unobserved_weight * matrix.shape[axis] for axis in (1, 0))
    return matrix / np.sqrt(np.outer(users, items))


def test_the_strength_of_a_graph_is_the_norm_of_its_normalised_matrix() -> None:
    graph = random_graph(users=30, items=12, edges=90)
    assert strength(graph, 0.3) == pytest.approx(np.linalg.norm(normalised(graph, 0.3)))


@pytest.mark.parametrize(("of_largest", "is_learned"), [(0.8, True), (1.2, False)])
def test_ials_learns_where_its_regularisation_is_below_the_largest_singular_value(
    of_largest: float, is_learned: bool
) -> None:
    graph, weight = random_graph(users=30, items=12, edges=90), 0.3
    largest = np.linalg.norm(normalised(graph, weight), 2)
    share = of_largest * float(largest) / strength(graph, weight)
    spec = IalsSpec(embedding_dim=4, relative_regularization=share, unobserved_weight=weight)
    *_, ranker = (ranker for ranker, _ in zip(Ials.rankers(spec, graph, seed=0, device=CPU), range(200), strict=False))
    assert isinstance(ranker, VectorRanker)
    assert (ranker.user_vectors.abs().max().item() > 1e-2) == is_learned


@every_family
def test_pairs_are_scored_as_in_the_whole_matrix(family: str) -> None:
    graph = random_graph(users=300, items=7, edges=700)
    ranker = solved(graph_spec(family, embedding_dim=4), graph)
    users, items = torch.cartesian_prod(torch.arange(300), torch.arange(7)).T
    torch.testing.assert_close(ranker(users, items), ranker.all_scores(torch.arange(300)).flatten())


@every_family
def test_users_without_an_edge_get_the_order_by_popularity(family: str) -> None:
    graph = random_graph()
    ranker = solved(graph_spec(family, embedding_dim=4), graph)
    expected = ranker.by_popularity().all_scores(torch.tensor([0, 1]))
    torch.testing.assert_close(ranker.all_scores(torch.tensor([0, 1])), expected)


@every_family
def test_what_it_holds_can_be_made_room_for(family: str) -> None:
    ranker = solved(graph_spec(family, embedding_dim=4), random_graph())
    room = RANKERS[ranker.kind].empty(9, 7, **ranker.shape())
    room.load_state_dict(ranker.state_dict())
    users = torch.arange(9)
    assert torch.equal(room.all_scores(users), ranker.all_scores(users))


def test_ease_is_refused_where_it_does_not_fit_and_something_cheaper_is_named() -> None:
    graph, spec = random_graph(), graph_spec("ease")
    needed = Ease.counts(EaseSpec(), graph).peak_bytes
    assert needed > 7 * 7 * (8 + 4)
    solved_model("ease").check_fits(spec, graph, needed)
    with pytest.raises(ModelTooLargeError) as refused:
        solved_model("ease").check_fits(spec, graph, needed - 1)
    error = refused.value
    assert (error.family, error.needed_bytes, error.available_bytes) == ("ease", needed, needed - 1)
    assert (error.sparse_form, error.low_rank_form) == ("itemknn", "ials")


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("ease", {"regularization": 0.0}),
        ("ease", {"dropout": 1.0}),
        ("ials", {"unobserved_weight": 0.0}),
        ("ials", {"relative_regularization": 0.0}),
        ("itemknn", {"neighbours": 0}),
    ],
)
def test_options_that_make_no_model_are_refused(family: str, options: dict) -> None:
    with pytest.raises(RequestError, match=next(iter(options))):
        check_graph_spec(graph_spec(family, **options))


@settings(max_examples=12, deadline=None)
@given(
    users=st.integers(4, 40),
    items=st.integers(4, 40),
    family=st.sampled_from(sorted(RANKING_MODELS.names_with(is_solved=True))),
)
def test_the_counts_of_all_edges_are_those_of_a_pass(users: int, items: int, family: str) -> None:
    graph, spec = random_graph(users=users, items=items, edges=200), graph_spec(family)
    whole, sample = solved_model(family).counts(spec, graph), count_graph_model(spec, graph)
    one_more = 2.0 * graph.items * graph.edges  # the length of the product is a whole number, one at least
    assert abs(sample.matmul_flops_per_sample * graph.edges - whole.flops) <= one_more
    assert sample.fp32.peak_bytes_per_step == whole.peak_bytes
