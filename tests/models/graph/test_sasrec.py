"""SASRec against its formulas, one user and one place at a time, and on an order that alone says what comes next."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.trainer import batches_for, build_optimizer, ranking_step
from shunter.errors import RequestError
from shunter.models.graph import Graph, build_graph_model, graph_spec
from shunter.models.graph import losses as losses_module
from shunter.models.graph.ranker import VectorRanker
from shunter.models.graph.sasrec import Block, SasRec
from tests.models.graph.graphs import random_graph


def in_order(graph: Graph, seed: int = 0) -> Graph:
    return replace(graph, edge_order=np.random.default_rng(seed).permutation(graph.edges))


def build(graph: Graph, **options: float) -> SasRec:
    spec = graph_spec("sasrec", **{"embedding_dim": 8, "layers": 2, "heads": 2, "dropout": 0.0, **options})
    model = build_graph_model(spec, graph)
    assert isinstance(model, SasRec)
    with torch.no_grad():  # large enough that each part is seen in the outcome
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5)
    return model


def sequence_of(graph: Graph, user: int) -> list[int]:
    assert graph.edge_order is not None
    own = np.flatnonzero(graph.edge_users == user)
    return graph.edge_items[own[graph.edge_order[own].argsort()]].tolist()


@torch.no_grad()
def by_hand(block: Block, rows: list[Tensor]) -> list[Tensor]:
    """One block, place by place: `rows` are the vectors of the places up to now."""
    heads, width = block.heads, len(rows[0]) // block.heads
    normal = [block.before_attention(row) for row in rows]
    out = []
    for place, row in enumerate(rows):
        parts = []
        for head in range(heads):
            own = slice(head * width, (head + 1) * width)
            query = block.query(normal[place])[own]
            scores = torch.stack([query @ block.key(normal[seen])[own] for seen in range(place + 1)]) / width**0.5
            shares = scores.softmax(0)
            parts.append(sum(shares[seen] * block.value(normal[seen])[own] for seen in range(place + 1)))
        attended = row + block.attended(torch.cat(parts))
        out.append(attended + block.second(block.first(block.before_forward(attended)).relu()))
    return out


@torch.no_grad()
def states_by_hand(model: SasRec, items: list[int]) -> list[Tensor]:
    rows = [model.items[item] * 8**0.5 + model.places[len(items) - 1 - at] for at, item in enumerate(items)]
    for block in model.blocks:
        assert isinstance(block, Block)
        rows = by_hand(block, rows)
    return [model.last(row) for row in rows]


@pytest.mark.parametrize("length", [2, 50])
def test_a_user_is_the_state_behind_the_last_item(length: int) -> None:
    graph = in_order(random_graph(edges=30))
    model = build(graph, length=length).train()
    users, items = model.all_vectors()
    assert model.training
    assert items is model.items
    for user in range(graph.users):
        sequence = sequence_of(graph, user)[-length:]
        expected = states_by_hand(model, sequence)[-1] if sequence else torch.zeros(8)
        torch.testing.assert_close(users[user], expected)


@pytest.mark.parametrize(("softmax", "together"), [(True, 3), (True, 512), (False, 512)])
@pytest.mark.parametrize("length", [2, 50])
def test_the_loss_is_that_of_each_item_by_the_state_before_it(
    monkeypatch: pytest.MonkeyPatch, *, softmax: bool, together: int, length: int
) -> None:
    monkeypatch.setattr(losses_module, "TOGETHER", together)
    graph = in_order(random_graph(edges=30))
    model = build(graph, length=length, softmax=softmax)
    triples = batches_for(model, 11, RankingHyperparameters(negatives=2), seed=1).batch(0, 1)
    taught = []
    for user, item, drawn in zip(
        triples.users.tolist(), triples.positives.tolist(), triples.negatives.tolist(), strict=True
    ):
        sequence = sequence_of(graph, user)
        shown = sequence[:-1][-length:]
        place = sequence.index(item) - 1 - (len(sequence) - 1 - len(shown))
        if sequence.index(item) > 0 and place >= 0:
            taught.append((states_by_hand(model, shown)[place], item, drawn))
    degrees, items = graph.item_degrees(), model.items.detach()
    expected = []
    for number, (state, item, drawn) in enumerate(taught):
        if not softmax:
            chosen = float(nn.functional.softplus(-(state @ items[item])))
            expected.append(chosen + sum(float(nn.functional.softplus(state @ items[one])) for one in drawn) / 2)
            continue
        group = taught[number - number % together :][:together]
        candidates = [one for _, one, _ in group] + [one for _, _, of_sample in group for one in of_sample]

        def odds(one: int, state: Tensor = state, count: int = len(group)) -> float:
            expectation = count * degrees[one] / graph.edges + 2 * count / (graph.items - 1)
            return math.exp(float(state @ items[one])) / expectation

        expected.append(-math.log(odds(item) / sum(map(odds, candidates))))
    assert 0 < len(taught) < 11
    found = model.loss(triples.users, triples.positives, triples.negatives)
    assert found.item() == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_it_learns_what_follows_from_the_order_alone() -> None:
    """Every user goes round the same circle of items from another start: who chose what says nothing of the next."""
    items, users, shown = 12, 48, 6
    starts = np.arange(users) % items
    chosen = (starts[:, None] + np.arange(shown)) % items + 1
    graph = Graph(
        users=users + 1,
        items=items + 1,
        edge_users=np.repeat(np.arange(1, users + 1), shown),
        edge_items=chosen.ravel(),
        edge_order=np.arange(users * shown),
    )
    spec = graph_spec("sasrec", embedding_dim=16, layers=1, dropout=0.0)
    model = build_graph_model(spec, graph).train()
    rates = RankingHyperparameters(learning_rate=0.02, weight_decay=0.0, negatives=1)
    optimizer, batches = build_optimizer(model, rates), batches_for(model, 288, rates, seed=0)
    for epoch in range(60):
        ranking_step(model, optimizer, batches.batch(epoch, 0), rates)
    scores = VectorRanker.of(model).all_scores(torch.arange(1, users + 1)).numpy()
    expected = (starts + shown) % items + 1
    assert (scores[:, 1:].argmax(1) + 1 == expected).mean() > 0.95


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(RequestError, match="width 8 of a graph model cannot be divided into 3 heads"):
        build(in_order(random_graph()), heads=3)
