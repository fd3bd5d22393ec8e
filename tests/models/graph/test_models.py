"""Each graph model against its formula, written with dense matrices, by both backends; and nodes without an edge."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shunter.errors import DataError, RequestError
from shunter.model_families import RANKING_MODELS
from shunter.models.graph import Graph, build_graph_model, graph_spec
from shunter.models.graph.counting import count_graph_model
from shunter.models.graph.hetero import Hetero, RelationalLayer
from shunter.models.graph.model import GraphModel
from shunter.models.graph.sage import Sage
from tests.models.graph.graphs import random_graph

every_family = pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=False))


def adjacency(graph: Graph) -> Tensor:
    """`[users, items]`, a one for each edge."""
    matrix = torch.zeros(graph.users, graph.items)
    matrix[graph.edge_users, graph.edge_items] = 1
    return matrix


def mean_over(matrix: Tensor) -> Tensor:
    """Rows scaled to sum to one, or zero."""
    return matrix / matrix.sum(1, keepdim=True).clamp(min=1)


@pytest.mark.parametrize("backend", ["dgl", "torch"])
def test_lightgcn_is_the_mean_of_powers_of_the_normalised_adjacency(backend) -> None:
    if backend == "dgl":
        pytest.importorskip("dgl")
    graph = random_graph()
    model = build_graph_model(graph_spec(layers=3, embedding_dim=5), graph, backend=backend)
    edges = adjacency(graph)
    both = torch.cat([torch.cat([torch.zeros(9, 9), edges], 1), torch.cat([edges.T, torch.zeros(7, 7)], 1)])
    scale = both.sum(1).clamp(min=1).rsqrt()
    step = scale[:, None] * both * scale
    vectors = torch.cat([model.users, model.items])
    powers = [torch.linalg.matrix_power(step, power) @ vectors for power in range(4)]
    torch.testing.assert_close(torch.cat(model.all_vectors()), torch.stack(powers).mean(0))


@pytest.mark.parametrize("normalised", [False, True])
def test_sage_mixes_each_node_with_the_mean_of_its_neighbours(normalised: bool) -> None:
    graph = random_graph()
    spec = graph_spec(family="sage", layers=2, embedding_dim=5, normalised=normalised)
    model = build_graph_model(spec, graph)
    assert isinstance(model, Sage)
    edges = adjacency(graph)
    both = torch.cat([torch.cat([torch.zeros(9, 9), edges], 1), torch.cat([edges.T, torch.zeros(7, 7)], 1)])
    hidden = torch.cat([model.users, model.items])
    for depth, layer in enumerate(model.layers):
        hidden = layer(torch.cat([hidden, mean_over(both) @ hidden], 1))
        hidden = hidden.relu() if depth == 0 else hidden
    if normalised:
        hidden = 10**0.5 * hidden / hidden.norm(dim=1, keepdim=True)
    torch.testing.assert_close(torch.cat(model.all_vectors()), hidden)


def test_sage_that_draws_all_neighbours_is_sage_over_the_whole_graph() -> None:
    graph = random_graph(edges=30)
    model = build_graph_model(graph_spec(family="sage", layers=2, neighbours=50, embedding_dim=5), graph)
    users, items = torch.tensor([1, 5, 5, 2]), torch.tensor([3, 0])
    whole = model.all_vectors()
    some = model(users, items)
    torch.testing.assert_close(some[0], whole[0][users])
    torch.testing.assert_close(some[1], whole[1][items])


def test_sage_shows_no_step_the_edges_it_asks_for() -> None:
    graph = random_graph(edges=30)
    options = {"family": "sage", "layers": 2, "neighbours": 50, "embedding_dim": 5}
    model = build_graph_model(graph_spec(**options, hide_targets=True), graph)
    asked = np.array([0, 7, 20])
    left = np.setdiff1d(np.arange(graph.edges), asked)
    without = build_graph_model(
        graph_spec(**options), replace(graph, edge_users=graph.edge_users[left], edge_items=graph.edge_items[left])
    )
    users, chosen = torch.from_numpy(graph.edge_users[asked]), torch.from_numpy(graph.edge_items[asked])
    found, expected = model(users, chosen, chosen), without.all_vectors()
    torch.testing.assert_close(found[0], expected[0][users])
    torch.testing.assert_close(found[1], expected[1][chosen])
    shown = build_graph_model(graph_spec(**options), graph)
    torch.testing.assert_close(shown(users, chosen, chosen)[0], shown.all_vectors()[0][users])


def test_hetero_adds_a_mean_for_each_relation() -> None:
    graph = random_graph(attributes=True)
    model = build_graph_model(graph_spec(family="hetero", layers=1, embedding_dim=5), graph)
    assert isinstance(model, Hetero)
    layer = model.layers[0]
    assert isinstance(layer, RelationalLayer)
    edges = adjacency(graph)
    genres = torch.zeros(7, 4)
    genres[graph.attributes[0].nodes, graph.attributes[0].ids] = 1
    to_items, to_users, genre_to_item = layer.others[0], layer.others[1], layer.others[3]
    job = torch.zeros(9, 3)
    job[graph.attributes[1].nodes, graph.attributes[1].ids] = 1
    items = layer.own(model.items) + to_items(mean_over(edges.T) @ model.users)
    items = items + genre_to_item(mean_over(genres) @ model.values[0])
    users = layer.own(model.users) + to_users(mean_over(edges) @ model.items)
    users = users + layer.others[5](mean_over(job) @ model.values[1])
    found = model.all_vectors()
    torch.testing.assert_close(found[0], (model.users + users.relu()) / 2)
    torch.testing.assert_close(found[1], (model.items + items.relu()) / 2)


@every_family
def test_backends_agree_forward_and_in_every_gradient(family: str) -> None:
    pytest.importorskip("dgl")
    graph = random_graph(attributes=True)
    spec = graph_spec(family=family, layers=2, embedding_dim=6)
    gradients = []
    for backend in ("dgl", "torch"):
        model = build_graph_model(spec, graph, seed=4, backend=backend)
        users, items = model.all_vectors()
        (users.square().sum() + (items * torch.arange(6)).sum()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@every_family
def test_weights_follow_from_the_seed_alone(family: str) -> None:
    def weights(seed: int) -> list[Tensor]:
        model: GraphModel = build_graph_model(graph_spec(family=family), random_graph(), seed=seed)
        return list(model.parameters())

    assert all(map(torch.equal, weights(1), weights(1)))
    assert not all(map(torch.equal, weights(1), weights(2)))


def test_a_node_without_an_edge_keeps_its_own_embedding() -> None:
    model = build_graph_model(graph_spec(layers=3), random_graph())
    users, items = model.all_vectors()
    torch.testing.assert_close(users[1], model.users[1] / 4)
    torch.testing.assert_close(items[1], model.items[1] / 4)


@every_family
def test_own_squares_count_an_embedding_as_often_as_it_is_named(family: str) -> None:
    model = build_graph_model(graph_spec(family=family), random_graph())
    users, items = torch.tensor([3, 3, 4]), torch.tensor([2])
    expected = model.items[items].square().sum()
    if len(model.users):  # a model that knows users by what they chose has no embeddings of them
        expected = expected + model.users[users].square().sum()
    torch.testing.assert_close(model.own_squares(users, items), expected)


@every_family
def test_parameters_are_counted_as_they_are(family: str) -> None:
    graph = random_graph(attributes=True)
    spec = graph_spec(family=family, layers=2, embedding_dim=8)
    model = build_graph_model(spec, graph)
    counts = count_graph_model(spec, graph, negatives=2)
    assert counts.parameter_bytes == 4 * sum(parameter.numel() for parameter in model.parameters())


def test_more_edges_ask_for_more_traffic_a_step_and_not_a_sample() -> None:
    few, many = (count_graph_model(graph_spec(layers=3), random_graph(edges=edges)).fp32 for edges in (5, 30))
    assert many.traffic_bytes_per_step - few.traffic_bytes_per_step == 2 * 3 * 2 * 25 * 64 * 4
    assert many.traffic_bytes_per_sample == few.traffic_bytes_per_sample


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "lightgnc"}, "Unknown graph model 'lightgnc': use 'lightgcn'"),
        ({"layer": 2}, "no option 'layer': use 'layers'"),
        ({"layers": 0}, "option layers of a graph model is 0"),
        ({"family": "sage", "neighbours": 0}, "option neighbours of a graph model is 0"),
    ],
)
def test_models_that_cannot_be_built_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        build_graph_model(graph_spec(**options), random_graph())


def test_specs_written_before_each_model_had_its_own_options_are_read() -> None:
    written = {"family": "lightgcn", "embedding_dim": 16, "layers": 3, "neighbours": 4}
    assert graph_spec(**written) == graph_spec("lightgcn", embedding_dim=16, layers=3)


def test_a_graph_without_any_edge_is_refused() -> None:
    nobody = np.empty(0, dtype=np.int64)
    with pytest.raises(DataError, match="the graph has no edge"):
        build_graph_model(graph_spec(), Graph(users=3, items=3, edge_users=nobody, edge_items=nobody))


@every_family
def test_a_spec_comes_back_from_its_plain_values(family: str) -> None:
    spec = graph_spec(family=family, layers=4)
    assert graph_spec(**spec.to_dict()) == spec
    assert ("neighbours" in spec.to_dict()) == (family in ("sage", "ultragcn"))
