"""GraphSAGE (Hamilton et al., "Inductive Representation Learning on Large Graphs", NeurIPS 2017)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from shunter.models.graph.model import GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, has_dgl, import_dgl, neighbour_sum
from shunter.models.graph.spec import Graph, LayeredSpec, Searched
from shunter.record import OPTIONAL


class DglSampler:
    """DGL's sampler, which uses the random state of the process."""

    def __init__(self, sources: np.ndarray, targets: np.ndarray, nodes: int) -> None:
        self._dgl = import_dgl()
        edges = (torch.from_numpy(sources), torch.from_numpy(targets))
        self._graph = self._dgl.graph(edges, num_nodes=nodes).formats("csc")

    def seed(self, seed: int) -> None:
        """Make later samples depend on `seed` alone, for the same number of threads."""
        self._dgl.random.seed(seed)

    def draw(self, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return sampled edges into distinct `targets`: sources and targets, int64 `[edges]` each."""
        return self._dgl.sampling.sample_neighbors(self._graph, targets, most).edges()


class TorchSampler:
    """Sampler without DGL: each edge into the targets gets a random number, and the lowest of each target are kept."""

    def __init__(self, sources: np.ndarray, targets: np.ndarray, nodes: int) -> None:
        self._sources = torch.from_numpy(sources[np.argsort(targets, kind="stable")])
        self._degrees = torch.from_numpy(np.bincount(targets, minlength=nodes))
        self._starts = self._degrees.cumsum(0) - self._degrees
        self._generator = torch.Generator()

    def seed(self, seed: int) -> None:
        """Make later samples depend on `seed` alone."""
        self._generator.manual_seed(seed)

    def draw(self, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return sampled edges into distinct `targets`: sources and targets, int64 `[edges]` each."""
        degrees = self._degrees[targets]
        first = degrees.cumsum(0) - degrees
        owners = torch.repeat_interleave(torch.arange(len(targets)), degrees)
        positions = torch.arange(len(owners)) - first[owners]  # of each edge among the edges of its target
        lots = torch.rand(len(owners), generator=self._generator, dtype=torch.float64)
        order = torch.argsort(owners + lots)  # shuffles within each target, whose edges stay together
        kept = order[positions < most]
        return self._sources[self._starts[targets[owners[kept]]] + positions[kept]], targets[owners[kept]]


# Sampler of up to a given number of neighbours of each node, without repetition, from edges and the number of nodes.
NeighbourSampler = DglSampler | TorchSampler
SCALE = 10.0  # factor of the cosines, whose differences would be too small for the loss otherwise


@dataclass(frozen=True, kw_only=True)
class SageSpec(LayeredSpec):
    """Configuration of GraphSAGE.

    Attributes:
        neighbours: Neighbours sampled for each node in each layer in training; scoring uses all.
        hide_targets: Whether the edges that a training step predicts are excluded from its propagation.
        normalised: Whether final vectors have equal length, so that scores are cosines times `SCALE`.
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
    """Layers that mix each node with the mean of sampled neighbours, by weights shared by all nodes.

    `h_k(v) = relu(W_k [h_(k-1)(v), mean of h_(k-1)(u)])` (algorithm 1, with the mean of section 3.3). The last layer
    has no relu, so that scores can be negative. A training step samples `spec.neighbours` neighbours for each node that
    it needs, layer by layer (algorithm 2), so its cost does not grow with the graph; scoring uses all neighbours. The
    mean is zero for a node without edges.

    The edges that the step predicts can be excluded from the sample: otherwise a user's vector in training contains the
    item to predict, unlike in scoring. Final vectors can be normalised (algorithm 1, line 7, for the last
    layer only). Neither improves results on MovieLens (`benchmarks.graph_variants`), so both are searched, and off by
    default.
    """

    spec_class = SageSpec

    degrees: Tensor

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        spec, graph = self.spec, self.graph
        nodes = graph.users + graph.items  # users first
        users, items = graph.edge_users, graph.edge_items + graph.users
        sources, targets = np.concatenate([users, items]), np.concatenate([items, users])
        self.layers = nn.ModuleList(nn.Linear(2 * spec.embedding_dim, spec.embedding_dim) for _ in range(spec.layers))
        use_dgl = backend == "dgl" or (backend == "auto" and has_dgl())
        self.sampler = (DglSampler if use_dgl else TorchSampler)(sources, targets, nodes)
        self.neighbour_sum = neighbour_sum(sources, targets, nodes, nodes, device=device, backend=backend)
        degrees = torch.from_numpy(np.bincount(targets, minlength=nodes)).clamp(min=1).float()[:, None]
        self.register_buffer("degrees", degrees, persistent=False)

    @classmethod
    def layer_counts(cls, spec: SageSpec, graph: Graph) -> LayerCounts:
        """Count the operations of a step over all nodes, an upper limit because a step samples nodes."""
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
        """Return the final vectors of all users and items, with all their neighbours."""
        hidden = torch.cat([self.users, self.items])
        for depth in range(len(self.layers)):
            hidden = self._mix(depth, hidden, self.neighbour_sum(hidden) / self.degrees)
        hidden = self._outputs(hidden)
        return hidden[: self.graph.users], hidden[self.graph.users :]

    def forward(self, users: Tensor, items: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the final vectors of some users and items, with sampled neighbours."""
        count = self.graph.users + self.graph.items
        hidden_edges = None  # a number for each edge, independent of its direction
        if chosen is not None and self.spec.hide_targets:
            hidden_edges = torch.unique(users * count + chosen + self.graph.users)
        nodes, places = torch.unique(torch.cat([users, items + self.graph.users]), return_inverse=True)
        needed = [nodes]  # nodes of each layer, the last layer first
        edges = []
        for _ in self.layers:
            sources, targets = (
                ends.to(nodes.device) for ends in self.sampler.draw(needed[-1].cpu(), self.spec.neighbours)
            )
            if hidden_edges is not None:
                ends = torch.minimum(sources, targets), torch.maximum(sources, targets)  # users come first
                is_shown = ~torch.isin(ends[0] * count + ends[1], hidden_edges)
                sources, targets = sources[is_shown], targets[is_shown]
            edges.append((sources, targets))
            needed.append(torch.unique(torch.cat([needed[-1], sources])))
        hidden = torch.cat([self.users, self.items]).index_select(0, needed[-1])
        for depth in range(len(self.layers)):
            inner, outer = needed[-1 - depth], needed[-2 - depth]
            sources, targets = edges[-1 - depth]
            rows = torch.searchsorted(outer, targets)  # the nodes of a layer are sorted
            sums = hidden.new_zeros(len(outer), hidden.shape[1]).index_add(
                0, rows, hidden.index_select(0, torch.searchsorted(inner, sources))
            )
            counts = torch.bincount(rows, minlength=len(outer)).clamp(min=1)[:, None]
            hidden = self._mix(depth, hidden.index_select(0, torch.searchsorted(inner, outer)), sums / counts)
        hidden = self._outputs(hidden)
        return hidden[places[: len(users)]], hidden[places[len(users) :]]

    def _outputs(self, hidden: Tensor) -> Tensor:
        """Return the final vectors from the last layer's output, scaled to equal length if `normalised` is set."""
        return SCALE**0.5 * nn.functional.normalize(hidden) if self.spec.normalised else hidden

    def _mix(self, depth: int, own: Tensor, mean: Tensor) -> Tensor:
        mixed = self.layers[depth](torch.cat([own, mean], dim=1))
        return mixed if depth == len(self.layers) - 1 else torch.relu(mixed)
