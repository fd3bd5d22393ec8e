"""Embedding tables that are stored in fp16 and trained in fp32, which halves the memory of the rows.

    fp16            weight [rows, dim]              sums [rows] in fp32
        | widen, exact      ^ stochastic rounding
        v                   |
    fp32            distinct rows of one batch, in a kernel in memory: lookup, gradients and row-wise Adagrad

With rounding to nearest, updates smaller than half the distance to the next fp16 number would be lost. Stochastic
rounding rounds up with a probability equal to the share of the distance. So the mean of an update is kept (Gupta et
al., "Deep Learning with Limited Numerical Precision", ICML 2015; for tables: Zhang et al., "Training with
Low-precision Embedding Tables", 2018).

The random numbers are hashes of seed, step and row. So they do not depend on the order in which batches are prefetched,
or on a resumption.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from shunter.errors import RequestError
from shunter.models.embeddings.fbgemm_kernel import FbgemmEmbeddings
from shunter.models.embeddings.initial_weights import hashed_words
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.embeddings.mapped import sum_of_rows
from shunter.models.embeddings.request import Kernel, TableRequest
from shunter.models.embeddings.role import EmbeddingTables

FEWEST_SLOTS = 1 << 10  # rows of the kernel in fp32; doubled when a batch has more rows
NUMBERS_AT_ONCE = 1 << 16  # numbers that are rounded together, so that they fit a processor's cache
# An fp16 number has 10 bits of mantissa; numbers below 2^-14 (subnormals) have the same spacing as those just above.
_DIGITS, _SMALLEST_EXPONENT = 10, 127 - 14
_FLOAT_DIGITS = 23
_CHANCE_DIGITS = _FLOAT_DIGITS - _DIGITS  # mantissa bits of fp32 beyond fp16, which make every sum below exact
_WORD_NUMBERS = 4  # 16-bit numbers in a hashed 64-bit word
_ONE = 1 << 64


class HalfEmbeddings(EmbeddingTables):
    """Tables in fp16 on a processor.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        kernel: Library that trains the rows of a batch in fp32.
        table_of: See `EmbeddingTables`.

    Attributes:
        rounding_seed: Seed of the stochastic rounding of this training run, int64 `[1]`.
    """

    rounding_seed: Tensor

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        *,
        learning_rate: float,
        kernel: Kernel = "auto",
        table_of: Sequence[int] | None = None,
    ) -> None:
        super().__init__(rows, dim, learning_rate, table_of)
        self.register_buffer("weight", torch.zeros(sum(rows), dim, dtype=torch.float16))
        self.register_buffer("adagrad_sum", torch.zeros(sum(rows)), persistent=False)
        self.register_buffer("rounding_seed", torch.zeros(1, dtype=torch.int64), persistent=False)
        self._kind: Kernel = kernel
        self._kernel: tuple[EmbeddingTables, ...] = ()  # kept out of the module tree, since only the tables are saved
        self._step = 0
        self._in_work: np.ndarray | None = None

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Return True if the tables are stored in fp16 on a processor.

        Raises:
            RequestError: fp16 is requested for tables of several widths, with shared rows, or in a file.
        """
        if wanted.is_half and wanted.cache is not None:
            raise RequestError(
                "Embedding tables in fp16 cannot be stored in a file: leave out table_precision, or --embedding-memory."
            )
        if wanted.is_half and wanted.is_mixed:
            raise RequestError(
                "Embedding tables in fp16 need one width and a row for each id: leave out table_precision, "
                "or table_dims and table_shares."
            )
        return wanted.is_half and wanted.device.type == "cpu"

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build embedding tables with uninitialised weights."""
        return cls(
            wanted.rows,
            wanted.dim,
            learning_rate=wanted.learning_rate,
            kernel=wanted.kernel,
            table_of=wanted.table_of,
        )

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up and sum the rows of each bag."""
        import pandas as pd

        position, distinct = pd.factorize(self._row_of_each(values, offsets).numpy())
        with torch.no_grad():
            gathered = self.weight.index_select(0, torch.from_numpy(distinct))
        if self.training:
            kernel = self._kernel_of(len(distinct))
            with torch.no_grad():
                kernel.weight[: len(distinct)].copy_(gathered)
                sums = self.adagrad_sum.index_select(0, torch.from_numpy(distinct))
                kernel.adagrad_sum[: len(distinct)].copy_(sums)
            self._in_work = np.asarray(distinct)
            pooled = kernel(torch.from_numpy(position.astype(np.int32)), offsets, weights)
        else:
            pooled = sum_of_rows(gathered.float(), torch.from_numpy(position), offsets, weights)
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    @torch.no_grad()
    def after_backward(self) -> None:
        """Round the trained rows stochastically, and store them in the tables."""
        if self._in_work is None:
            return
        numbers, kernel = self._in_work, self._kernel[0]
        rows, key = torch.from_numpy(numbers), mixed(mixed(int(self.rounding_seed)) ^ self._step)
        self.adagrad_sum.index_copy_(0, rows, kernel.adagrad_sum[: len(rows)])
        at_once = max(NUMBERS_AT_ONCE // self.dim, 1)
        for first in range(0, len(rows), at_once):
            part = slice(first, min(first + at_once, len(rows)))
            rounded = round_by_chance(kernel.weight[part], chances(numbers[part], self.dim, key))
            self.weight.index_copy_(0, rows[part], rounded)
        self._in_work = None

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, also in the kernel of the current batch's rows."""
        super().set_learning_rate(rate)
        for kernel in self._kernel:
            kernel.set_learning_rate(rate)

    def set_step(self, step: int) -> None:
        """Set the step number, which determines the random numbers of the next rounding."""
        self._step = step

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the same initial weights as every other kind of table, rounded to nearest."""
        self.rounding_seed.fill_(generator.initial_seed() & (_ONE // 2 - 1))
        super().initialise(generator)

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Return the Adagrad sums and the seed of the stochastic rounding."""
        return {**super().optimizer_tensors(), "rounding_seed": self.rounding_seed}

    def _kernel_of(self, rows: int) -> EmbeddingTables:
        """Return a kernel with room for this number of rows."""
        if not self._kernel or self._kernel[0].rows[0] < rows:
            slots = max(FEWEST_SLOTS, 1 << (rows - 1).bit_length())
            self._kernel = ()  # release the old memory first
            kernel = build_embeddings(
                (slots,), self.dim, learning_rate=self.learning_rate, device=self.weight.device, kernel=self._kind
            )
            self._kernel = (kernel.train(),)
        return self._kernel[0]


class HalfOnGpu(FbgemmEmbeddings):
    """Tables in fp16 on a GPU, where FBGEMM's update rounds stochastically, with torch's random numbers."""

    can_be_recorded = False  # it is untested whether a replayed CUDA graph draws new random numbers
    _is_half = True

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Return True if the tables are stored in fp16 on a GPU.

        Raises:
            RequestError: fp16 on a GPU is requested, but FBGEMM is not installed for it.
        """
        if wanted.is_half and not super().suits(wanted):
            raise RequestError(
                f"Embedding tables in fp16 on {wanted.device} need the package fbgemm-gpu: install it, or "
                "leave out table_precision."
            )
        return wanted.is_half


def mixed(number: int) -> int:
    """Return a hash of an integer, 64 bits: similar numbers get unrelated hashes (last step of splitmix64)."""
    (_, words), *_ = hashed_words(np.array([0]), 1, number % _ONE)
    return int(words[0, 0])


def chances(rows: np.ndarray, dim: int, key: int) -> Tensor:
    """Return random numbers in [0, 1) for the given rows, float32 `[rows, dim]`, uniform over multiples of 2^-13.

    Args:
        rows: Row numbers, counted through all tables.
        dim: Width of a row.
        key: Hash key of the step and of the training run.
    """
    out = np.empty((len(rows), dim), np.float32)
    for first, words in hashed_words(rows, -(-dim // _WORD_NUMBERS), key):
        digits = words.view(np.uint16)[:, :dim] >> np.uint16(16 - _CHANCE_DIGITS)
        np.multiply(digits, np.float32(2.0**-_CHANCE_DIGITS), out=out[first : first + len(words)])
    return torch.from_numpy(out)


def round_by_chance(numbers: Tensor, chance: Tensor) -> Tensor:
    """Round to one of the two neighbours in fp16, so that the mean over all random numbers is the number itself.

    This is exact for magnitudes of at least 2^-14; the error for smaller numbers is at most 2^-13 of their fp16
    spacing.

    Args:
        numbers: Numbers to round, float32.
        chance: Random numbers in [0, 1), float32 of the same shape. A number is rounded up if its random number is at
            least one minus its relative position between the two neighbours.

    Returns:
        Rounded numbers, float16; infinite beyond the largest fp16 number.
    """
    exponent = numbers.view(torch.int32) & (0xFF << _FLOAT_DIGITS)
    distance = exponent.clamp_(min=_SMALLEST_EXPONENT << _FLOAT_DIGITS).sub_(_DIGITS << _FLOAT_DIGITS)
    inverse = (254 << _FLOAT_DIGITS) - distance  # a power of two, like the distance
    below = (numbers * inverse.view(torch.float32)).add_(chance).floor_()
    return below.mul_(distance.view(torch.float32)).half()
