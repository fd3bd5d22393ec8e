"""Shared memory through which the processes of one machine exchange data, instead of sockets."""

import mmap
import os
from contextlib import suppress
from pathlib import Path

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
        places: list[tuple[str, ...] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(places, _memory_identity())
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


def _memory_identity() -> tuple[str, ...] | None:
    """Return an identity shared by processes that can see each other's memory; None if it is unknown."""
    with suppress(OSError):
        return _HERE[0].read_text(), str(_HERE[1].readlink())
    return None


def _mapped(path: str, size: int) -> Tensor:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.float32)
    finally:
        os.close(descriptor)
