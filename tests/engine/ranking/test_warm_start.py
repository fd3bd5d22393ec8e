"""A model that begins at another's vectors: which rows are taken, and which stay as they were drawn."""

from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.warm_start import SharedRows, WarmStart
from shunter.engine.ranking.storage import StoredRanker, save_ranker
from shunter.engine.ranking.trainer import take_vectors
from shunter.models.graph import Graph, build_graph_model, graph_spec
from shunter.models.graph.fusion import FusedRanker
from shunter.models.graph.ranker import Ranker, VectorRanker
from shunter.models.spec import CategoricalFeature, Features
from tests.models.graph.graphs import random_graph

# Users 2 and 3 were 4 and 2, user 5 is new; item 3 was 2, item 4 was 1, which nobody had chosen.
ROWS = {
    "user": SharedRows(np.array([0, 2, 3]), np.array([0, 4, 2])),
    "item": SharedRows(np.array([0, 3, 4]), np.array([0, 2, 1])),
}


def saved(ranker: Ranker, folder: Path, graph: Graph) -> WarmStart:
    fields = (CategoricalFeature(name="user", rows=graph.users), CategoricalFeature(name="item", rows=graph.items))
    features = Features(dense=(), categorical=fields)
    spec = graph_spec(embedding_dim=4)
    save_ranker(StoredRanker(ranker=ranker, spec=spec, features=features, user="user", item="item"), folder)
    return WarmStart(folder, ROWS)


@pytest.fixture
def graph() -> Graph:
    return random_graph()


@pytest.fixture
def former(graph: Graph) -> VectorRanker:
    return VectorRanker.of(build_graph_model(graph_spec(embedding_dim=4), graph, seed=1))


def test_known_users_and_items_begin_at_the_vectors_of_the_former_model(
    graph: Graph, former: VectorRanker, tmp_path: Path
) -> None:
    model, untouched = (build_graph_model(graph_spec(embedding_dim=4), graph, seed=2) for _ in range(2))
    taken = take_vectors(model, saved(former, tmp_path, graph))
    assert torch.equal(model.users[[2, 3]], former.user_vectors[[4, 2]])
    assert torch.equal(model.items[3], former.item_vectors[2])
    others = [user for user in range(graph.users) if user not in (2, 3)]
    assert torch.equal(model.users[others], untouched.users[others])
    assert torch.equal(model.items[[0, 1, 2, 4, 5, 6]], untouched.items[[0, 1, 2, 4, 5, 6]])
    assert taken == 3


def test_nothing_is_taken_of_a_model_without_such_vectors(graph: Graph, former: VectorRanker, tmp_path: Path) -> None:
    wider, untouched = (build_graph_model(graph_spec(embedding_dim=8), graph, seed=2) for _ in range(2))
    assert take_vectors(wider, saved(former, tmp_path, graph)) == 0
    assert torch.equal(wider.users, untouched.users)


def test_a_member_of_a_fused_ranker_is_gone_on_from_alone(graph: Graph, former: VectorRanker, tmp_path: Path) -> None:
    popularity = VectorRanker.of(build_graph_model(graph_spec(embedding_dim=4), graph, seed=1)).by_popularity()
    start = saved(FusedRanker([popularity, former], "z-scores"), tmp_path, graph)
    model = build_graph_model(graph_spec(embedding_dim=4), graph, seed=2)
    assert take_vectors(model, start) == 0  # of the first, whose vectors have a width of 1
    assert take_vectors(model, WarmStart(start.directory, start.rows, member=1)) == 3
