"""Interactions of users and items in an ingested data set: the training graph, and the validation and test pairs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset, SplitName
from shunter.errors import RequestError
from shunter.models.graph.spec import Attribute, Graph, Side

UNKNOWN = 0  # id of every value that is absent from the training part
# A field is a property of an item if all rows of the item have the same values; one row in twenty may differ.
DISAGREEMENT = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Interactions:
    """Interactions (positive user-item pairs) of one part of the data.

    Attributes:
        users: User of each pair, int64 `[pairs]`; pairs are distinct, sorted by user and then item.
        items: Item of each pair, int64 `[pairs]`.
        order: Rank of each pair's first occurrence, int64 `[pairs]`; None if unknown.
        rows: Number of rows of the part with each pair, int64 `[pairs]`; None if unknown.
        left_out: Number of positives of users or items that are absent from the training part; all share one unknown
            id.
    """

    users: np.ndarray
    items: np.ndarray
    order: np.ndarray | None = None
    rows: np.ndarray | None = None
    left_out: int = 0

    @classmethod
    def of(cls, users: np.ndarray, items: np.ndarray) -> "Interactions":
        """Build interactions from positives in their order in the data, without unknown users and items."""
        known = (users != UNKNOWN) & (items != UNKNOWN)
        users, items = users[known].astype(np.int64), items[known].astype(np.int64)
        base = int(items.max()) + 1 if len(items) else 1
        keys, first, rows = np.unique(users * base + items, return_index=True, return_counts=True)
        left_out = int((~known).sum())
        return cls(users=keys // base, items=keys % base, order=first, rows=rows, left_out=left_out)

    def __len__(self) -> int:
        return len(self.users)

    @property
    def known_rows(self) -> int:
        """Return the number of rows of the pairs, without unknown users and items."""
        return len(self) if self.rows is None else int(self.rows.sum())

    def without(self, other: "Interactions") -> "Interactions":
        """Return the pairs that are not in `other`."""
        base = 1 + max((int(side.items.max()) for side in (self, other) if len(side)), default=0)
        new = ~is_among(self.users * base + self.items, other.users * base + other.items)
        order, rows = (None if one is None else one[new] for one in (self.order, self.rows))
        return replace(self, users=self.users[new], items=self.items[new], order=order, rows=rows)

    def union(self, other: "Interactions") -> "Interactions":
        """Return the interactions of both objects, those of `other` last."""
        sides = [side.in_order() for side in (self, other)]
        return Interactions.of(*(np.concatenate(arrays) for arrays in zip(*sides, strict=True)))

    def in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """Return users and items in the order of their occurrence, if it is known."""
        if self.order is None:
            return self.users, self.items
        came = self.order.argsort(kind="stable")
        return self.users[came], self.items[came]


def read_interactions(dataset: Dataset, split: SplitName) -> Interactions:
    """Return the interactions of one part; the arrays are cached and must not be changed.

    Raises:
        RequestError: The schema does not name the columns of user and item.
    """
    return _interactions(_Stored(dataset), split)


def read_before_test(dataset: Dataset) -> Interactions:
    """Return the interactions of training and validation together; the arrays must not be changed.

    Raises:
        RequestError: The schema does not name the columns of user and item.
    """
    return _before_test(_Stored(dataset))


class _Stored:
    """Cache key of a data set: equal for data sets with the same arrays."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        labels = dataset.directory / "train.label.npy"
        written = labels.stat().st_mtime_ns if labels.exists() else 0
        self._key = (dataset.directory, dataset.fingerprint, *sides(dataset), written)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stored) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=3)
def _interactions(stored: _Stored, split: SplitName) -> Interactions:
    dataset = stored.dataset
    users, items = (_single(dataset, split, name) for name in sides(dataset))
    labels = read_array(dataset.directory / f"{split}.label.npy")
    positive = (labels if labels.ndim == 1 else labels[:, 0]) > 0.5  # the first of several labels is the main one
    users, items = users[positive], items[positive]
    if dataset.is_in_order_of_time is False and (path := _times_path(dataset, split)).exists():
        came = read_array(path)[positive].argsort(kind="stable")
        users, items = users[came], items[came]
    return Interactions.of(users, items)


@lru_cache(maxsize=1)
def _before_test(stored: _Stored) -> Interactions:
    return _interactions(stored, "train").union(_interactions(stored, "validation"))


def read_graph(dataset: Dataset) -> Graph:
    """Return the cached graph of the training part, with the properties of users and items from other fields.

    Raises:
        RequestError: The schema does not name the columns of user and item.
        DataError: The graph has no edge.
    """
    return _graph(_Stored(dataset))


@lru_cache(maxsize=1)
def _graph(stored: _Stored) -> Graph:
    dataset = stored.dataset
    user, item = sides(dataset)
    counts = {field.name: field.rows for field in dataset.features.categorical}
    chosen = read_interactions(dataset, "train")
    graph = Graph(
        users=counts[user],
        items=counts[item],
        edge_users=chosen.users,
        edge_items=chosen.items,
        edge_order=chosen.order,
        attributes=tuple(_attributes(dataset, user, item)),
    )
    graph.check()
    return graph


def check_order(dataset: Dataset) -> None:
    """Raise if the chronological order of the training rows is unknown.

    This is the case for a log that is not sorted by time and was ingested by a version that did not store times.

    Raises:
        RequestError: The order of the rows is unknown.
    """
    if dataset.is_in_order_of_time is False and not _times_path(dataset, "train").exists():
        raise RequestError(
            f"The cached data set {dataset.name!r} does not record the order of its rows, which the model "
            f"sasrec needs: remove {dataset.directory} and run the command again."
        )


def _times_path(dataset: Dataset, split: SplitName) -> Path:
    return dataset.directory / f"{split}.time.npy"


def sides(dataset: Dataset) -> tuple[str, str]:
    """Return the names of the fields of user and item.

    Raises:
        RequestError: The schema does not name the columns of user and item.
    """
    if dataset.user is None or dataset.item is None:
        missing = " and ".join(name for name in ("user", "item") if getattr(dataset, name) is None)
        raise RequestError(
            f"A ranking model needs the user and item columns of {dataset.name!r}: name the {missing} in "
            "the schema, for instance user: user_id and item: item_id."
        )
    return dataset.user, dataset.item


def distinct_pairs(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct pairs, sorted by the first id and then the second."""
    base = int(second.max()) + 1 if len(second) else 1
    keys = np.sort(first * base + second)
    if len(keys):
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
    return keys // base, keys % base


def is_among(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return a mask of the keys (any shape) that are in the sorted array `others`."""
    if not len(others):
        return np.zeros(keys.shape, bool)
    places = np.searchsorted(others, keys)
    return others[np.minimum(places, len(others) - 1)] == keys


def _attributes(dataset: Dataset, user: str, item: str) -> Iterator[Attribute]:
    """Return the other fields that are properties of users or items; context, such as the hour, is neither."""
    nodes: dict[Side, np.ndarray] = {
        "user": _single(dataset, "train", user).astype(np.int64),
        "item": _single(dataset, "train", item).astype(np.int64),
    }
    for field in dataset.features.categorical:
        if field.name in (user, item):
            continue
        rows, ids = _values(dataset, field.name)
        found: dict[Side, tuple[np.ndarray, np.ndarray]] = {}
        surplus: dict[Side, float] = {}
        for side, of_row in nodes.items():
            known = (of_row[rows] != UNKNOWN) & (ids != UNKNOWN)
            found[side] = distinct_pairs(of_row[rows][known], ids[known])
            surplus[side] = _surplus(of_row, rows, ids, len(found[side][0]))
        side: Side = min(surplus, key=lambda one: surplus[one])
        if surplus[side] <= DISAGREEMENT and len(found[side][0]):
            of_nodes, of_ids = found[side]
            yield Attribute(name=field.name, side=side, values=field.rows, nodes=of_nodes, ids=of_ids)


def _surplus(of_row: np.ndarray, rows: np.ndarray, ids: np.ndarray, pairs: int) -> float:
    """Return how much a field varies within a node, relative to its values in the node's first row; 0 for a property.

    `pairs` counts the distinct pairs of node and value among the values `ids` of the numbered `rows`.
    """
    _, first_rows = np.unique(of_row, return_index=True)
    is_first = np.zeros(len(of_row), bool)
    is_first[first_rows[of_row[first_rows] != UNKNOWN]] = True
    expected = int((is_first[rows] & (ids != UNKNOWN)).sum())
    return pairs / expected - 1 if expected else np.inf


def _single(dataset: Dataset, split: SplitName, name: str) -> np.ndarray:
    """Return the ids of a single-valued field, `[rows]`."""
    names = [field.name for field in dataset.features.categorical if not field.multi_valued]
    return read_array(dataset.directory / f"{split}.categorical.npy")[:, names.index(name)]


def _values(dataset: Dataset, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the row number and the id of every value of a field in the training part, int64 each."""
    position = [field.name for field in dataset.features.categorical].index(name)
    if not dataset.features.categorical[position].multi_valued:
        ids = _single(dataset, "train", name).astype(np.int64)
        return np.arange(len(ids)), ids
    ids = read_array(dataset.directory / f"train.bag{position}.values.npy").astype(np.int64)
    lengths = np.diff(read_array(dataset.directory / f"train.bag{position}.offsets.npy"))
    return np.repeat(np.arange(len(lengths)), lengths), ids
