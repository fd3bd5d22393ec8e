"""GraphSAGE (Hamilton et al., "Inductive Representation Learning on Large Graphs", NeurIPS 2017)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from shunter.models.graph.model import GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, neighbour_sum
from shunter.models.graph.sampling import neighbour_sampler
from shunter.models.graph.spec import Graph, LayeredSpec, Searched
from shunter.record import OPTIONAL

SCALE = 10.0  # of the cosines: their differences are too small for a comparison otherwise


@dataclass(frozen=True, kw_only=True)
class SageSpec(LayeredSpec):
    """A GraphSAGE.

    Attributes:
        neighbours: Neighbours drawn for each node in each layer while training; scoring uses all.
        hide_targets: Whether the edges that a step of training asks for are no way for its vectors.
        normalised: Whether final vectors have one length, so that scores are cosines times `SCALE`.
    """

    family: ClassVar[str] = "sage"
    searched: ClassVar[Searched] = {
        **LayeredSpec.searched,
        "neighbours": (5, 10, 20),
        "hide_targets": (False, True),
        "normalised": (False, True),
    }

    neighbours: int = 10
    hide_targets: bool = field(default=False, metadata=OPTIONAL)
    normalised: bool = field(default=False, metadata=OPTIONAL)


class Sage(GraphModel[SageSpec]):
    """Each layer mixes a node with the mean of some of its neighbours, through weights that all nodes share.

    `h_k(v) = relu(W_k [h_(k-1)(v), mean of h_(k-1)(u)])` (algorithm 1, with the mean of section 3.3), the last layer
    without its relu, so that scores can be negative. A step of training draws `spec.neighbours` neighbours for each
    node it needs, layer by layer (algorithm 2), so that its cost does not grow with the graph; scoring takes all. A
    node without an edge has nothing but its own embedding in its layers.

    Of the neighbours drawn, those may be left out that the step asks for: a user whose vector holds an item is not
    asked then whether they chose it, as nothing tells so when it is scored. Final vectors may be normalised (algorithm
    1, line 7, of the last layer alone). Neither gains on MovieLens (`benchmarks.graph_variants`), so both are searched,
    and off by default.

    Args:
        spec: Architecture.
        graph: Edges.
        device: Device where the model shall lie.
        backend: Library of the sums and the sampler.
    """

    spec_class = SageSpec

    degrees: Tensor

    def __init__(
        self, spec: SageSpec, graph: Graph, *, device: str | torch.device = "cpu", backend: Backend = "auto"
    ) -> None:
        super().__init__(spec, graph, device=device, backend=backend)
        nodes = graph.users + graph.items  # users first
        users, items = graph.edge_users, graph.edge_items + graph.users
        sources, targets = np.concatenate([users, items]), np.concatenate([items, users])
        self.layers = nn.ModuleList(nn.Linear(2 * spec.embedding_dim, spec.embedding_dim) for _ in range(spec.layers))
        self.sampler = neighbour_sampler(sources, targets, nodes, backend)
        self.neighbour_sum = neighbour_sum(sources, targets, nodes, nodes, device=device, backend=backend)
        degrees = torch.from_numpy(np.bincount(targets, minlength=nodes)).clamp(min=1).float()[:, None]
        self.register_buffer("degrees", degrees, persistent=False)
        self.to(device)

    @classmethod
    def layer_counts(cls, spec: SageSpec, graph: Graph) -> LayerCounts:
        """At most: as if the nodes of a step were all there are."""
        nodes = graph.users + graph.items
        return LayerCounts(
            summed_rows=spec.layers * min(2 * graph.edges, nodes * spec.neighbours),
            written_rows=spec.layers * 5 * nodes,
            operators=spec.layers * 40,
            embeddings=nodes,
            products=((nodes, 2),) * spec.layers,
            biases=spec.layers,
        )

    def reseed(self, seed: int) -> None:
        """Make the neighbours of the next step depend on `seed` alone."""
        self.sampler.seed(seed)

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Final vectors of all users and items, with all their neighbours."""
        hidden = torch.cat([self.users, self.items])
        for depth in range(len(self.layers)):
            hidden = self._mix(depth, hidden, self.neighbour_sum(hidden) / self.degrees)
        hidden = self._outputs(hidden)
        return hidden[: self.graph.users], hidden[self.graph.users :]

    def forward(self, users: Tensor, items: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Final vectors of some users and items, with the neighbours that were drawn for them."""
        hidden_edges = self._edge_keys(users, chosen) if chosen is not None and self.spec.hide_targets else None
        nodes, places = torch.unique(torch.cat([users, items + self.graph.users]), return_inverse=True)
        needed = [nodes]  # nodes of each layer, the last layer first
        edges = []
        for _ in self.layers:
            sources, targets = (
                ends.to(nodes.device) for ends in self.sampler.draw(needed[-1].cpu(), self.spec.neighbours)
            )
            if hidden_edges is not None:
                ends = torch.minimum(sources, targets), torch.maximum(sources, targets)  # users come first
                is_shown = ~torch.isin(ends[0] * self._nodes + ends[1], hidden_edges)
                sources, targets = sources[is_shown], targets[is_shown]
            edges.append((sources, targets))
            needed.append(torch.unique(torch.cat([needed[-1], sources])))
        hidden = torch.cat([self.users, self.items]).index_select(0, needed[-1])
        for depth in range(len(self.layers)):
            inner, outer = needed[-1 - depth], needed[-2 - depth]
            sources, targets = edges[-1 - depth]
            hidden = self._sampled_layer(depth, hidden, inner, outer, sources=sources, targets=targets)
        hidden = self._outputs(hidden)
        return hidden[places[: len(users)]], hidden[places[len(users) :]]

    @property
    def _nodes(self) -> int:
        return self.graph.users + self.graph.items

    def _edge_keys(self, users: Tensor, items: Tensor) -> Tensor:
        """A number for each edge, whatever its direction."""
        return torch.unique(users * self._nodes + items + self.graph.users)

    def _outputs(self, hidden: Tensor) -> Tensor:
        """Final vectors, whose products are the scores."""
        return SCALE**0.5 * nn.functional.normalize(hidden) if self.spec.normalised else hidden

    def _sampled_layer(
        self, depth: int, hidden: Tensor, inner: Tensor, outer: Tensor, *, sources: Tensor, targets: Tensor
    ) -> Tensor:
        """Vectors of the `outer` nodes from those of the `inner` ones; both are sorted."""
        rows = torch.searchsorted(outer, targets)
        sums = hidden.new_zeros(len(outer), hidden.shape[1]).index_add(
            0, rows, hidden.index_select(0, torch.searchsorted(inner, sources))
        )
        counts = torch.bincount(rows, minlength=len(outer)).clamp(min=1)[:, None]
        return self._mix(depth, hidden.index_select(0, torch.searchsorted(inner, outer)), sums / counts)

    def _mix(self, depth: int, own: Tensor, mean: Tensor) -> Tensor:
        mixed = self.layers[depth](torch.cat([own, mean], dim=1))
        return mixed if depth == len(self.layers) - 1 else torch.relu(mixed)
