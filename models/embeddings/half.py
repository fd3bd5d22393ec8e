"""Embedding tables that are kept in fp16, and learn in fp32: half the memory of the rows.

    fp16            weight [rows, dim]              sums [rows] in fp32
        | widen, exact      ^ round by chance
        v                   |
    fp32            the distinct rows of one batch, in a kernel in memory: lookup, gradients and row-wise Adagrad

Rounded to nearest, a row would not move at all by updates of less than half of the distance to the next number. Rounded
by chance, up with a probability that is the share of the distance, it moves by them in the mean (Gupta et al., "Deep
Learning with Limited Numerical Precision", ICML 2015; of tables: Zhang et al., "Training with Low-precision Embedding
Tables", 2018).

The chance is a hash of seed, step and row. So neither the order of the batches that are read ahead, nor a resumption
changes it.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from shunter.errors import RequestError
from shunter.models.embeddings.fbgemm_kernel import FbgemmEmbeddings
from shunter.models.embeddings.initial_weights import hashed_words
from shunter.models.embeddings.mapped import sum_of_rows
from shunter.models.embeddings.pooled import build_embeddings
from shunter.models.embeddings.request import Kernel, TableRequest
from shunter.models.embeddings.role import EmbeddingTables

FEWEST_SLOTS = 1 << 10  # of the kernel; twice as many each time that a batch has more rows
NUMBERS_AT_ONCE = 1 << 16  # are rounded within the caches of a processor
# An fp16 number has 10 digits behind the first one; those below 2^-14 lie as far apart as those above it.
_DIGITS, _SMALLEST_EXPONENT = 10, 127 - 14
_FLOAT_DIGITS = 23
_CHANCE_DIGITS = _FLOAT_DIGITS - _DIGITS  # what an fp32 number has beyond fp16: with as many every sum below is exact
_WORD_NUMBERS = 4  # of a hashed word, 16 bits each
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
        rounding_seed: int64 `[1]`, which tells the chance of this training from that of others.
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
        self._kernel: tuple[EmbeddingTables, ...] = ()  # not part of the module tree: what is saved are the tables
        self._step = 0
        self._in_work: np.ndarray | None = None

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Whether the tables are kept in fp16 on a processor.

        Raises:
            RequestError: They are to be kept in fp16, and are not of one width in memory.
        """
        if wanted.is_half and wanted.cache is not None:
            raise RequestError(
                "Embedding tables in fp16 lie in memory and not in a file: leave out table_precision, or "
                "--embedding-memory."
            )
        if wanted.is_half and wanted.is_mixed:
            raise RequestError(
                "Embedding tables in fp16 are of one width with a row for each id: leave out table_precision, or "
                "table_dims and table_shares."
            )
        return wanted.is_half and wanted.device.type == "cpu"

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build uninitialised tables."""
        return cls(
            wanted.rows,
            wanted.dim,
            learning_rate=wanted.learning_rate,
            kernel=wanted.kernel,
            table_of=wanted.table_of,
        )

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag."""
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
        """Round what was learned by chance, and lay it into the tables."""
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
        """Also in the kernel of the rows in work."""
        super().set_learning_rate(rate)
        for kernel in self._kernel:
            kernel.set_learning_rate(rate)

    def set_step(self, step: int) -> None:
        """Let the next step round by the chance of this number."""
        self._step = step

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the tables as every kind does, rounded to nearest."""
        self.rounding_seed.fill_(generator.initial_seed() & (_ONE // 2 - 1))
        super().initialise(generator)

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The sums, and what the chance goes by beside the step."""
        return {**super().optimizer_tensors(), "rounding_seed": self.rounding_seed}

    def _kernel_of(self, rows: int) -> EmbeddingTables:
        """A kernel with room for so many rows."""
        if not self._kernel or self._kernel[0].rows[0] < rows:
            slots = max(FEWEST_SLOTS, 1 << (rows - 1).bit_length())
            self._kernel = ()  # let go of first
            kernel = build_embeddings(
                (slots,), self.dim, learning_rate=self.learning_rate, device=self.weight.device, kernel=self._kind
            )
            self._kernel = (kernel.train(),)
        return self._kernel[0]


class HalfOnGpu(FbgemmEmbeddings):
    """Tables in fp16 on a GPU, where FBGEMM's update itself rounds by chance, with torch's random numbers."""

    can_be_recorded = False  # whether a graph draws anew each time has not been tried
    _is_half = True

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Whether the tables are kept in fp16 on a GPU.

        Raises:
            RequestError: They are, and FBGEMM is not installed for it.
        """
        if wanted.is_half and not super().suits(wanted):
            raise RequestError(
                f"Embedding tables in fp16 on {wanted.device} are FBGEMM's: install fbgemm-gpu, or leave out "
                "table_precision."
            )
        return wanted.is_half


def mixed(number: int) -> int:
    """A whole number of 64 bits by which neighbours are told apart in every bit (the last step of splitmix64)."""
    (_, words), *_ = hashed_words(np.array([0]), 1, number % _ONE)
    return int(words[0, 0])


def chances(rows: np.ndarray, dim: int, key: int) -> Tensor:
    """A number from 0 up to 1 for each number of some rows, float32 `[rows, dim]`; each of 2^13 as likely as another.

    Args:
        rows: Their numbers, through all tables.
        dim: Width of a row.
        key: Tells steps and trainings apart.
    """
    out = np.empty((len(rows), dim), np.float32)
    for first, words in hashed_words(rows, -(-dim // _WORD_NUMBERS), key):
        digits = words.view(np.uint16)[:, :dim] >> np.uint16(16 - _CHANCE_DIGITS)
        np.multiply(digits, np.float32(2.0**-_CHANCE_DIGITS), out=out[first : first + len(words)])
    return torch.from_numpy(out)


def round_by_chance(numbers: Tensor, chance: Tensor) -> Tensor:
    """Round to one of the two neighbours in fp16, so that the mean over all chances is the number itself.

    It is for all numbers from 2^-14 on; of smaller ones, which lie 2^-24 apart, to 2^-13 of that.

    Args:
        numbers: float32.
        chance: float32 of the same shape, from 0 up to 1: the next number above is taken where it is at least one minus
            the share of the distance.

    Returns:
        float16; infinite beyond the largest number.
    """
    exponent = numbers.view(torch.int32) & (0xFF << _FLOAT_DIGITS)
    distance = exponent.clamp_(min=_SMALLEST_EXPONENT << _FLOAT_DIGITS).sub_(_DIGITS << _FLOAT_DIGITS)
    inverse = (254 << _FLOAT_DIGITS) - distance  # a power of two, as the distance is
    below = (numbers * inverse.view(torch.float32)).add_(chance).floor_()
    return below.mul_(distance.view(torch.float32)).half()
