"""Two towers against their formulas, one sample at a time."""

import math

import pytest
import torch

from shunter.engine.ranking.triples import TripleBatches
from shunter.errors import RequestError
from shunter.models.graph import Graph, build_graph_model, graph_spec
from shunter.models.graph import losses as losses_module
from shunter.models.graph.counting import count_graph_model
from shunter.models.graph.twotower import TOGETHER, Tower, TwoTower
from tests.models.graph.graphs import random_graph


def build(graph: Graph, **options: float) -> TwoTower:
    model = build_graph_model(graph_spec("twotower", **{"embedding_dim": 5, "layers": 2, **options}), graph)
    assert isinstance(model, TwoTower)
    return model


def by_hand(tower: Tower, own: torch.Tensor) -> torch.Tensor:
    for layer in tower.layers:
        own = own + layer(own.relu())
    return own


def test_a_tower_adds_up_what_is_known_of_a_node_and_no_edge_reaches_it() -> None:
    graph = random_graph(attributes=True)
    model = build(graph)
    users, items = model.all_vectors()
    genres, jobs = model.item_tower.values[0], model.user_tower.values[0]
    torch.testing.assert_close(items[2], by_hand(model.item_tower, model.items[2] + genres[1:3].mean(0)))
    torch.testing.assert_close(items[5], by_hand(model.item_tower, model.items[5]))  # nothing is known of it
    torch.testing.assert_close(users[3], by_hand(model.user_tower, model.users[3] + jobs[2]))
    (users.sum() + items[4].sum()).backward()
    assert model.items.grad is not None
    assert model.items.grad.abs().sum(1).nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("together", [3, 512])
def test_the_loss_is_the_corrected_cross_entropy_of_each_sample(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses_module, "TOGETHER", together)
    graph = random_graph()
    model = build(graph, temperature=0.5)
    triples = TripleBatches(graph, 7, negatives=2).batch(0, 0)
    users, items = model.all_vectors()
    degrees = graph.item_degrees()
    losses = []
    for place in range(7):
        first = place - place % together
        group = range(first, min(first + together, 7))
        chosen, drawn = triples.positives[first : group.stop].tolist(), triples.negatives[first : group.stop]
        own = int(triples.positives[place])

        def odds(item: int, place: int = place, count: int = len(group)) -> float:
            score = (users[triples.users[place]] @ items[item]).item() / 0.5
            expected = count * degrees[item] / graph.edges + 2 * count / (graph.items - 1)
            return math.exp(score) / expected

        whole = sum(odds(item) for item in [*chosen, *drawn.flatten().tolist()])
        losses.append(-math.log(odds(own) / whole))
    found = model.loss(triples.users, triples.positives, triples.negatives)
    assert found.item() == pytest.approx(sum(losses) / 7, rel=1e-5)


def test_the_correction_takes_back_how_often_an_item_is_drawn() -> None:
    """Learned from clicks that are independent of the user, scores follow the clicks, and not their square or root."""
    chosen = torch.tensor([1, 2]).repeat_interleave(torch.tensor([45, 15]))
    graph = Graph(users=61, items=3, edge_users=torch.arange(1, 61).numpy(), edge_items=chosen.numpy())
    model = build(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    random = torch.Generator().manual_seed(0)
    shared = model.users  # every user alike: what is left to learn is how often an item is chosen
    for _ in range(200):
        with torch.no_grad():
            shared.copy_(shared.mean(0).expand_as(shared))
        optimizer.zero_grad()
        model.loss(torch.arange(1, 61), chosen, torch.randint(1, 3, (60, 1), generator=random)).backward()
        optimizer.step()
    users, items = model.all_vectors()
    scores = users[1] @ items[1:].T
    assert (scores[0] - scores[1]).item() == pytest.approx(math.log(3), abs=0.3)


def test_what_a_step_costs_counts_the_candidates_and_a_temperature_is_above_zero() -> None:
    graph = random_graph()
    spec = graph_spec("twotower", embedding_dim=8)
    counts = count_graph_model(spec, graph, negatives=3)
    assert counts.matmul_flops_per_sample == 2 * 3 * TOGETHER * 4 * 8
    with pytest.raises(RequestError, match="option temperature of a graph model is 0"):
        build(graph, temperature=0.0)
