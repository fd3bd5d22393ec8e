"""Process group that counts its messages, and can simulate a network between its processes.

With a link, each operation also takes the time that its bytes would take on that link. This simulates a network on one
machine, deterministically except for the time of the operation itself. Communication never overlaps with compute.
"""

# Torch calls the methods with positional arguments; its stubs declare the forms that users call.
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

from shunter.extensions.distributed.links.communication import Link, transfer_seconds

BACKEND = "linked"
SPIN_SECONDS = 1e-3


def wait_precisely(seconds: float) -> None:
    """Sleep for most of `seconds` and spin for the rest: a sleep alone overshoots by more than most messages take."""
    end = time.perf_counter() + seconds
    if seconds > 2 * SPIN_SECONDS:
        time.sleep(seconds - SPIN_SECONDS)
    while time.perf_counter() < end:
        pass


@dataclass
class Wire:
    """Channel through which all groups of a process send.

    Attributes:
        link: Simulated link of the messages; None adds no time.
        sleep: Function that waits for the time of the link.
        calls: Number of collective operations so far, by kind.
        message_bytes: Bytes of this process's inputs to these operations, by kind.
    """

    link: Link | None = None
    sleep: Callable[[float], None] = wait_precisely
    calls: Counter[str] = field(default_factory=Counter)
    message_bytes: Counter[str] = field(default_factory=Counter)

    def reset(self) -> None:
        """Reset the counts of operations and bytes to zero."""
        self.calls.clear()
        self.message_bytes.clear()

    def send(self, operation: str, size: int, processes: int) -> None:
        """Count one operation, and wait for the time that it takes on the link."""
        self.calls[operation] += 1
        self.message_bytes[operation] += size
        if self.link is not None:
            self.sleep(transfer_seconds(operation, size, processes, self.link))


class LinkedGroup(dist.ProcessGroup):
    """Process group that passes every operation on to another group and counts it on a wire.

    Args:
        inner: Group that executes the operations.
        rank: Rank of this process.
        size: Number of processes.
        wire: Wire that all groups of the process share.
    """

    def __init__(self, inner: Any, rank: int, size: int, wire: Wire) -> None:
        super().__init__(rank, size)  # pyright: ignore[reportCallIssue]
        self._inner, self._size, self._wire = inner, size, wire

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Sum a tensor over the processes."""
        work = self._inner.allreduce(tensors, opts or c10d.AllreduceOptions())
        return self._sent("all_reduce", tensors, work)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Sum many tensors over the processes."""
        work = self._inner.allreduce_coalesced(tensors, opts or c10d.AllreduceCoalescedOptions())
        return self._sent("all_reduce", tensors, work)

    def all_to_all_single(
        self, output: Tensor, message: Tensor, output_sizes: list[int], input_sizes: list[int], opts: Any = None
    ) -> Any:
        """Send one part of a tensor to each process."""
        work = self._inner.alltoall_base(output, message, output_sizes, input_sizes, opts or c10d.AllToAllOptions())
        return self._sent("all_to_all", [message], work)

    def alltoall(self, outputs: list[Tensor], messages: list[Tensor], opts: Any = None) -> Any:
        """Send one tensor to each process."""
        work = self._inner.alltoall(outputs, messages, opts or c10d.AllToAllOptions())
        return self._sent("all_to_all", messages, work)

    def reduce_scatter(self, outputs: list[Tensor], messages: list[list[Tensor]], opts: Any = None) -> Any:
        """Sum over the processes, and return one part of the sum to each."""
        work = self._inner.reduce_scatter(outputs, messages, opts or c10d.ReduceScatterOptions())
        return self._sent("reduce_scatter", [message for some in messages for message in some], work)

    def reduce_scatter_single(self, output: Tensor, message: Tensor, opts: Any = None) -> Any:
        """Sum over the processes, and return one part of the sum to each; with one tensor for all parts."""
        work = self._inner._reduce_scatter_base(output, message, opts or c10d.ReduceScatterOptions())
        return self._sent("reduce_scatter", [message], work)

    def allgather(self, outputs: list[list[Tensor]], messages: list[Tensor], opts: Any = None) -> Any:
        """Collect the tensors of all processes."""
        work = self._inner.allgather(outputs, messages, opts or c10d.AllgatherOptions())
        return self._sent("all_gather", messages, work)

    def all_gather_single(self, output: Tensor, message: Tensor, opts: Any = None) -> Any:
        """Collect the tensors of all processes in one tensor."""
        work = self._inner._allgather_base(output, message, opts or c10d.AllgatherOptions())
        return self._sent("all_gather", [message], work)

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Send one process's tensor to all processes."""
        work = self._inner.broadcast(tensors, opts or c10d.BroadcastOptions())
        return self._sent("broadcast", tensors, work)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all processes; takes no simulated time, since training has no barriers."""
        return self._inner.barrier(opts or c10d.BarrierOptions())

    def size(self) -> int:
        """Return the number of processes."""
        return self._size

    @property
    def group_name(self) -> str:
        """Name under which torch has registered the group."""
        return dist.distributed_c10d._world.pg_names[self]

    def getBackendName(self) -> str:  # noqa: N802
        """Return the backend name under the method name that torch calls."""
        return BACKEND

    def _sent(self, operation: str, messages: Sequence[Tensor], work: Any) -> Any:
        size = sum(message.numel() * message.element_size() for message in messages)
        if self._wire.link is not None:
            work.wait()
        self._wire.send(operation, size, self._size)
        return work


def register_backend(wire: Wire) -> None:
    """Register this kind of group with torch, for `join_group(folder, BACKEND)`; call once per process."""

    def create(store: Any, rank: int, size: int, timeout: timedelta) -> LinkedGroup:
        return LinkedGroup(dist.ProcessGroupGloo(store, rank, size, timeout), rank, size, wire)

    dist.Backend.register_backend(BACKEND, create, devices=["cpu"])
