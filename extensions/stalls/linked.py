"""A process group that counts what it sends, and can behave as if its processes were on many machines.

Over a link each operation takes in addition what its bytes would take on it: that is a simulation of a network on one
machine, deterministic but for the time of the operation itself. Nothing of it overlaps with computing.
"""

# Torch calls the methods by position; its stubs give the forms that users call.
# pyright: reportIncompatibleMethodOverride=false

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch import distributed as dist
from torch._C import _distributed_c10d as c10d

from shunter.hardware.devices.network import Link, transfer_seconds

BACKEND = "linked"
SPIN_SECONDS = 1e-3


def wait_precisely(seconds: float) -> None:
    """Sleep for most of a time and spin for the rest: a mere sleep wakes up late, by more than most messages take."""
    end = time.perf_counter() + seconds
    if seconds > 2 * SPIN_SECONDS:
        time.sleep(seconds - SPIN_SECONDS)
    while time.perf_counter() < end:
        pass


@dataclass
class Wire:
    """What all groups of a process send through.

    Attributes:
        link: over which messages travel; None adds no time.
        sleep: how the time of the link is spent.
        calls: collective operations so far, by kind.
        message_bytes: Bytes that this process has brought into them.
    """

    link: Link | None = None
    sleep: Callable[[float], None] = wait_precisely
    calls: Counter[str] = field(default_factory=Counter)
    message_bytes: Counter[str] = field(default_factory=Counter)

    def reset(self) -> None:
        """Count from zero."""
        self.calls.clear()
        self.message_bytes.clear()

    def send(self, operation: str, size: int, processes: int) -> None:
        """Count one operation, and spend the time that it takes on the link."""
        self.calls[operation] += 1
        self.message_bytes[operation] += size
        if self.link is not None:
            self.sleep(transfer_seconds(operation, size, processes, self.link))


class LinkedGroup(dist.ProcessGroup):
    """Passes every operation on to another group, and through a wire.

    Args:
        inner: the group that does the work.
        rank: Rank of this process.
        size: number of processes.
        wire: shared by all groups of the process.
    """

    def __init__(self, inner: Any, rank: int, size: int, wire: Wire) -> None:
        super().__init__(rank, size)  # pyright: ignore[reportCallIssue]
        self._inner, self._size, self._wire = inner, size, wire

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Sum over the processes."""
        work = self._inner.allreduce(tensors, opts or c10d.AllreduceOptions())
        return self._sent("all_reduce", tensors, work)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Sum many arrays over the processes."""
        work = self._inner.allreduce_coalesced(tensors, opts or c10d.AllreduceCoalescedOptions())
        return self._sent("all_reduce", tensors, work)

    def all_to_all_single(
        self, output: Tensor, message: Tensor, output_sizes: list[int], input_sizes: list[int], opts: Any = None
    ) -> Any:
        """Send a part to each process."""
        work = self._inner.alltoall_base(output, message, output_sizes, input_sizes, opts or c10d.AllToAllOptions())
        return self._sent("all_to_all", [message], work)

    def alltoall(self, outputs: list[Tensor], messages: list[Tensor], opts: Any = None) -> Any:
        """Send an array to each process."""
        work = self._inner.alltoall(outputs, messages, opts or c10d.AllToAllOptions())
        return self._sent("all_to_all", messages, work)

    def reduce_scatter(self, outputs: list[Tensor], messages: list[list[Tensor]], opts: Any = None) -> Any:
        """Sum over the processes, and keep a part."""
        work = self._inner.reduce_scatter(outputs, messages, opts or c10d.ReduceScatterOptions())
        return self._sent("reduce_scatter", [message for some in messages for message in some], work)

    def reduce_scatter_single(self, output: Tensor, message: Tensor, opts: Any = None) -> Any:
        """Sum over the processes, and keep a part, each in one array."""
        work = self._inner._reduce_scatter_base(output, message, opts or c10d.ReduceScatterOptions())
        return self._sent("reduce_scatter", [message], work)

    def allgather(self, outputs: list[list[Tensor]], messages: list[Tensor], opts: Any = None) -> Any:
        """Collect the arrays of all processes."""
        work = self._inner.allgather(outputs, messages, opts or c10d.AllgatherOptions())
        return self._sent("all_gather", messages, work)

    def all_gather_single(self, output: Tensor, message: Tensor, opts: Any = None) -> Any:
        """Collect the arrays of all processes in one."""
        work = self._inner._allgather_base(output, message, opts or c10d.AllgatherOptions())
        return self._sent("all_gather", [message], work)

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Give one process's array to all."""
        work = self._inner.broadcast(tensors, opts or c10d.BroadcastOptions())
        return self._sent("broadcast", tensors, work)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all processes; free of charge, since training has none."""
        return self._inner.barrier(opts or c10d.BarrierOptions())

    def size(self) -> int:
        """Number of processes."""
        return self._size

    @property
    def group_name(self) -> str:
        """Under which torch has registered the group."""
        return dist.distributed_c10d._world.pg_names[self]

    def getBackendName(self) -> str:  # noqa: N802
        """As torch asks for it."""
        return BACKEND

    def _sent(self, operation: str, messages: Sequence[Tensor], work: Any) -> Any:
        size = sum(message.numel() * message.element_size() for message in messages)
        if self._wire.link is not None:
            work.wait()
        self._wire.send(operation, size, self._size)
        return work


def register_backend(wire: Wire) -> None:
    """Let torch make groups of this kind, for `join_group(folder, BACKEND)`; once in a process."""

    def create(store: Any, rank: int, size: int, timeout: timedelta) -> LinkedGroup:
        return LinkedGroup(dist.ProcessGroupGloo(store, rank, size, timeout), rank, size, wire)

    dist.Backend.register_backend(BACKEND, create, devices=["cpu"])
