"""Cutting parameters into blocks: small dimensions merged, large ones split."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor


def merge_dimensions(shape: Sequence[int], limit: int) -> tuple[int, ...]:
    """Join neighbouring dimensions, the last ones first, as long as their product is at most `limit`.

    Dimensions of size 1 disappear; a scalar becomes a vector of one element, an empty tensor the shape `(0,)`.
    A convolution of shape (32, 3, 64, 64) becomes a matrix of (96, 4096) under a limit of 8192.
    """
    if prod(shape) == 0:
        return (0,)
    merged: list[int] = []
    for size in reversed([size for size in shape if size != 1]):
        if merged and merged[-1] * size <= limit:
            merged[-1] *= size
        else:
            merged.append(size)
    return tuple(reversed(merged)) or (1,)


def split_blocks(tensor: Tensor, limit: int) -> list[Tensor]:
    """The blocks of a tensor: no dimension larger than `limit`, each element in exactly one block.

    Returns:
        Views of a contiguous tensor, in row-major order of the grid of blocks; none for an empty tensor.
    """
    if tensor.numel() == 0:
        return []
    blocks = [tensor.reshape(merge_dimensions(tensor.shape, limit))]
    for dimension in range(blocks[0].dim()):
        blocks = [part for block in blocks for part in block.split(limit, dim=dimension)]
    return blocks


@dataclass(frozen=True, eq=False)
class Block:
    """One block of one parameter: where it lies, who works on it, and when.

    Attributes:
        group: Number of the parameter group, which has the options.
        parameter: The whole parameter.
        index: Position of the block in `split_blocks(parameter)`.
        shape: Shape of the block.
        slot: Which of every `root_every_steps` steps recomputes the inverse roots.
        owner: Rank that keeps the block's state and computes its search direction.
    """

    group: int
    parameter: Tensor
    index: int
    shape: tuple[int, ...]
    slot: int
    owner: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def step_operations(shape: Sequence[int]) -> int:
    """Floating-point operations of a step without roots: every factor is updated, and every root applied."""
    return 4 * prod(shape) * sum(shape)


def root_operations(shape: Sequence[int]) -> int:
    """Floating-point operations of the inverse roots, about: an eigendecomposition and a product for each factor."""
    return 10 * sum(size**3 for size in shape)
