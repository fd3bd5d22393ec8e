"""Random sampling of neighbours, by DGL's sampler if it is installed."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from shunter.models.graph.propagation import Backend, has_dgl, import_dgl


class NeighbourSampler(ABC):
    """Samples up to a number of neighbours of each node, without repetition.

    Args:
        sources: Node ids, int64 `[edges]`.
        targets: Node ids, int64 `[edges]`.
        nodes: Number of nodes.
    """

    @abstractmethod
    def __init__(self, sources: np.ndarray, targets: np.ndarray, nodes: int) -> None: ...

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Make later samples depend on `seed` alone, for the same number of threads."""

    @abstractmethod
    def draw(self, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return sampled edges into distinct `targets`: sources and targets, int64 `[edges]` each."""


class DglSampler(NeighbourSampler):
    """DGL's sampler, which uses the random state of the process."""

    def __init__(self, sources: np.ndarray, targets: np.ndarray, nodes: int) -> None:
        self._dgl = import_dgl()
        edges = (torch.from_numpy(sources), torch.from_numpy(targets))
        self._graph = self._dgl.graph(edges, num_nodes=nodes).formats("csc")

    def seed(self, seed: int) -> None:
        """Seed DGL's generators of all threads."""
        self._dgl.random.seed(seed)

    def draw(self, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Sample by DGL."""
        return self._dgl.sampling.sample_neighbors(self._graph, targets, most).edges()


class TorchSampler(NeighbourSampler):
    """Sampler without DGL: each edge into the targets gets a random number, and the lowest of each target are kept."""

    def __init__(self, sources: np.ndarray, targets: np.ndarray, nodes: int) -> None:
        self._sources = torch.from_numpy(sources[np.argsort(targets, kind="stable")])
        self._degrees = torch.from_numpy(np.bincount(targets, minlength=nodes))
        self._starts = self._degrees.cumsum(0) - self._degrees
        self._generator = torch.Generator()

    def seed(self, seed: int) -> None:
        """Seed the generator of this sampler."""
        self._generator.manual_seed(seed)

    def draw(self, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Sample by sorting random numbers."""
        degrees = self._degrees[targets]
        first = degrees.cumsum(0) - degrees
        owners = torch.repeat_interleave(torch.arange(len(targets)), degrees)
        positions = torch.arange(len(owners)) - first[owners]  # of each edge among the edges of its target
        lots = torch.rand(len(owners), generator=self._generator, dtype=torch.float64)
        order = torch.argsort(owners + lots)  # shuffles within each target, whose edges stay together
        kept = order[positions < most]
        return self._sources[self._starts[targets[owners[kept]]] + positions[kept]], targets[owners[kept]]


def neighbour_sampler(
    sources: np.ndarray, targets: np.ndarray, nodes: int, backend: Backend = "auto"
) -> NeighbourSampler:
    """Return DGL's sampler if it is installed and torch's is not requested, else torch's."""
    use_dgl = backend == "dgl" or (backend == "auto" and has_dgl())
    return (DglSampler if use_dgl else TorchSampler)(sources, targets, nodes)
