"""Batches of triples: a user, a chosen item and items that the user did not choose."""

import math
import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from shunter.engine.ranking.interactions import UNKNOWN, is_among
from shunter.errors import DataError
from shunter.models.graph.spec import Graph


@dataclass(frozen=True, kw_only=True)
class Triples:
    """Batch of training triples: user, chosen item and sampled items.

    Attributes:
        users: User of each sample, int64 `[samples]`.
        positives: Item that the user chose, int64 `[samples]`.
        negatives: Items that the user did not choose, int64 `[samples, negatives]`.
    """

    users: Tensor
    positives: Tensor
    negatives: Tensor

    @property
    def samples(self) -> int:
        """Number of positives in the batch."""
        return len(self.users)

    def to(self, device: torch.device) -> "Triples":
        """Return the triples on a device; the copy to a GPU is asynchronous, from page-locked memory."""

        def copied(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

        return Triples(users=copied(self.users), positives=copied(self.positives), negatives=copied(self.negatives))


MOST_CELLS = 2**27  # bytes of the largest (user, item) table of choices that is faster than a search in the edges


class TripleBatches:
    """Batches of the edges of a graph, each edge with sampled negatives.

    Order and negatives depend only on seed, epoch and batch, so that any batch can be reproduced. A negative is sampled
    uniformly from the known items that the user did not choose in the training part. Edges of a user who chose every
    item are excluded.

    Args:
        graph: Graph with the edges.
        batch_size: Number of positives in a batch; the last batch of an epoch may be smaller.
        negatives: Number of negatives for each positive.
        seed: Seed of order and negatives.
        by_user: Whether the edges of a user are consecutive, with the users shuffled; otherwise all edges are shuffled.

    Raises:
        DataError: Every user chose every item.
    """

    def __init__(
        self, graph: Graph, batch_size: int, *, negatives: int = 1, seed: int = 0, by_user: bool = False
    ) -> None:
        rejected = graph.items - 1 - graph.user_degrees()
        comparable = rejected[graph.edge_users] > 0
        if not comparable.any():
            raise DataError(
                "Every user of the training part has a positive row of every item, so no negative can be "
                "sampled: give data with unobserved pairs."
            )
        self._users, self._items = graph.edge_users[comparable], graph.edge_items[comparable]
        self._item_count = graph.items
        self._chosen = np.sort(self._users * graph.items + self._items)
        self._table = None
        if graph.users * graph.items <= MOST_CELLS:
            self._table = np.zeros(graph.users * graph.items, bool)
            self._table[self._chosen] = True
        self.batch_size, self.negatives, self.seed, self._by_user = batch_size, negatives, seed, by_user
        self._order = lru_cache(maxsize=1)(self._order_of)

    @property
    def samples(self) -> int:
        """Number of positives in an epoch."""
        return len(self._users)

    def __len__(self) -> int:
        return math.ceil(self.samples / self.batch_size)

    def batch(self, epoch: int, index: int) -> Triples:
        """Return the batch with a given index within an epoch."""
        rows = self._order(epoch)[index * self.batch_size : (index + 1) * self.batch_size]
        users = self._users[rows]
        # A negative of each positive is drawn again while its user chose that item (rejection sampling).
        random, of = np.random.default_rng([self.seed, epoch, index, 1]), np.repeat(users, self.negatives)
        drawn = random.integers(UNKNOWN + 1, self._item_count, len(of))
        wrong = np.flatnonzero(self._is_chosen(of, drawn))
        while len(wrong):
            drawn[wrong] = random.integers(UNKNOWN + 1, self._item_count, len(wrong))
            wrong = wrong[self._is_chosen(of[wrong], drawn[wrong])]
        return Triples(
            users=torch.from_numpy(users),
            positives=torch.from_numpy(self._items[rows]),
            negatives=torch.from_numpy(drawn.reshape(-1, self.negatives)),
        )

    def _order_of(self, epoch: int) -> np.ndarray:
        random = np.random.default_rng([self.seed, epoch])
        if self._by_user:
            place = random.permutation(int(self._users.max()) + 1)
            return place[self._users].argsort(kind="stable")
        return random.permutation(self.samples)

    def _is_chosen(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        keys = users * self._item_count + items
        return is_among(keys, self._chosen) if self._table is None else self._table[keys]


class Drawing:
    """Sampler of training batches that moves them to a device and measures its own time.

    Attributes:
        seconds: Seconds spent on sampling so far.
    """

    def __init__(self, batches: TripleBatches, device: torch.device) -> None:
        self._batches, self._device = batches, device
        self.seconds = 0.0

    def batch(self, epoch: int, index: int) -> Triples:
        """Return batch `index` of an epoch, on the device."""
        started = time.perf_counter()
        drawn = self._batches.batch(epoch, index).to(self._device)
        self.seconds += time.perf_counter() - started
        return drawn
