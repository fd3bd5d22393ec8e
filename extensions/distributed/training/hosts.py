"""Groups of processes within a host and across hosts of equal size, their traffic, and models divided over hosts.

All processes can also act together: a failure in one process is then raised in all.

A model whose layers are divided over hosts averages gradients and gathers weights by its own methods.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch import distributed as dist

from shunter.engine.config import Hyperparameters
from shunter.errors import CheckpointError, RequestError, ShunterError
from shunter.extensions.distributed.tables.exchanged import exchanged
from shunter.extensions.distributed.training.plan import Machine
from shunter.models.recommender import Recommender
from shunter.models.spec import Features, ModelSpec

Link = Literal["intra", "cross"]
Phase = Literal["ids", "forward", "backward"]


@dataclass(frozen=True)
class Traffic:
    """Bytes that this process has sent, by phase and link: within its host, or across hosts.

    Data for the process itself and empty messages do not count.
    """

    sent_bytes: Counter[tuple[Phase, Link]] = field(default_factory=Counter)
    messages: Counter[tuple[Phase, Link]] = field(default_factory=Counter)

    def add(self, phase: Phase, link: Link, size_bytes: int) -> None:
        """Count one message."""
        if size_bytes:
            self.sent_bytes[phase, link] += size_bytes
            self.messages[phase, link] += 1


class Members:
    """Group of processes that exchange data and count the traffic."""

    def __init__(self, ranks: Sequence[int], hosts: "Hosts") -> None:
        self.ranks = tuple(ranks)
        self._hosts = hosts
        self._group = dist.new_group(list(ranks)) if len(ranks) > 1 else None

    def all_to_all(self, sent: Tensor, send_sizes: Sequence[int], receive_sizes: Sequence[int], phase: Phase) -> Tensor:
        """Send each member its part of a flat tensor, and receive a part from each member; sizes are in elements."""
        hosts = self._hosts
        for rank, size in zip(self.ranks, send_sizes, strict=True):
            if rank != hosts.rank:
                link: Link = "intra" if rank // hosts.processes_per_host == hosts.host else "cross"
                hosts.traffic.add(phase, link, size * sent.element_size())
        if self._group is None:
            return sent.clone()
        return exchanged(sent, send_sizes, receive_sizes, self._group)

    def sum(self, tensor: Tensor) -> None:
        """Add up a tensor over the members, in place."""
        if self._group is not None:
            dist.all_reduce(tensor, group=self._group)


class Hosts:
    """Processes of torch's default group, host by host; all processes construct this together.

    Args:
        processes_per_host: Processes on each host, a divisor of the number of processes.

    Attributes:
        local_rank: Index of this process within its host.
        count: Number of the hosts.
        local_members: Processes of this host.
        peers: Processes with the same index on every host.
        traffic: Messages that this process has sent.

    Raises:
        RequestError: the processes cannot be divided evenly into hosts.
    """

    def __init__(self, processes_per_host: int) -> None:
        processes = dist.get_world_size()
        if processes_per_host < 1 or processes % processes_per_host:
            raise RequestError(
                f"{processes} processes cannot be divided into hosts of {processes_per_host} each: "
                "use a divisor of their number."
            )
        self.processes_per_host = processes_per_host
        self.rank, self.count = dist.get_rank(), processes // processes_per_host
        self.host, self.local_rank = divmod(self.rank, processes_per_host)
        self.traffic = Traffic()
        # All processes must make all groups, in the same order.
        by_host = [range(host * processes_per_host, (host + 1) * processes_per_host) for host in range(self.count)]
        by_place = [range(place, processes, processes_per_host) for place in range(processes_per_host)]
        self.everyone = Members(range(processes), self)
        self.local_members = [Members(ranks, self) for ranks in by_host][self.host]
        self.peers = [Members(ranks, self) for ranks in by_place][self.local_rank]


def exchange(sent: Tensor, members: Members, send_sizes: Sequence[int], receive_sizes: Sequence[int]) -> Tensor:
    """Exchange by `Members.all_to_all` with a gradient; all members must run the backward pass as well."""
    return _Exchange.apply(sent, members, tuple(send_sizes), tuple(receive_sizes))  # pyright: ignore[reportReturnType]


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, sent: Tensor, members: Members, send_sizes: tuple[int, ...], receive_sizes: tuple[int, ...]
    ) -> Tensor:
        ctx.members, ctx.send_sizes, ctx.receive_sizes = members, send_sizes, receive_sizes
        return members.all_to_all(sent, send_sizes, receive_sizes, "forward")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        returned = ctx.members.all_to_all(gradients[0], ctx.receive_sizes, ctx.send_sizes, "backward")
        return returned, None, None, None


def from_all(value: Any, group: dist.ProcessGroup | None = None) -> Sequence[Any]:
    """Gather a small value from every process of a group; return the values in the order of the ranks.

    Args:
        value: Value of this process; it must be picklable.
        group: Process group; None is the group of all processes.
    """
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value, group=group)
    return values


def all_do(work: Callable[[], None], group: dist.ProcessGroup | None = None) -> None:
    """Run a function in every process, and wait until all have run it.

    Raises:
        ShunterError: The function failed in a process; the error of the first failed process is raised in all.
    """
    problem = None
    try:
        work()
    except ShunterError as error:
        problem = error
    except OSError as error:
        problem = CheckpointError(f"The checkpoint cannot be written ({error}): free the disk, then train again.")
    problems = [error for error in from_all(problem, group) if error is not None]
    if problems:
        raise problems[0]


class HostModel(Recommender):
    """Recommender whose layers are divided among hosts; the capability `host_model` of a family names its class."""

    @classmethod
    @abstractmethod
    def can_be_divided(
        cls, spec: ModelSpec, features: Features, hyperparameters: Hyperparameters, processes_per_host: int
    ) -> bool:
        """Return True if the processes of torch's default group can train a divided model."""

    @classmethod
    @abstractmethod
    def build(
        cls,
        spec: ModelSpec,
        features: Features,
        hyperparameters: Hyperparameters,
        device: torch.device,
        *,
        seed: int,
        processes_per_host: int,
        machine: Machine,
    ) -> Self:
        """Build the model with the initial weights of a single process; see `can_be_divided`.

        Raises:
            InfeasibleError: The tables of a process do not fit into its memory.
        """

    @abstractmethod
    def average_gradients(self) -> None:
        """Average the gradients over the whole batch."""

    @abstractmethod
    def gather_layers(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Copy the weights of each layer, and their optimizer state, from its host to all processes."""
