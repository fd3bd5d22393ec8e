"""Memory that the processes of one machine write for each other, instead of sending it through sockets."""

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
    """A piece of memory of each process of torch's default group, which all others read.

    A step of work with it is: write into `own()`, `meet()`, read from `of(rank)`. There are two pieces of each process,
    used in turn: who writes the next has met all who have read the one before it, so that nobody waits a second time.
    The memory belongs to no file, and is gone with the last process.

    Every process calls each method at the same time, with the same arguments but for ranks. `offered` says whether
    there can be any.
    """

    def __init__(self) -> None:
        self._rank, self._count = dist.get_rank(), dist.get_world_size()
        self._pieces: list[Tensor] = []
        self._turn = 0
        self._together(_SMALLEST_BYTES)

    @classmethod
    def offered(cls) -> "SharedMemory | None":
        """Shared memory, where all processes are of one machine that lets them have it; None in all where not.

        A group that is not plain gloo's counts what it sends, or sends it as over a network
        (`shunter.extensions.stalls.linked`).
        """
        if not hasattr(os, "memfd_create") or dist.get_backend() != "gloo":
            return None
        places: list[tuple[str, ...] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(places, _place())
        if places[0] is None or any(place != places[0] for place in places):
            return None
        try:
            return cls()
        except OSError:  # in all: see `_together`
            return None

    def reserve(self, floats: int) -> None:
        """Let each piece hold at least so many numbers; what was written before is lost where it has to grow."""
        if 2 * 4 * floats > self._pieces[0].nbytes:
            self._together(2 * 4 * floats)

    def own(self) -> Tensor:
        """The float32 numbers that this process writes."""
        return self.of(self._rank)

    def of(self, rank: int) -> Tensor:
        """The float32 numbers that a process writes, or has written when all have met."""
        return self._pieces[rank].chunk(2)[self._turn]

    def meet(self) -> None:
        """Wait until all have written."""
        dist.barrier()

    def turn(self) -> None:
        """Go on to the other piece; what has been read is free to be written the turn after the next."""
        self._turn = 1 - self._turn

    def _together(self, size: int) -> None:
        """Give every process memory of `size` bytes, and show it to all.

        Raises:
            OSError: It did not work in one; raised in all.
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
            dist.all_gather_object(problems, problem)  # after which nobody needs the descriptors
        finally:
            os.close(descriptor)
        for found in filter(None, problems):
            raise found
        self._pieces, self._turn = pieces, 0


def _place() -> tuple[str, ...] | None:
    """What processes have in common that see each other's memory; None where that cannot be told."""
    with suppress(OSError):
        return _HERE[0].read_text(), str(_HERE[1].readlink())
    return None


def _mapped(path: str, size: int) -> Tensor:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.float32)
    finally:
        os.close(descriptor)
