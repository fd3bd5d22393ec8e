"""Neighbours drawn at random, by DGL's sampler where it is installed."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from shunter.models.graph.propagation import Backend, has_dgl, import_dgl


class NeighbourSampler(ABC):
    """Draws for a node as many of its neighbours as asked for, each at most once, or all where it has no more.

    Args:
        sources: Int64 `[edges]`.
        targets: Int64 `[edges]`.
        nodes: Number of nodes.
    """

    @abstractmethod
    def __init__(self, sources: np.ndarray, targets: np.ndarray, nodes: int) -> None: ...

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Make what follows depend on `seed` alone, for the same number of threads."""

    @abstractmethod
    def draw(self, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Edges into `targets`, each of which is there once: sources and targets, int64 `[edges]` each."""


class DglSampler(NeighbourSampler):
    """DGL's sampler; its random state is that of the process."""

    def __init__(self, sources: np.ndarray, targets: np.ndarray, nodes: int) -> None:
        self._dgl = import_dgl()
        edges = (torch.from_numpy(sources), torch.from_numpy(targets))
        self._graph = self._dgl.graph(edges, num_nodes=nodes).formats("csc")

    def seed(self, seed: int) -> None:
        """Seed DGL's generators, those of all threads."""
        self._dgl.random.seed(seed)

    def draw(self, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """By DGL."""
        return self._dgl.sampling.sample_neighbors(self._graph, targets, most).edges()


class TorchSampler(NeighbourSampler):
    """The same without DGL: every edge into the targets draws a lot, and the lowest of each target stay."""

    def __init__(self, sources: np.ndarray, targets: np.ndarray, nodes: int) -> None:
        self._sources = torch.from_numpy(sources[np.argsort(targets, kind="stable")])
        self._degrees = torch.from_numpy(np.bincount(targets, minlength=nodes))
        self._starts = self._degrees.cumsum(0) - self._degrees
        self._generator = torch.Generator()

    def seed(self, seed: int) -> None:
        """Seed the generator of this sampler."""
        self._generator.manual_seed(seed)

    def draw(self, targets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """By sorting."""
        degrees = self._degrees[targets]
        first = degrees.cumsum(0) - degrees
        owners = torch.repeat_interleave(torch.arange(len(targets)), degrees)
        positions = torch.arange(len(owners)) - first[owners]  # of each edge among those of its target
        lots = torch.rand(len(owners), generator=self._generator, dtype=torch.float64)
        order = torch.argsort(owners + lots)  # shuffles within each target, whose edges stay together
        kept = order[positions < most]
        return self._sources[self._starts[targets[owners[kept]]] + positions[kept]], targets[owners[kept]]


def neighbour_sampler(
    sources: np.ndarray, targets: np.ndarray, nodes: int, backend: Backend = "auto"
) -> NeighbourSampler:
    """DGL's sampler where it is installed, unless torch's is asked for."""
    use_dgl = backend == "dgl" or (backend == "auto" and has_dgl())
    return (DglSampler if use_dgl else TorchSampler)(sources, targets, nodes)
