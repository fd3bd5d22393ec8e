"""Embedding tables of several widths, some with fewer rows than ids, with the interface of equal tables.

A table may be narrower than the vectors of the model. Its rows are stored without padding, and looked-up vectors are
padded with zeros. A table may also have fewer rows than its field has ids. Ids with the same remainder then share a
row. Both are choices of the architecture search (Krishna et al., arXiv 2110.14812). Zeros are used instead of a linear
map to the common width, because a super-net masks the columns of one wide table. A net drawn from it is then exactly
this model.
"""

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any, Self

import torch
from torch import Tensor, nn

from shunter.models.embeddings.fbgemm_kernel import fbgemm_kernel
from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.native_kernel import NativeKernel
from shunter.models.embeddings.request import Kernel, TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.torch_kernel import TorchEmbeddings
from shunter.models.spec import TableShape


class MixedEmbeddings(EmbeddingTables):
    """Tables of any width up to that of the vectors, with the interface of every embedding kernel.

    All rows are in one array without padding, so a narrow table takes less memory and time. The row-wise
    Adagrad takes the mean over the numbers of a row.

    Args:
        shapes: Ids, rows and width of each table.
        dim: Width of the output vectors; no table is wider.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of the tables; they cannot be moved.
        kernel: Library of the lookups. Plain torch uses an operator for consecutive tables of equal width, the other
            libraries use one operator for all tables.
        table_of: See `EmbeddingTables`.

    Attributes:
        weight: float32 `[numbers of all rows]`; `tables` returns each table as a matrix.
    """

    def __init__(
        self,
        shapes: Sequence[TableShape],
        dim: int,
        *,
        learning_rate: float,
        device: torch.device,
        kernel: Kernel = "auto",
        table_of: Sequence[int] | None = None,
    ) -> None:
        super().__init__([shape.rows for shape in shapes], dim, learning_rate, table_of)
        self.shapes = tuple(shapes)
        chosen, widths = choose_kernel(kernel, device), [shape.width for shape in shapes]
        self.decays_rows = chosen == "native"
        # Kept out of the module tree, like the kernels of tables of one width.
        self._kernel: tuple[NativeKernel | _OneOperator | _Runs]
        if chosen == "native":  # pads narrow vectors itself
            self._kernel = (NativeKernel(self.rows, widths, dim, learning_rate, self.table_of),)
        else:
            self._kernel = (_OneOperator(self, device) if chosen == "fbgemm" else _Runs(self, device),)
        self.register_buffer("weight", self._kernel[0].weight)
        self.register_buffer("adagrad_sum", self._kernel[0].adagrad_sum, persistent=False)
        self._bags = MixedBags(shapes, dim, self.table_of).to(device)

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Return True if tables may differ in width, or in the number of ids that share a row."""
        return wanted.is_mixed

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build embedding tables with uninitialised weights."""
        return cls(
            wanted.shapes,
            wanted.dim,
            learning_rate=wanted.learning_rate,
            device=wanted.device,
            kernel=wanted.kernel,
            table_of=wanted.table_of,
        )

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Weights of each table, `[rows, width]`, as views of `weight`."""
        parts = self.weight.split([shape.rows * shape.width for shape in self.shapes])
        return tuple(part.view(shape.rows, shape.width) for part, shape in zip(parts, self.shapes, strict=True))

    def rows_of_batch(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the rows that a batch looks up; several ids may share a row."""
        return super().rows_of_batch(self._bags.rows_of(values, offsets), offsets)

    def forward(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up one batch of ids; see `EmbeddingTables.forward`."""
        return super().forward(self._bags.rows_of(values, offsets), offsets, weights)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag, and pad them with zeros: `[batch, bags of a sample * dim]`."""
        kernel = self._kernel[0]
        if isinstance(kernel, NativeKernel):
            kernel.set_decay(self.row_l2, self.frozen_tables)
            return kernel(values, offsets, weights)
        return self._bags.filled_up(kernel(values, offsets, weights))

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, also in the kernel."""
        super().set_learning_rate(rate)
        self._kernel[0].set_learning_rate(rate)


class MixedBags(nn.Module):
    """Adapter for lookups in mixed tables: maps ids to rows before a lookup, and pads the vectors after it.

    Args:
        shapes: Ids, rows and width of each table.
        dim: Width of the output vectors; no table is wider.
        table_of: Table of each bag.
    """

    divisors: Tensor

    def __init__(self, shapes: Sequence[TableShape], dim: int, table_of: Sequence[int]) -> None:
        super().__init__()
        assert max(shape.width for shape in shapes) <= dim, "no table is wider than the output vectors"
        self._shares_rows = any(shape.rows < shape.ids for shape in shapes)
        divisors = torch.tensor([shapes[table].rows for table in table_of])
        self.register_buffer("divisors", divisors, persistent=False)
        widths = [shapes[table].width for table in table_of]
        self.filled_up = ZeroPadding(widths, dim) if min(widths) < dim else nn.Identity()

    def rows_of(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the row of each id within its table: the id modulo the number of rows, so that id 0 has row 0.

        Args:
            values: Ids, ordered by bag and then by sample.
            offsets: `[bags of a sample * batch + 1]`, start of each bag in `values`, and the end.

        Returns:
            Rows, in the order of the ids.
        """
        if not self._shares_rows:
            return values
        batch = (len(offsets) - 1) // len(self.divisors)
        ids_of_bag = offsets[::batch].diff()
        divisors = self.divisors.to(values.dtype).repeat_interleave(ids_of_bag, output_size=len(values))
        return values.remainder(divisors)


class _OneOperator:
    """FBGEMM kernel, which supports tables of several widths."""

    def __init__(self, embeddings: MixedEmbeddings, device: torch.device) -> None:
        widths = [shape.width for shape in embeddings.shapes]
        self._lookup, self.weight, self.adagrad_sum = fbgemm_kernel(
            embeddings.rows, widths, embeddings.learning_rate, device, embeddings.table_of
        )

    def __call__(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the pooled rows of each sample, concatenated: `[batch, widths of all bags]`."""
        return self._lookup(values, offsets, weights)

    def set_learning_rate(self, rate: float) -> None:
        """Set the step size of later updates."""
        self._lookup.set_learning_rate(rate)


class _Runs:
    """Lookup with torch alone: one kernel for each run of consecutive tables of equal width.

    With several runs on a GPU the host waits once a step, to read where the ids of each run end.
    """

    def __init__(self, embeddings: MixedEmbeddings, device: torch.device) -> None:
        shapes, table_of = embeddings.shapes, embeddings.table_of
        self._bags = len(table_of)
        self.weight = torch.zeros(sum(shape.rows * shape.width for shape in shapes), device=device)
        self.adagrad_sum = torch.zeros(sum(embeddings.rows), device=device)
        self._runs: list[tuple[int, TorchEmbeddings]] = []  # each with the index after its last bag
        first_number = first_row = 0
        for width, run in groupby(range(len(shapes)), key=lambda table: shapes[table].width):
            tables = list(run)
            rows = [shapes[table].rows for table in tables]
            own = [table - tables[0] for table in table_of if table in tables]
            weight = self.weight[first_number : first_number + sum(rows) * width].view(-1, width)
            memory = weight, self.adagrad_sum[first_row : first_row + sum(rows)]
            part = TorchEmbeddings(rows, width, embeddings.learning_rate, device, own, memory=memory)
            end = (self._runs[-1][0] if self._runs else 0) + len(own)
            self._runs.append((end, part))
            first_number += sum(rows) * width
            first_row += sum(rows)

    def __call__(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the pooled rows of each sample, concatenated: `[batch, widths of all bags]`."""
        if len(self._runs) == 1:
            return self._runs[0][1].lookup(values, offsets, weights)
        batch = (len(offsets) - 1) // self._bags
        starts = offsets[::batch].tolist()
        pooled, first = [], 0
        for end, part in self._runs:
            own, ids = offsets[first * batch : end * batch + 1] - starts[first], slice(starts[first], starts[end])
            pooled.append(part.lookup(values[ids], own, None if weights is None else weights[ids]))
            first = end
        return torch.cat(pooled, dim=1)

    def set_learning_rate(self, rate: float) -> None:
        """Set the step size of later updates."""
        for _, part in self._runs:
            part.set_learning_rate(rate)


class ZeroPadding(nn.Module):
    """Module that pads concatenated vectors of several widths to one width, with zeros after each vector.

    Args:
        widths: Widths of the vectors.
        dim: Common width.
    """

    source: Tensor
    target: Tensor

    def __init__(self, widths: Sequence[int], dim: int) -> None:
        super().__init__()
        starts = list(accumulate(widths, initial=0))
        target = [place * dim + column for place, width in enumerate(widths) for column in range(width)]
        source = torch.full((len(widths) * dim,), starts[-1])  # index of the zero after the last number
        source[torch.tensor(target)] = torch.arange(starts[-1])
        self.register_buffer("source", source, persistent=False)
        self.register_buffer("target", torch.tensor(target), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Pad `[batch, sum of widths]` to `[batch, vectors * dim]`."""
        return _Pad.apply(input, self.source, self.target)  # pyright: ignore[reportReturnType]


class _Pad(torch.autograd.Function):
    """Padding by gather in both directions; the backward pass of autograd would be a scatter, which is slower."""

    @staticmethod
    def forward(ctx: Any, narrow: Tensor, source: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(target)
        return nn.functional.pad(narrow, (0, 1)).index_select(1, source)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (target,) = ctx.saved_tensors
        return gradients[0].index_select(1, target), None, None
