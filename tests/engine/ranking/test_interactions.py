"""From the arrays of a click log to a graph, and what is known of its nodes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.interactions import (
    Interactions,
    check_order,
    read_before_test,
    read_graph,
    read_interactions,
)
from shunter.errors import DataError, RequestError
from tests.engine.ranking.data import write_clicks

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25)


def interactions(pairs: list[tuple[int, int]]) -> Interactions:
    users, items = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Interactions.of(users, items)


def as_set(found: Interactions) -> set[tuple[int, int]]:
    return set(zip(found.users.tolist(), found.items.tolist(), strict=True))


@given(first=PAIRS, second=PAIRS)
def test_pairs_are_known_distinct_and_sorted_and_behave_as_sets(first, second) -> None:
    one, other = interactions(first), interactions(second)
    known = {pair for pair in first if all(pair)}
    assert list(zip(one.users.tolist(), one.items.tolist(), strict=True)) == sorted(known)
    assert one.left_out == sum(not all(pair) for pair in first)
    assert as_set(one.without(other)) == known - as_set(other)
    assert as_set(one.union(other)) == known | as_set(other)


def test_edges_are_the_positives_of_the_training_part(tmp_path: Path) -> None:
    dataset = write_clicks(tmp_path)
    ids, labels = (np.load(tmp_path / f"train.{name}.npy") for name in ("categorical", "label"))
    expected = {
        (int(row[1]), int(row[2])) for row, label in zip(ids, labels, strict=True) if label and row[1] and row[2]
    }
    graph = read_graph(dataset)
    assert set(zip(graph.edge_users.tolist(), graph.edge_items.tolist(), strict=True)) == expected
    assert (graph.users, graph.items) == (31, 25)
    assert graph.user_degrees()[:2].tolist() == [0, 0]
    assert as_set(read_interactions(dataset, "train")) == expected


def test_steps_share_what_was_read_until_the_data_are_others(tmp_path: Path) -> None:
    dataset = write_clicks(tmp_path)
    found, graph, before = read_interactions(dataset, "train"), read_graph(dataset), read_before_test(dataset)
    assert read_interactions(dataset, "train") is found
    assert read_graph(dataset) is graph
    assert as_set(before) == as_set(found) | as_set(read_interactions(dataset, "validation"))
    other = write_clicks(tmp_path, seed=1)
    assert as_set(read_interactions(other, "train")) != as_set(found)
    assert as_set(read_before_test(other)) != as_set(before)


def test_other_fields_belong_to_the_side_whose_rows_agree_on_them(tmp_path: Path) -> None:
    graph = read_graph(write_clicks(tmp_path))
    assert [(one.name, one.side, one.values) for one in graph.attributes] == [
        ("town", "user", 6),
        ("genres", "item", 5),
    ]
    genres = graph.attributes[1]
    known = set(zip(genres.nodes.tolist(), genres.ids.tolist(), strict=True))
    items = set(np.load(tmp_path / "train.categorical.npy")[:, 2].tolist()) - {0}
    assert known == {(item, genre) for item in items for genre in [item % 3 + 1, 4][: 1 + item % 2]}


def test_a_schema_that_names_no_user_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="user_id"):
        read_graph(write_clicks(tmp_path, user=None))


def test_a_log_without_any_positive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the graph has no edge"):
        read_graph(write_clicks(tmp_path, positives=False))


def test_user_and_item_are_kept_with_the_data(tmp_path: Path) -> None:
    write_clicks(tmp_path)
    found = Dataset.load(tmp_path)
    assert (found.user, found.item) == ("user", "item")


def test_pairs_keep_the_order_in_which_they_came_first_and_those_of_another_part_come_behind() -> None:
    first = Interactions.of(np.array([2, 1, 2, 2, 0]), np.array([5, 3, 4, 5, 1]))
    later = Interactions.of(np.array([2, 1]), np.array([1, 9]))

    def told(found: Interactions) -> list[tuple[int, int]]:
        return list(zip(*(array.tolist() for array in found.in_order()), strict=True))

    assert told(first) == [(2, 5), (1, 3), (2, 4)]
    assert told(first.union(later)) == [(2, 5), (1, 3), (2, 4), (2, 1), (1, 9)]
    assert told(first.without(Interactions.of(np.array([1]), np.array([3])))) == [(2, 5), (2, 4)]


def test_a_log_out_of_order_is_refused_where_the_order_counts_and_is_not_stored(tmp_path: Path) -> None:
    dataset = write_clicks(tmp_path)
    for known in (None, True):
        check_order(replace(dataset, is_in_order_of_time=known))
    with pytest.raises(RequestError):
        check_order(replace(dataset, is_in_order_of_time=False))
    np.save(tmp_path / "train.time.npy", np.arange(dataset.splits["train"].rows))
    check_order(replace(dataset, is_in_order_of_time=False))
