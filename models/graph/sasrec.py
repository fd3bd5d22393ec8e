"""SASRec: a transformer over the ordered interactions of a user (Kang and McAuley, ICDM 2018).

A user has no embedding: the user's vector is the state of the transformer after the last item, so the model ranks the
next item. The order of the interactions is that of the rows of the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from shunter.models.dropout import Dropout
from shunter.models.graph.losses import TOGETHER, corrected_softmax, logistic
from shunter.models.graph.model import GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend
from shunter.models.graph.spec import Graph, LayeredSpec, Range, Searched

USERS_AT_ONCE = 4_096  # users whose states are in memory at the same time
WIDTHS = (8, 16, 32, 64, 128)  # sequences up to each length are batched together, which limits the padding
INITIAL_ITEM_DEVIATION = 0.02
PRODUCTS = 6  # with square matrices in a layer: query, key, value, attention output, and two of the feed-forward part


@dataclass(frozen=True, kw_only=True)
class SasRecSpec(LayeredSpec):
    """Configuration of a transformer over each user's interactions; `layers` is its number of blocks.

    Attributes:
        heads: Heads of the attention.
        length: Largest number of items in a sequence; the latest items are used.
        dropout: Dropout share of activations in training.
        softmax: Whether the loss is a softmax over the positives and negatives of the batch (as in
            `shunter.models.graph.twotower`), or as in the paper the logistic loss with each sample's own negatives.
    """

    family: ClassVar[str] = "sasrec"
    searched: ClassVar[Searched] = {
        **LayeredSpec.searched,
        "dropout": (0.1, 0.2, 0.3, 0.5),
        "learning_rate": Range(3e-4, 1e-2),
        "weight_decay": Range(1e-6, 1e-2),
        "negatives": (1, 2, 4),
    }
    learned_with: ClassVar[Mapping[str, Any]] = {"learning_rate": 0.002, "weight_decay": 1e-5, "negatives": 1}

    heads: int = 1
    length: int = 50
    dropout: float = 0.2
    softmax: bool = True


class Block(nn.Module):
    """`x + D(attention(LN x))`, then `x + D(feed-forward(LN x))` (section III, equations 2 to 5), D being dropout.

    Args:
        spec: Architecture.
    """

    def __init__(self, spec: SasRecSpec) -> None:
        super().__init__()
        width = spec.embedding_dim
        self.heads = spec.heads
        self.before_attention, self.before_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.attended = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = Dropout(spec.dropout)

    def forward(self, states: Tensor) -> Tensor:
        """Map `[users, length, dim]` to the same shape; a position attends to itself and earlier positions."""
        normal = self.before_attention(states)
        query, key, value = (
            of(normal).unflatten(2, (self.heads, -1)).transpose(1, 2) for of in (self.query, self.key, self.value)
        )
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.dropout(self.attended(seen.transpose(1, 2).flatten(2)))
        hidden = self.dropout(torch.relu(self.first(self.before_forward(states))))
        return states + self.dropout(self.second(hidden))


@dataclass(frozen=True, eq=False)
class Sequences:
    """Interactions of each user, in their order.

    Attributes:
        items: Items of all users, user by user, int64 `[edges]`.
        starts: Index of each user's first item, `[users]`.
        lengths: Number of items of each user, `[users]`.
        keys: `user * items + item` of each edge, ascending, `[edges]`.
        ranks: Position, from 0, of the edge of each key in its user's sequence, `[edges]`.
    """

    items: Tensor
    starts: Tensor
    lengths: Tensor
    keys: Tensor
    ranks: Tensor

    @classmethod
    def of(cls, graph: Graph, device: str | torch.device) -> "Sequences":
        """Return the sequences of a graph, in the order of the log's rows if the graph has it, else by item."""
        order = np.arange(graph.edges) if graph.edge_order is None else graph.edge_order
        by_user = np.lexsort((order, graph.edge_users))
        lengths = graph.user_degrees()
        starts = np.cumsum(lengths) - lengths
        ranks = np.empty(graph.edges, np.int64)
        ranks[by_user] = np.arange(graph.edges) - starts[graph.edge_users[by_user]]
        keys = graph.edge_users * graph.items + graph.edge_items
        by_key = keys.argsort(kind="stable")
        arrays = (graph.edge_items[by_user], starts, lengths, keys[by_key], ranks[by_key])
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


class SasRec(GraphModel[SasRecSpec]):
    """Model that ranks the next item after the interactions of a user."""

    spec_class = SasRecSpec
    reads_order = True
    has_user_embeddings = False

    item_shares: Tensor

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        spec, graph = self.spec, self.graph
        with torch.no_grad():
            self.items.normal_(0.0, INITIAL_ITEM_DEVIATION)
        self.places = nn.Parameter(INITIAL_ITEM_DEVIATION * torch.randn(spec.length, spec.embedding_dim))
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.layers))
        self.last = nn.LayerNorm(spec.embedding_dim)
        self.dropout = Dropout(spec.dropout)
        shares = torch.from_numpy(graph.item_degrees() / graph.edges).float()
        self.register_buffer("item_shares", shares, persistent=False)
        self.sequences = Sequences.of(graph, device)

    @classmethod
    def layer_counts(cls, spec: SasRecSpec, graph: Graph) -> LayerCounts:
        """Count the operations of a step; a sample is a position of a sequence."""
        return LayerCounts(
            summed_rows=0,
            written_rows=0,
            operators=60 * spec.layers,
            embeddings=graph.items + spec.length,
            biases=(PRODUCTS + 4) * spec.layers + 2,
            products_of_sample=PRODUCTS * spec.layers,
        )

    @classmethod
    def scored_items(cls, negatives: int) -> int:
        """Return the number of items scored for each sample: the positives and negatives of `TOGETHER` samples."""
        return TOGETHER * (1 + negatives)

    def reseed(self, seed: int) -> None:
        """Make the dropout of the next step depend on `seed` alone."""
        torch.manual_seed(seed)

    def own_squares(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the sum of the squared item embeddings; users have no embeddings."""
        return super().own_squares(users[:0], items)

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Return the mean loss over the samples whose item has a preceding item.

        Each sample is scored by the state after the preceding item. The first item of a sequence, and items further
        back than `length`, do not count.
        """
        states, rows, is_behind = self._states_before(users, positives)
        if not bool(is_behind.any()):
            return self.items.sum() * 0.0
        states, positives, negatives = states[rows[is_behind]], positives[is_behind], negatives[is_behind]
        if not self.spec.softmax:
            return logistic(states, self.items, positives, negatives)
        of_items = self.items.index_select(0, torch.cat([positives, negatives.flatten()]))
        return corrected_softmax(states, positives, negatives, of_items, self.item_shares)

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return user vectors (states after the last item without dropout; zeros without items) and item vectors."""
        lengths = self.sequences.lengths
        found = self.items.new_zeros(len(lengths), self.spec.embedding_dim)
        was_training = self.training
        self.eval()
        try:
            for users in lengths.nonzero().flatten().split(USERS_AT_ONCE):
                shown = lengths[users].clamp(max=self.spec.length)
                states = self._states(users, lengths[users] - shown, shown)
                found = found.index_copy(0, users, states[shown.cumsum(0) - 1])
        finally:
            self.train(was_training)
        return found, self.items

    def _states_before(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states after the items that precede given items of users, `[samples]` each.

        Returns:
            States `[states, dim]`, the row of each sample's state `[samples]`, and whether a sample has a state.
        """
        known = self.sequences
        ranks = known.ranks[torch.searchsorted(known.keys, users * len(self.items) + items)]
        distinct, places = torch.unique(users, return_inverse=True)
        ends = known.lengths[distinct] - 1  # no item follows the last item
        shown = ends.clamp(max=self.spec.length)
        first = ends - shown
        before = shown.cumsum(0) - shown
        place = ranks - 1 - first[places]
        is_behind = (place >= 0) & (ranks > 0)
        return self._states(distinct, first, shown), before[places] + place.clamp(min=0), is_behind

    def _states(self, users: Tensor, first: Tensor, shown: Tensor) -> Tensor:
        """Return the states after `shown` items of each user, from position `first` on: `[sum of shown, dim]`."""
        width = self.spec.embedding_dim
        found = self.items.new_zeros(int(shown.sum()), width)
        before = shown.cumsum(0) - shown
        shortest = 0
        for longest in (*(width for width in WIDTHS if width < self.spec.length), self.spec.length):
            chosen = ((shown > shortest) & (shown <= longest)).nonzero().flatten()
            shortest = longest
            if not len(chosen):
                continue
            counts = shown[chosen]
            place = torch.arange(int(counts.max()), device=counts.device)
            is_there = place < counts[:, None]
            at = (self.sequences.starts[users[chosen]] + first[chosen])[:, None] + place
            items = self.sequences.items[at.clamp(max=len(self.sequences.items) - 1)]
            # As in the published code, positions are counted from the newest item, and embeddings are scaled.
            ages = (counts[:, None] - 1 - place).clamp(min=0)
            states = self.dropout(self.items[items] * width**0.5 + self.places[ages])
            for block in self.blocks:
                states = block(states)
            rows = (before[chosen][:, None] + place)[is_there]
            found = found.index_copy(0, rows, self.last(states)[is_there])
        return found
