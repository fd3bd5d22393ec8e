"""Division of parameters into blocks, and their assignment to the processes of a group.

Small dimensions are merged and large ones are split. The processes gather the directions and states of all blocks.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from shunter.errors import CheckpointError, RequestError


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


def assign_greedily(costs: Sequence[float], loads: list[float]) -> list[int]:
    """Assign each item to the bin with the least load, costliest items first (Graham's longest-first rule).

    Args:
        costs: Costs of the items.
        loads: Loads of the bins so far, updated in place.

    Returns:
        Index of each item's bin; equal arguments give equal results on every process.
    """
    bins = [0] * len(costs)
    for item in sorted(range(len(costs)), key=lambda item: -costs[item]):
        chosen = min(range(len(loads)), key=loads.__getitem__)
        bins[item] = chosen
        loads[chosen] += costs[item]
    return bins


def lay_out(groups: Sequence[dict[str, Any]], ranks: int) -> list[Block]:
    """Divide all parameters into blocks, and assign a root step (slot) and an owner rank to each block.

    Additional groups at the end do not change the blocks of earlier groups. Slots do not depend on the number of ranks.

    Args:
        groups: Parameter groups of the optimizer.
        ranks: Number of processes.
    """
    loads = [0.0] * ranks
    blocks: list[Block] = []
    for number, group in enumerate(groups):
        every = group["root_every_steps"]
        places = [
            (parameter, index, tuple(part.shape))
            for parameter in group["params"]
            for index, part in enumerate(split_blocks(parameter.detach(), group["max_block_size"]))
        ]
        roots = [root_operations(shape) for _, _, shape in places]
        costs = [step_operations(shape) + root / every for (_, _, shape), root in zip(places, roots, strict=True)]
        turns = min(every, len(roots)) if group["stagger"] else 1
        slots = [turn * every // turns for turn in assign_greedily(roots, [0.0] * turns)]
        owners = assign_greedily(costs, loads)
        for (parameter, index, shape), slot, owner in zip(places, slots, owners, strict=True):
            blocks.append(Block(number, parameter, index, shape, slot, owner))
    return blocks


class Ranks:
    """Processes that share the state of an optimizer; a single process if torch.distributed is not initialised.

    Args:
        group: Process group; all processes by default.

    Attributes:
        rank: Rank of this process in the group.
        count: Number of processes.

    Raises:
        RequestError: This process does not belong to the group.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        is_distributed = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank(group) if is_distributed else 0
        self.count = dist.get_world_size(group) if is_distributed else 1
        if self.rank < 0:
            raise RequestError("This process is not in Shampoo's process group: give it a group that it belongs to.")

    def exchange(self, blocks: Sequence[Block], directions: Mapping[Block, Tensor]) -> dict[Block, Tensor]:
        """Send the directions of all blocks to every process, in one all-gather of a flat buffer.

        The buffer's layout depends only on the blocks, whether or not they have a gradient in this step.

        Args:
            blocks: All blocks, in an order that is equal on every process.
            directions: Directions of this process's blocks; a missing direction is sent as zeros.

        Returns:
            Direction of each block.
        """
        if self.count == 1:
            return dict(directions)
        like = blocks[0].parameter
        owned = [[block for block in blocks if block.owner == rank] for rank in range(self.count)]
        length = max(sum(block.elements for block in part) for part in owned)
        sent = like.new_zeros(length)
        for block, part in self._parts(owned[self.rank], sent).items():
            if block in directions:
                part.copy_(directions[block])
        received = like.new_empty(self.count * length)
        dist.all_gather_into_tensor(received, sent, group=self.group)
        gathered: dict[Block, Tensor] = {}
        for rank in range(self.count):
            gathered |= self._parts(owned[rank], received[rank * length :])
        return gathered

    def join(self, state: dict[str, Any]) -> dict[str, Any] | None:
        """Gather the state dicts of all ranks on the CPU of the first rank and merge them; None on other ranks."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        # Serialised to bytes, so that tensors arrive on the CPU and not on the sender's device.
        parts: list[Any] | None = [buffer.getvalue()]
        if self.count > 1:
            parts = [None] * self.count if self.rank == 0 else None
            dist.gather_object(buffer.getvalue(), parts, group=self.group, group_dst=0)
        if parts is None:
            return None
        return merge_state_dicts([torch.load(io.BytesIO(part), map_location="cpu") for part in parts])

    @staticmethod
    def _parts(blocks: Sequence[Block], buffer: Tensor) -> dict[Block, Tensor]:
        """Return views of a flat buffer, one per block."""
        used = buffer[: sum(block.elements for block in blocks)]
        pieces = used.split([block.elements for block in blocks])
        return {block: piece.view(block.shape) for block, piece in zip(blocks, pieces, strict=True)}


def merge_state_dicts(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the state dicts that the ranks of one run saved, to restart on another number of processes.

    Raises:
        CheckpointError: The state dicts are not those of all ranks of one run.
    """
    found = sorted((part["part"]["ranks"], part["part"]["rank"]) for part in parts)
    if not parts or found != [(len(parts), rank) for rank in range(len(parts))]:
        listed = ", ".join(f"{rank} of {ranks}" for ranks, rank in found)
        raise CheckpointError(
            f"One part of the Shampoo state from every rank was expected but these were found: {listed or 'none'}; "
            "give the parts of all ranks of one run."
        )
    state: dict[int, dict[int, Any]] = {}
    for part in parts:
        for parameter, blocks in part["state"].items():
            state.setdefault(parameter, {}).update(blocks)
    return {"state": state, "param_groups": parts[0]["param_groups"], "part": {"rank": 0, "ranks": 1}}
