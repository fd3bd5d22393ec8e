"""Actors of a multi-process training on cluster nodes: one for each process; the first reports."""

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.executors.messages import Stop, Task, attended
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.libraries import load_libraries
from shunter.engine.results import TrainResult
from shunter.extensions.distributed.executors.process_group import machine_here
from shunter.extensions.distributed.executors.ray.data import find_dataset
from shunter.extensions.distributed.executors.ray.node_trainer import NodeTrainer
from shunter.extensions.distributed.executors.sharded_files import ShardedWatch, write_sharded
from shunter.extensions.distributed.executors.together import train_together
from shunter.extensions.distributed.links.processes import NETWORK_INTERFACES, interface_of
from shunter.extensions.distributed.training import Division, Sharding
from shunter.extensions.distributed.training.folders import Folders
from shunter.extensions.distributed.training.host_model import HostModel
from shunter.extensions.distributed.training.stored import gather_weights
from shunter.hardware.meters.meter import measure_energy
from shunter.model_families import MODEL_FAMILIES
from shunter.models.registry import build_model

MEET_SECONDS = 120.0  # longest wait for all processes to join
NO_MODEL: Any = None  # model of processes that return no weights


@dataclass(frozen=True)
class Membership:
    """Membership of one process in a group.

    Attributes:
        name: Unique name of the group.
        rank: Number of the process.
        keepers: For each process, the first rank on its node.
        host: Address at which the first process waits for the others.
        port: Port at the address.
    """

    name: str
    rank: int
    keepers: tuple[int, ...]
    host: str
    port: int

    @property
    def processes(self) -> int:
        """Return the number of all processes."""
        return len(self.keepers)

    @property
    def folders(self) -> Folders:
        """Return which processes share a folder: those of one node."""
        return Folders(self.keepers)

    @property
    def processes_per_node(self) -> int | None:
        """Return the number of processes per node if it is equal on all nodes, else None."""
        counts = {self.keepers.count(keeper) for keeper in self.keepers}
        return counts.pop() if len(counts) == 1 else None


class GroupTrainer(NodeTrainer):
    """Actor that trains on a node together with other processes of a group."""

    def __init__(self) -> None:
        super().__init__()
        self._listener: socket.socket | None = None
        self._member: Membership | None = None
        self._ended = threading.Event()

    def address(self) -> tuple[str, int]:
        """Open the rendezvous socket on the node's cluster address only, and return host and port."""
        import ray

        self._listener = socket.create_server((ray.util.get_node_ip_address(), 0))
        host, port = self._listener.getsockname()[:2]
        return host, port

    def join(self, member: Membership) -> None:
        """Set the membership of this process; called before `start`."""
        self._member = member

    def end(self, seconds: float) -> None:
        """Wait at most this many seconds for the training to end."""
        self._ended.wait(seconds)

    def _run(self, task: Task, files: Files) -> None:
        member = self._member
        assert member is not None, "the group is known"
        try:
            wants_model = task.wants_model and member.rank == 0
            self._send(attended(lambda: self._train_as(member, task, files), wants_model=wants_model))
        finally:
            self._ended.set()

    def _train_as(self, member: Membership, task: Task, files: Files) -> TrainResult:
        found = find_dataset(task.job.dataset)
        assert found is not None, "the data set was sent first"
        job = replace(task.job, dataset=replace(task.job.dataset, directory=found))
        load_libraries(job.execution.device)
        with _folder(member) as folder, measure_energy(job.execution.device, cores=task.cores) as meter:
            self._meter = meter
            given = task.checkpointing or Checkpointing(folder)
            checkpointing = replace(given, directory=folder)
            if files:
                write_sharded(files, folder, checkpointing.keeping.generations)
            with self._group(member, job.execution.device):
                return self._train_in_group(
                    member, job, checkpointing, task.division or Division(), wants_model=task.wants_model
                )

    def _train_in_group(
        self, member: Membership, job: ClickJob, checkpointing: Checkpointing, division: Division, *, wants_model: bool
    ) -> TrainResult:
        sharding = _agreed_sharding(member, job, division)
        if member.rank:
            figures, _ = train_together(job, Hooks(), checkpointing, sharding, read=None, folders=member.folders)
            return TrainResult(model=NO_MODEL, **vars(figures))
        send_checkpoint = self._sender(ShardedWatch(checkpointing.directory))
        hooks = self._hooks(send_checkpoint)
        try:
            figures, best = train_together(job, hooks, checkpointing, sharding, read=self._read, folders=member.folders)
        finally:
            send_checkpoint()
        if not wants_model:
            return TrainResult(model=NO_MODEL, **vars(figures))
        model = build_model(job.spec, job.dataset.features)
        gather_weights(best, model)
        return TrainResult(model=model, **vars(figures))

    def _read(self) -> Stop | None:
        return self._stop

    @contextmanager
    def _group(self, member: Membership, device: str) -> Iterator[None]:
        """Join torch's default group while the block runs: gloo over the nodes' network, and NCCL as well for GPUs."""
        import ray

        interface = interface_of(ray.util.get_node_ip_address())
        os.environ |= dict.fromkeys(NETWORK_INTERFACES, interface)
        # TorchRec sees all processes as one host: division by hosts would change the order of additions.
        os.environ |= {"RANK": str(member.rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(member.processes)}
        on_gpu = device.startswith("cuda")
        if on_gpu:
            torch.cuda.set_device(0)  # Ray shows each actor its own GPU alone
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            member.host,
            member.port,
            member.processes,
            is_master=member.rank == 0,
            timeout=timedelta(seconds=MEET_SECONDS),
            wait_for_workers=False,
            master_listen_fd=self._listener.detach() if self._listener else None,
        )
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=dist.PrefixStore(member.name, store),  # pyright: ignore[reportPrivateImportUsage]
            rank=member.rank,
            world_size=member.processes,
        )
        yield
        dist.barrier()  # no folder is removed while other processes read it
        dist.destroy_process_group()


@contextmanager
def _folder(member: Membership) -> Iterator[Path]:
    """Yield a folder shared by the group's processes of this node, closed to other users; the first rank removes it."""
    keeper = member.keepers[member.rank]
    folder = Path(tempfile.gettempdir()) / f"shunter-{member.name}-{keeper}"
    if keeper != member.rank:
        yield folder
        return
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _agreed_sharding(member: Membership, job: ClickJob, division: Division) -> Sharding:
    """Return the sharding constraints by the first process's measurements, broadcast to all processes."""
    agreed: list[Sharding | None] = [None]
    if member.rank == 0:
        sharing = member.keepers.count(0)
        per_node = member.processes_per_node
        host_model: type[HostModel] | None = MODEL_FAMILIES.load_part(job.spec.family, "host_model")
        by_hosts = (
            division.tables is None
            and per_node is not None
            and host_model is not None
            and host_model.can_be_divided(job.spec, job.dataset.features, job.hyperparameters, per_node)
        )
        machine = machine_here(job.execution.device, sharing)
        if sharing < len(member.keepers):  # this machine's link does not connect the nodes
            machine = replace(machine, link_bytes_per_second=None)
        hosts = per_node if by_hosts else None
        agreed = [
            Sharding(machine=machine, processes_per_node=hosts, given=division.tables, precision=division.precision)
        ]
    dist.broadcast_object_list(agreed, src=0)
    assert agreed[0] is not None, "the first process has said it"
    return agreed[0]
