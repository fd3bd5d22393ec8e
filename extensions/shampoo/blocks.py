"""Division of parameters into blocks, by merging small dimensions and splitting large dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor


def merge_dimensions(shape: Sequence[int], limit: int) -> tuple[int, ...]:
    """Merge neighbouring dimensions, from the last dimension on, while their product is at most `limit`.

    Dimensions of size 1 are removed. A scalar gets the shape `(1,)`, an empty tensor the shape `(0,)`. For example, a
    convolution of shape (32, 3, 64, 64) becomes a matrix of (96, 4096) under a limit of 8192.
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
    """Split a tensor into blocks: no dimension exceeds `limit`, and each element is in exactly one block.

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
    """One block of one parameter, with the rank that owns it and the step at which its roots are recomputed.

    Attributes:
        group: Index of the parameter group, which has the options.
        parameter: Whole parameter.
        index: Index of the block in `split_blocks(parameter)`.
        shape: Shape of the block.
        slot: Offset within each `root_every_steps` steps at which the inverse roots are recomputed.
        owner: Rank that stores the block's state and computes its search direction.
    """

    group: int
    parameter: Tensor
    index: int
    shape: tuple[int, ...]
    slot: int
    owner: int

    @property
    def elements(self) -> int:
        """Number of elements of the block."""
        return prod(self.shape)


def step_operations(shape: Sequence[int]) -> int:
    """Count the floating-point operations of a step that updates and applies every factor but computes no roots."""
    return 4 * prod(shape) * sum(shape)


def root_operations(shape: Sequence[int]) -> int:
    """Estimate the floating-point operations of computing the roots: per factor an eigendecomposition and a product."""
    return 10 * sum(size**3 for size in shape)
