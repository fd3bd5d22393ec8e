"""Exchange of pooled vectors and their gradients through memory that the processes of one machine share.

This replaces TorchRec's communication between lookup and layers. TorchRec uses an all-to-all for tables divided by
table or column, a sum over the processes for tables divided by row, and a reordering of columns. Each of these copies
the vectors. Here an owner writes the vectors of other processes' samples once, and each process copies the vectors of
its samples to where the layers read them. Gradients are sent back in the same way. The results are equal; sums are
added in the order of the processes.
"""

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

_HERE = (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid"))
_SMALLEST_BYTES = mmap.PAGESIZE


class SharedMemory:
    """Memory of each process of torch's default group that all other processes can read.

    One exchange is: write into `own()`, `meet()`, read from `of(rank)`, `turn()`. Each process has two pieces of
    memory, used alternately. All readers of a piece have passed the next `meet()` before the piece is overwritten, so
    one `meet()` per exchange is enough. The memory has no file, and is freed with the last process.

    Every process must call each method at the same time, with the same arguments except ranks. `offered` returns None
    if shared memory is not available.
    """

    def __init__(self) -> None:
        self._rank, self._count = dist.get_rank(), dist.get_world_size()
        self._pieces: list[Tensor] = []
        self._turn = 0
        self._together(_SMALLEST_BYTES)

    @classmethod
    def offered(cls) -> "SharedMemory | None":
        """Return shared memory if all processes are on one machine that supports it; else None, in all processes.

        Groups other than plain gloo are excluded, since they count sent bytes or simulate a network
        (`shunter.extensions.stalls.linked`).
        """
        if not hasattr(os, "memfd_create") or dist.get_backend() != "gloo":
            return None
        own = None  # an identity shared by processes that can see each other's memory; None if unknown
        with suppress(OSError):
            own = _HERE[0].read_text(), str(_HERE[1].readlink())
        places: list[tuple[str, ...] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(places, own)
        if places[0] is None or any(place != places[0] for place in places):
            return None
        try:
            return cls()
        except OSError:  # raised in all processes: see `_together`
            return None

    def reserve(self, floats: int) -> None:
        """Reserve room for at least a given number of floats; growing the shared memory discards its content."""
        if 2 * 4 * floats > self._pieces[0].nbytes:
            self._together(2 * 4 * floats)

    def own(self) -> Tensor:
        """Return the array of float32 numbers that this process writes."""
        return self.of(self._rank)

    def of(self, rank: int) -> Tensor:
        """Return the float32 numbers of a process, which are complete after `meet`."""
        return self._pieces[rank].chunk(2)[self._turn]

    def meet(self) -> None:
        """Wait until all processes have written to the shared memory."""
        dist.barrier()

    def turn(self) -> None:
        """Switch to the other piece; the piece that was just read may be overwritten after the next exchange."""
        self._turn = 1 - self._turn

    def _together(self, size: int) -> None:
        """Allocate memory of `size` bytes in every process, and map it in all processes.

        Raises:
            OSError: The allocation failed in a process; raised in all processes.
        """
        descriptor = os.memfd_create("shunter-vectors")
        pieces, problem = [], None
        try:
            os.ftruncate(descriptor, size)
            shown: list[tuple[int, int] | None] = [None] * self._count
            dist.all_gather_object(shown, (os.getpid(), descriptor))
            try:
                pieces = [_mapped(f"/proc/{pid}/fd/{number}", size) for pid, number in filter(None, shown)]
            except OSError as error:
                problem = error
            problems: list[OSError | None] = [None] * self._count
            dist.all_gather_object(problems, problem)  # the descriptors are not needed after this
        finally:
            os.close(descriptor)
        for found in filter(None, problems):
            raise found
        self._pieces, self._turn = pieces, 0


def _mapped(path: str, size: int) -> Tensor:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.float32)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Part:
    """Tables of one sharding type, which TorchRec looks up together.

    Attributes:
        widths: Columns that each process looks up, for the samples of all processes; equal everywhere if the part is
            summed or local.
        is_summed: Whether each process has a share of every column and the shares are summed: tables divided by row.
        is_local: Whether each process looks up only its own samples: tables with a copy in every process.
    """

    widths: tuple[int, ...]
    is_summed: bool = False
    is_local: bool = False

    @property
    def columns(self) -> int:
        """Number of output columns of the part."""
        return self.widths[0] if self.is_summed or self.is_local else sum(self.widths)


@dataclass(frozen=True)
class _Run:
    """Adjacent columns of the output that come from one process.

    The owner looks up the columns (0: all processes do); they begin at `start` in its lookup, at `first` in the output.
    """

    part: int
    owner: int
    start: int
    first: int
    width: int


class SharedVectors:
    """Exchange of pooled vectors; every process must call it at the same time, with equal numbers of samples.

    Args:
        memory: Shared memory of the processes.
        parts: Parts of the lookup.
        order: For each output column its index in the concatenated columns of all parts, where each part is ordered
            by owner.
    """

    def __init__(self, memory: SharedMemory, parts: Sequence[Part], order: Sequence[int]) -> None:
        self.memory, self.parts = memory, tuple(parts)
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.columns = len(order)
        self._runs = _runs(self.parts, order)

    def __call__(self, vectors: Sequence[Tensor], samples: int) -> Tensor:
        """Return the vectors of this process's samples, `[samples, columns]`.

        Args:
            vectors: Lookup of this process for each part: `[samples of all processes, columns]` in the order of the
                processes, or `[samples, columns]` for a local part. A part without columns may have any shape.
            samples: Samples of each process.
        """
        return _Exchange.apply(self, samples, *vectors)  # pyright: ignore[reportReturnType]

    def gathered(self, vectors: Sequence[Tensor], samples: int) -> Tensor:
        """Return the vectors of this process's samples, without a gradient; arguments as of `__call__`."""
        memory, own = self.memory, self._rows(self.rank, samples)
        memory.reserve(self._floats(samples))
        there = [self._of_owner(rank, samples) for rank in range(self.count)]
        for mine, found in zip(there[self.rank], vectors, strict=True):
            if mine is not None:
                mine[: own.start] = found[: own.start]
                mine[own.stop :] = found[own.stop :]
        memory.meet()
        gathered = vectors[0].new_empty(samples, self.columns)
        for run in self._runs:
            part, place = self.parts[run.part], gathered[:, run.first : run.first + run.width]
            columns = slice(run.start, run.start + run.width)
            if part.is_local:
                place.copy_(vectors[run.part][:, columns])
                continue
            owners = range(self.count) if part.is_summed else (run.owner,)
            for owner in owners:
                source = vectors[run.part] if owner == self.rank else there[owner][run.part]
                assert source is not None, "only the owner of columns writes them"
                if owner == owners[0]:
                    place.copy_(source[own, columns])
                else:
                    place += source[own, columns]
        memory.turn()
        return gathered

    def returned(self, gradient: Tensor, like: Sequence[tuple[int, ...]], samples: int) -> list[Tensor]:
        """Return the gradient of each part's vectors, of the shapes `like`, averaged over the processes as in TorchRec.

        `gradient` is that of the result of `gathered`.
        """
        memory = self.memory
        memory.reserve(self._floats(samples))
        there = [self._of_reader(rank, samples) for rank in range(self.count)]
        for run in self._runs:
            part = self.parts[run.part]
            mine = there[self.rank][run.part, run.owner] if not part.is_local else None
            if mine is not None and (part.is_summed or run.owner != self.rank):
                mine[:, run.start : run.start + run.width] = gradient[:, run.first : run.first + run.width]
        memory.meet()
        results = [
            gradient.new_zeros(shape) if not width else gradient.new_empty(shape)
            for shape, width in zip(like, (part.widths[self.rank] for part in self.parts), strict=True)
        ]
        for number, (part, result) in enumerate(zip(self.parts, results, strict=True)):
            if part.is_local or not part.widths[self.rank]:
                continue
            for rank in range(self.count):
                if rank != self.rank:
                    sent = there[rank][number, 0 if part.is_summed else self.rank]
                    torch.div(sent, self.count, out=result[self._rows(rank, samples)])
        own = self._rows(self.rank, samples)
        for run in self._runs:
            part, columns = self.parts[run.part], slice(run.start, run.start + run.width)
            source = gradient[:, run.first : run.first + run.width]
            if part.is_local:
                results[run.part][:, columns] = source
            elif part.is_summed or run.owner == self.rank:
                torch.div(source, self.count, out=results[run.part][own, columns])
        memory.turn()
        return results

    def _rows(self, rank: int, samples: int) -> slice:
        return slice(rank * samples, (rank + 1) * samples)

    def _floats(self, samples: int) -> int:
        """Return the largest number of floats that a process writes, in the forward or the backward pass."""
        exchanged = [part for part in self.parts if not part.is_local]
        forth = max(sum(part.widths[rank] for part in exchanged) for rank in range(self.count))
        return samples * max(self.count * forth, sum(part.columns for part in exchanged))

    def _of_owner(self, rank: int, samples: int) -> list[Tensor | None]:
        """Return for each part of the tables the buffer into which a process writes the vectors that it looked up.

        None for parts that are not exchanged, or have no columns in this process.
        """
        places: list[Tensor | None] = []
        memory, used = self.memory.of(rank), 0
        for part in self.parts:
            width = 0 if part.is_local else part.widths[rank]
            size = self.count * samples * width
            places.append(memory[used : used + size].view(-1, width) if width else None)
            used += size
        return places

    def _of_reader(self, rank: int, samples: int) -> dict[tuple[int, int], Tensor]:
        """Return the memory for the gradients of a process's samples, by part and owner of the columns."""
        places = {}
        memory, used = self.memory.of(rank), 0
        for number, part in enumerate(self.parts):
            widths = () if part.is_local else part.widths[:1] if part.is_summed else part.widths
            for owner, width in enumerate(widths):
                places[number, owner] = memory[used : used + samples * width].view(samples, width)
                used += samples * width
        return places


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shared: SharedVectors, samples: int, *vectors: Tensor) -> Tensor:
        ctx.shared, ctx.samples, ctx.like = shared, samples, [tuple(one.shape) for one in vectors]
        return shared.gathered(vectors, samples)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.shared.returned(gradients[0], ctx.like, ctx.samples)


def _runs(parts: Sequence[Part], order: Sequence[int]) -> list[_Run]:
    """Return the runs of adjacent columns, in output order."""
    blocks = []  # part, owner and width of adjacent columns
    for number, part in enumerate(parts):
        widths = part.widths[:1] if part.is_summed or part.is_local else part.widths
        blocks += [(number, owner, width) for owner, width in enumerate(widths)]
    bounds = [0, *accumulate(width for _, _, width in blocks)]
    block_of = [block for block, (_, _, width) in enumerate(blocks) for _ in range(width)]
    runs: list[_Run] = []
    for place, column in enumerate(order):
        block = block_of[column]
        if place and column == order[place - 1] + 1 and block == block_of[order[place - 1]]:
            last = runs[-1]
            runs[-1] = _Run(last.part, last.owner, last.start, last.first, last.width + 1)
        else:
            part, owner, _ = blocks[block]
            runs.append(_Run(part, owner, column - bounds[block], place, 1))
    return runs
