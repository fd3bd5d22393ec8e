"""Pooled lookup of all tables of a model in one operator, with the optimiser fused into its backward.

Two kernels with equal results: FBGEMM's table-batched bag where `fbgemm_gpu` can be imported, plain torch elsewhere.
Both keep all tables in one `[rows of all tables, dim]` array, and one float of optimiser state a row.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shunter.errors import RequestError

Kernel = Literal["auto", "fbgemm", "torch"]
EPSILON = 1e-8
ROWS_DRAWN_AT_ONCE = 1 << 18
log = logging.getLogger(__name__)


class PooledEmbeddings(nn.Module, ABC):
    """Embedding tables whose rows are summed over each bag of ids.

    The gradient never reaches an optimiser: the backward pass updates the touched rows itself, by exact row-wise
    Adagrad, `sum += mean(gradient^2); row -= learning_rate * gradient / (sqrt(sum) + epsilon)`, where the gradient of
    a row is summed over its occurrences in the batch first. That is why the module has buffers and no parameters.

    A table may serve several fields, and a field that is looked up id by id has a bag for each position. A sample has
    the same bags as every other, those of one table next to each other.

    Args:
        rows: rows of each table.
        dim: width of every row.
        learning_rate: of the row-wise Adagrad.
        table_of: table of each bag of a sample, ascending; None is one bag for each table.

    Attributes:
        weight: `[rows of all tables, dim]` float32, the tables one below the other.
        adagrad_sum: `[rows of all tables]` float32, the optimiser's state; not part of the state dict.
        l2: weight decay. A row that a step touches has `l2 * row` added to its gradient, however often the batch holds
            it, so that rare ids are held back most. Of a bag of several ids the sum decays, `l2 * sum / occurrences`
            with those of its ids averaged. It comes by the gradient of the lookup, for FBGEMM's optimisers have no
            weight decay on CPUs; where tables are divided, each process adds it for its own samples.
        initial_bound: the initial weights lie in plus and minus it; None gives each table its own, 1 / sqrt(rows), by
            which the fields of few ids weigh most at first.
    """

    weight: Tensor
    adagrad_sum: Tensor
    l2: float = 0.0
    initial_bound: float | None = None

    def __init__(
        self, rows: Sequence[int], dim: int, learning_rate: float, table_of: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.rows = tuple(rows)
        self.dim = dim
        self.learning_rate = learning_rate
        self.table_of = tuple(range(len(rows)) if table_of is None else table_of)
        assert sorted(set(self.table_of)) == list(range(len(rows))), "every table has a bag"
        assert list(self.table_of) == sorted(self.table_of), "the bags of a table lie next to each other"

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The weights of each table, `[rows, its width]`: views of `weight`."""
        return self.weight.split(self.rows)

    @abstractmethod
    def lookup(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Sum the rows of each bag; see `forward`."""

    def forward(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Look up one batch.

        Args:
            values: ids, bag by bag of a sample, and sample by sample for each (the order of a KeyedJaggedTensor).
            offsets: `[bags of a sample * batch + 1]`, where each bag starts in `values`, and the end.

        Returns:
            `[batch, bags of a sample, dim]`; zeros for an empty bag.
        """
        pooled = self.lookup(values, offsets).view(-1, len(self.table_of), self.dim)
        if self.l2 and pooled.requires_grad:
            decay = pooled.detach() * (self.l2 * self._rarity(values, offsets))
            pooled.register_hook(lambda gradient: gradient + decay)
        return pooled

    def _rarity(self, values: Tensor, offsets: Tensor) -> Tensor:
        """One over the occurrences in the batch of each id, averaged over a bag: `[batch, bags of a sample, 1]`.

        Like the update of the torch kernel, it has no shape that depends on the ids: a GPU does not wait for the host.
        """
        lengths = offsets.diff()
        bags, device = len(lengths), values.device
        bag = torch.repeat_interleave(lengths, output_size=len(values))
        starts = torch.tensor((0, *self.rows[:-1]), device=device).cumsum(0)
        starts = starts[torch.tensor(self.table_of, device=device)]
        rows = values.long() + starts[bag // (bags // len(self.table_of))]
        ordered, order = rows.sort()
        slot = torch.zeros_like(order)
        slot[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
        occurrences = torch.zeros(len(rows), device=device).index_add_(0, slot, torch.ones(len(rows), device=device))
        rarity = torch.zeros(bags, device=device).index_add_(0, bag[order], occurrences[slot].reciprocal())
        return (rarity / lengths.clamp(min=1)).view(len(self.table_of), -1).t().unsqueeze(2)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights of each table (`draw_tables`), and set the optimiser's state to zero."""
        tables = self.tables
        widths = [table.shape[1] for table in tables]
        for table, first_row, drawn in draw_tables(self.rows, widths, generator, self.initial_bound):
            tables[table][first_row : first_row + len(drawn)].copy_(drawn)
        self.adagrad_sum.zero_()

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
        """Refuse to move: the kernel works on the memory it was built with."""
        before = self.weight
        super()._apply(fn, recurse)
        if self.weight.device != before.device or self.weight.dtype != before.dtype:
            raise RuntimeError("embedding tables cannot be moved or cast: build the model on its device instead")
        return self


class FbgemmEmbeddings(PooledEmbeddings):
    """FBGEMM's split table-batched embedding bag."""

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        learning_rate: float,
        device: torch.device,
        table_of: Sequence[int] | None = None,
    ) -> None:
        super().__init__(rows, dim, learning_rate, table_of)
        kernel, weight, adagrad_sum = fbgemm_kernel(rows, [dim] * len(rows), learning_rate, device, self.table_of)
        # The kernel itself stays out of the module tree: its many buffers are its own affair, and its weights are no
        # parameters of the dense optimiser.
        self._kernel = (kernel,)
        # Views of the kernel's memory, under the names that every kernel has.
        self.register_buffer("weight", weight.view(-1, dim))
        self.register_buffer("adagrad_sum", adagrad_sum, persistent=False)

    def lookup(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Sum the rows of each bag."""
        return self._kernel[0](values, offsets)


def fbgemm_kernel(
    rows: Sequence[int], widths: Sequence[int], learning_rate: float, device: torch.device, table_of: Sequence[int]
) -> tuple[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]:
    """Build FBGEMM's kernel over tables of any widths.

    Args:
        rows: of each table.
        widths: of each table, multiples of 4.
        learning_rate: of the row-wise Adagrad.
        device: where the tables lie.
        table_of: table of each bag.

    Returns:
        The kernel, from ids and offsets to `[batch, widths of all bags]`; and views of its memory, the tables one
        behind the other: the weights, `[numbers of all rows]`, and the optimiser's state, `[rows of all tables]`.
    """
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    on_cpu = device.type == "cpu"
    location = EmbeddingLocation.HOST if on_cpu else EmbeddingLocation.DEVICE
    compute = ComputeDevice.CPU if on_cpu else ComputeDevice.CUDA
    kernel = SplitTableBatchedEmbeddingBagsCodegen(
        [(table_rows, width, location, compute) for table_rows, width in zip(rows, widths, strict=True)],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=learning_rate,
        eps=EPSILON,
        feature_table_map=list(table_of),
        pooling_mode=PoolingMode.SUM,
        # Ids are checked where a batch is made, once, with the name of the field in the message.
        bounds_check_mode=BoundsCheckMode.NONE,
        device=device,
    )
    weights = getattr(kernel, "weights_host" if on_cpu else "weights_dev")
    momentum = getattr(kernel, "momentum1_host" if on_cpu else "momentum1_dev")
    numbers = sum(table_rows * width for table_rows, width in zip(rows, widths, strict=True))
    return kernel, weights.detach()[:numbers], momentum.detach()[: sum(rows)]


class TorchEmbeddings(PooledEmbeddings):
    """The same with torch alone, for machines without FBGEMM; no synchronisation with the device.

    `memory` is the weight and the optimiser's state where they are part of something larger.
    """

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        learning_rate: float,
        device: torch.device,
        table_of: Sequence[int] | None = None,
        *,
        memory: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__(rows, dim, learning_rate, table_of)
        total = sum(rows)
        weight, adagrad_sum = memory or (torch.zeros(total, dim, device=device), torch.zeros(total, device=device))
        self.register_buffer("weight", weight)
        self.register_buffer("adagrad_sum", adagrad_sum, persistent=False)
        starts = torch.tensor((0, *rows[:-1]), device=device).cumsum(0)
        starts = starts[torch.tensor(self.table_of, device=device)]
        self.register_buffer("bag_starts", starts, persistent=False)
        # The update happens in the backward pass, which autograd runs only if something asks for a gradient.
        self.register_buffer("anchor", torch.zeros(0, device=device, requires_grad=True), persistent=False)

    bag_starts: Tensor
    anchor: Tensor

    def lookup(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Sum the rows of each bag."""
        pooled: Tensor = _PooledLookup.apply(self.anchor, self, values, offsets)  # pyright: ignore[reportAssignmentType]
        by_bag = pooled.view(len(self.table_of), -1, self.dim)
        return by_bag.transpose(0, 1).flatten(1)

    @torch.no_grad()
    def update(self, rows: Tensor, gradients: Tensor) -> None:
        """Sum the gradients of each distinct row, then update it once.

        All shapes are known beforehand, so a GPU never waits for the host: the distinct rows fill the first slots,
        the slots that remain carry a zero gradient to row 0, which changes nothing.

        Args:
            rows: `[ids]` row in `weight` of each looked-up id, with repetitions.
            gradients: `[ids, dim]` gradient of each looked-up id.
        """
        ordered, order = rows.sort(stable=True)
        is_first = torch.ones_like(ordered, dtype=torch.bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        slot = is_first.cumsum(0) - 1
        distinct = torch.zeros_like(ordered).scatter_(0, slot, ordered)
        summed = torch.zeros_like(gradients).index_add_(0, slot, gradients[order])
        self.adagrad_sum.index_add_(0, distinct, summed.square().mean(1))
        scale = self.learning_rate / (self.adagrad_sum[distinct].sqrt() + EPSILON)
        self.weight.index_add_(0, distinct, summed * scale.unsqueeze(1), alpha=-1)


class _PooledLookup(torch.autograd.Function):
    """Bag sums forward, the update of the tables backward."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tables: TorchEmbeddings, values: Tensor, offsets: Tensor) -> Tensor:
        bags = offsets.numel() - 1
        bag_of_value = torch.repeat_interleave(offsets.diff(), output_size=values.numel())
        bag_of_sample = torch.arange(bags, device=values.device) // max(bags // len(tables.table_of), 1)
        rows = values.long() + tables.bag_starts[bag_of_sample][bag_of_value]
        ctx.tables = tables
        ctx.save_for_backward(rows, bag_of_value)
        if not values.numel():
            return tables.weight.new_zeros(bags, tables.dim)
        return nn.functional.embedding_bag(rows, tables.weight, offsets.long(), mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        rows, bag_of_value = ctx.saved_tensors
        if rows.numel():
            ctx.tables.update(rows, gradients[0][bag_of_value])
        return None, None, None, None


def draw_tables(
    rows: Sequence[int], dim: int | Sequence[int], generator: torch.Generator, bound: float | None = None
) -> Iterator[tuple[int, int, Tensor]]:
    """Draw each table uniformly from plus and minus the bound; equal for all kernels.

    Args:
        rows: rows of each table.
        dim: width of every row, or of those of each table.
        generator: of the random numbers.
        bound: of all tables; None is 1 / sqrt(rows) for each, as in facebookresearch/dlrm.

    Yields:
        Number of the table, first row and weights of one part after the other: a table may be larger than memory. The
        weights are valid until the next part, which is drawn into the same memory.
    """
    widths = [dim] * len(rows) if isinstance(dim, int) else dim
    room = torch.empty(min(ROWS_DRAWN_AT_ONCE, max(rows)) * max(widths))
    for table, (table_rows, width) in enumerate(zip(rows, widths, strict=True)):
        limit = table_rows**-0.5 if bound is None else bound
        for first_row in range(0, table_rows, ROWS_DRAWN_AT_ONCE):
            part = room[: min(ROWS_DRAWN_AT_ONCE, table_rows - first_row) * width].view(-1, width)
            yield table, first_row, part.uniform_(-limit, limit, generator=generator)


def choose_kernel(kernel: Kernel, device: torch.device) -> Literal["fbgemm", "torch"]:
    """Resolve `auto`: FBGEMM where it is installed with operators for the device, plain torch elsewhere.

    Raises:
        RequestError: FBGEMM was asked for and is not installed.
    """
    if kernel == "torch":
        return "torch"
    if _fbgemm_works(device.type):
        return "fbgemm"
    if kernel == "fbgemm":
        raise RequestError(
            f"The embedding kernel fbgemm has no build for {device.type} here: install fbgemm-gpu or use kernel torch."
        )
    return "torch"


def _fbgemm_works(device_type: str) -> bool:
    try:
        import fbgemm_gpu
        import fbgemm_gpu.split_table_batched_embeddings_ops_training
    except ModuleNotFoundError:
        return False
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # a build for another torch
        log.warning("FBGEMM is installed but cannot be used, so plain torch takes its place: %s", error)
        return False
    return device_type == "cpu" or getattr(fbgemm_gpu, "__variant__", "cpu") != "cpu"


def build_embeddings(
    rows: Sequence[int],
    dim: int,
    *,
    learning_rate: float,
    device: torch.device,
    kernel: Kernel = "auto",
    table_of: Sequence[int] | None = None,
) -> PooledEmbeddings:
    """Build uninitialised tables of one width.

    Args:
        rows: rows of each table.
        dim: width of every row.
        learning_rate: of the fused row-wise Adagrad.
        device: where they lie, for good.
        kernel: `auto` picks FBGEMM where it is installed.
        table_of: see `PooledEmbeddings`.
    """
    kernels: dict[str, type[FbgemmEmbeddings] | type[TorchEmbeddings]] = {
        "fbgemm": FbgemmEmbeddings,
        "torch": TorchEmbeddings,
    }
    return kernels[choose_kernel(kernel, device)](rows, dim, learning_rate, device, table_of)
