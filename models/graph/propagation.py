"""Sums over the neighbours in a graph, by DGL or by torch's sparse matrices, with equal results and gradients.

DGL is used if it is installed and was built for the device, else torch. In informal measurements (no stored script)
DGL's sums took clearly less processor time.
"""

import importlib.util
import os
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shunter.errors import RequestError
from shunter.models.graph.spec import Graph

ITEMS_AT_ONCE = 1_024  # items whose common users with all items are counted together
Backend = Literal["auto", "dgl", "torch"]


class DglSum:
    """Sum by DGL's kernel, which stores no value for an edge; the arguments are those of `neighbour_sum`."""

    def __init__(
        self, sources: np.ndarray, targets: np.ndarray, source_count: int, target_count: int, device: torch.device
    ) -> None:
        dgl = import_dgl()
        edges = (torch.from_numpy(sources), torch.from_numpy(targets))
        counts = {"source": source_count, "target": target_count}
        graph = dgl.heterograph({("source", "to", "target"): edges}, num_nodes_dict=counts)
        graph = graph.formats(["csr", "csc"])  # one for each direction: forward and backward
        graph.create_formats_()
        self._graph, self._sum = graph.to(device), dgl.ops.copy_u_sum

    def __call__(self, vectors: Tensor) -> Tensor:
        """Sum `[sources, dim]` float32 into `[targets, dim]`; the operation is differentiable."""
        return self._sum(self._graph, vectors)


class TorchSum:
    """Sum as a product with a sparse matrix of ones; its gradient is a product with the transposed matrix."""

    def __init__(
        self, sources: np.ndarray, targets: np.ndarray, source_count: int, target_count: int, device: torch.device
    ) -> None:
        self._forward = _ones(targets, sources, target_count, source_count, device)
        self._backward = _ones(sources, targets, source_count, target_count, device)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Sum `[sources, dim]` float32 into `[targets, dim]`; the operation is differentiable."""
        return _SparseProduct.apply(vectors, self._forward, self._backward)  # pyright: ignore[reportReturnType]


NeighbourSum = DglSum | TorchSum


class _SparseProduct(torch.autograd.Function):
    """`matrix @ vectors`; torch's own gradient would transpose the matrix in every step."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, vectors: Tensor, matrix: Tensor, transposed: Tensor
    ) -> Tensor:
        ctx.transposed = transposed  # pyright: ignore[reportAttributeAccessIssue]
        return matrix @ vectors

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transposed @ gradients[0], None, None  # pyright: ignore[reportAttributeAccessIssue]


def neighbour_sum(
    sources: np.ndarray,
    targets: np.ndarray,
    source_count: int,
    target_count: int,
    *,
    device: str | torch.device = "cpu",
    backend: Backend = "auto",
) -> NeighbourSum:
    """Build the sum of the vectors of the sources that have an edge to each target node; zero without edges.

    Args:
        sources: Node ids, int64 `[edges]`.
        targets: Node ids, int64 `[edges]`.
        source_count: Number of source nodes.
        target_count: Number of target nodes.
        device: Device of the vectors.
        backend: Library of the sum; `auto` is DGL if it is installed and supports the device, else torch.

    Raises:
        RequestError: DGL is requested but not installed, or was not built for the device.
    """
    device = torch.device(device)
    edges = (sources, targets, source_count, target_count, device)
    if backend == "torch" or (backend == "auto" and not has_dgl()):
        return TorchSum(*edges)
    failure = import_dgl().DGLError
    try:
        return DglSum(*edges)
    except failure as error:
        if backend == "auto":  # for instance a build of DGL for processors with vectors on a GPU
            return TorchSum(*edges)
        raise RequestError(
            f"The installed DGL does not support the device {device}: install another build of DGL, or use the "
            "backend torch."
        ) from error


class NeighbourMean:
    """Mean of the vectors of the sources that have an edge to each target node; zero without edges.

    The arguments are those of `neighbour_sum`.
    """

    def __init__(
        self,
        sources: np.ndarray,
        targets: np.ndarray,
        source_count: int,
        target_count: int,
        *,
        device: str | torch.device,
        backend: Backend,
    ) -> None:
        self._sums = neighbour_sum(sources, targets, source_count, target_count, device=device, backend=backend)
        degrees = np.bincount(targets, minlength=target_count)
        self._shares = torch.from_numpy(1 / np.maximum(degrees, 1)).float()[:, None].to(device)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Average `[sources, dim]` into `[targets, dim]`."""
        return self._shares * self._sums(vectors)


def co_counts(
    graph: Graph,
    device: str | torch.device = "cpu",
    backend: Backend = "auto",
    *,
    user_weights: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Count the users who chose both of two items, or sum the weights `[users]` of these users.

    Yields:
        Items of a block, int64 `[block]`, and their counts with all items, float32 `[items, block]`.
    """
    users, items = graph.edge_users, graph.edge_items
    to_items = neighbour_sum(users, items, graph.users, graph.items, device=device, backend=backend)
    weights = torch.ones(graph.users, device=device) if user_weights is None else user_weights
    for first in range(0, graph.items, ITEMS_AT_ONCE):
        some = torch.arange(first, min(first + ITEMS_AT_ONCE, graph.items), device=device)
        here = (items >= first) & (items < first + len(some))
        chosen = torch.zeros(graph.users, len(some), device=device)
        who = torch.from_numpy(users[here]).to(device)
        chosen[who, torch.from_numpy(items[here] - first).to(device)] = weights[who]
        yield some, to_items(chosen)


def has_dgl() -> bool:
    """Return True if DGL is installed."""
    return importlib.util.find_spec("dgl") is not None


def import_dgl() -> ModuleType:
    """Import DGL for torch; by default DGL would write the choice of torch into a file in the user's home.

    Raises:
        RequestError: DGL is not installed.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        import dgl
    except ImportError as error:
        raise RequestError("DGL is not installed: install the package dgl, or choose the backend 'torch'.") from error
    return dgl


def _ones(rows: np.ndarray, columns: np.ndarray, row_count: int, column_count: int, device: torch.device) -> Tensor:
    """Return a CSR matrix with a one at each (row, column)."""
    order = np.lexsort((columns, rows))
    starts = np.concatenate([[0], np.bincount(rows, minlength=row_count).cumsum()])
    with torch.sparse.check_sparse_tensor_invariants(enable=False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(starts).int(),
            torch.from_numpy(columns[order]).int(),
            torch.ones(len(rows)),
            size=(row_count, column_count),
            device=device,
        )
