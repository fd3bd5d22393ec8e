"""Batches: every edge once an epoch, negatives that nobody chose, all of it made again from the seed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.ranking import triples
from shunter.engine.ranking.triples import TripleBatches
from shunter.errors import DataError
from shunter.models.graph import Graph
from tests.models.graph.graphs import random_graph


@settings(max_examples=15, deadline=None)
@given(
    edges=st.integers(1, 34),
    batch_size=st.integers(1, 40),
    negatives=st.integers(1, 3),
    epoch=st.integers(0, 3),
    by_user=st.booleans(),
)
def test_an_epoch_holds_each_edge_once_and_no_negative_that_its_user_chose(
    edges, batch_size, negatives, epoch, by_user
) -> None:
    graph = random_graph(edges=edges, seed=edges)
    chosen = set(zip(graph.edge_users.tolist(), graph.edge_items.tolist(), strict=True))
    batches = TripleBatches(graph, batch_size, negatives=negatives, seed=3, by_user=by_user)
    seen: Counter[tuple[int, int]] = Counter()
    for index in range(len(batches)):
        one = batches.batch(epoch, index)
        assert one.negatives.shape == (one.samples, negatives)
        seen.update(zip(one.users.tolist(), one.positives.tolist(), strict=True))
        for user, items in zip(one.users.tolist(), one.negatives.tolist(), strict=True):
            assert not {(user, item) for item in items} & chosen
            assert all(0 < item < graph.items for item in items)
    assert seen == Counter(chosen)


def test_a_table_of_who_chose_what_says_the_same_as_the_search_among_the_edges(monkeypatch) -> None:
    by_table = TripleBatches(random_graph(edges=30), 8, negatives=3)
    monkeypatch.setattr(triples, "MOST_CELLS", 0)
    by_search = TripleBatches(random_graph(edges=30), 8, negatives=3)
    assert by_table.batch(1, 2).negatives.tolist() == by_search.batch(1, 2).negatives.tolist()


def test_a_batch_is_made_again_from_seed_epoch_and_index_alone() -> None:
    graph = random_graph(edges=30)
    first, second = (TripleBatches(graph, 8, seed=1) for _ in range(2))
    first.batch(0, 0)
    again, fresh, other = first.batch(2, 1), second.batch(2, 1), second.batch(1, 1)
    assert again.positives.tolist() == fresh.positives.tolist()
    assert again.negatives.tolist() == fresh.negatives.tolist()
    assert again.positives.tolist() != other.positives.tolist()


def test_negatives_are_uniform_over_what_a_user_did_not_choose() -> None:
    graph = Graph(users=2, items=6, edge_users=np.array([1, 1]), edge_items=np.array([2, 4]))
    batches = TripleBatches(graph, 2, negatives=3_000, seed=0)
    counts = np.bincount(batches.batch(0, 0).negatives.flatten().numpy(), minlength=6)
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
    assert counts[[1, 3, 5]] == pytest.approx(2_000, rel=0.1)


def test_edges_of_a_user_who_chose_everything_are_left_out() -> None:
    graph = Graph(users=3, items=3, edge_users=np.array([1, 1, 2]), edge_items=np.array([1, 2, 1]))
    batches = TripleBatches(graph, 8)
    assert batches.batch(0, 0).users.tolist() == [2]
    whole = Graph(users=2, items=3, edge_users=np.array([1, 1]), edge_items=np.array([1, 2]))
    with pytest.raises(DataError, match="no negative can be sampled"):
        TripleBatches(whole, 8)


def test_edges_of_a_user_lie_together_in_another_order_of_users_each_epoch() -> None:
    batches = TripleBatches(random_graph(edges=30), 7, seed=1, by_user=True)
    orders = []
    for epoch in (0, 1):
        users = [user for index in range(len(batches)) for user in batches.batch(epoch, index).users.tolist()]
        orders.append([user for place, user in enumerate(users) if place == 0 or users[place - 1] != user])
        assert len(orders[-1]) == len(set(users))
    assert orders[0] != orders[1]
