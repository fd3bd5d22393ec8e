"""Node's side of remote work: actors that train, alone or as one process of a group, and collect messages.

A data set that a node lacks is sent file by file, in pieces, into the node's own cache.
"""

import os
import shutil
import socket
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import torch
from torch import distributed as dist

from shunter.engine.data.dataset import DESCRIPTION, Dataset
from shunter.engine.executors.checkpoint_files import CheckpointWatch, Files, is_part, write_checkpoint
from shunter.engine.executors.in_process import load_libraries, trainer_of
from shunter.engine.executors.messages import (
    CheckpointSaved,
    EnergyUsed,
    EpochEnded,
    Message,
    Order,
    Progress,
    Stop,
    Task,
    run_to_message,
)
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.probes.measurement import Measurement, measure
from shunter.engine.results import EpochReport, TrainResult
from shunter.engine.stopping import StopReason
from shunter.errors import DataError
from shunter.extensions.distributed.executors.process_group import local_machine
from shunter.extensions.distributed.links.processes import NETWORK_INTERFACES, interface_of
from shunter.extensions.distributed.training import Division, Sharding
from shunter.extensions.distributed.training.folders import Folders
from shunter.extensions.distributed.training.hosts import HostModel
from shunter.extensions.distributed.training.processes import train_together
from shunter.extensions.distributed.training.stored import ShardedWatch, gather_weights, write_sharded
from shunter.hardware.meters.meter import EnergyMeter, measure_energy
from shunter.hardware.types import Placement
from shunter.model_families import MODEL_FAMILIES
from shunter.models.graph import GraphSpec
from shunter.models.registry import build_model
from shunter.models.spec import ModelSpec
from shunter.settings import Settings

ANSWER_SECONDS = 0.5  # longest wait of a call for messages
PIECE_BYTES = 64 * 2**20
MEET_SECONDS = 120.0  # longest wait for all processes to join
NO_MODEL: Any = None  # model of processes that return no weights


def find_dataset(dataset: Dataset) -> Path | None:
    """Return the folder of the data set on this machine: the original path, or a received copy; None if absent."""
    for folder in (dataset.directory, copy_directory(dataset)):
        try:
            if Dataset.load(folder).fingerprint == dataset.fingerprint:
                return folder
        except (OSError, DataError):
            continue
    return None


def copy_directory(dataset: Dataset) -> Path:
    """Return the folder of a received copy on this machine."""
    return Settings().cache_directory / "received" / dataset.fingerprint


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Part of a file of a data set, at an offset in bytes.

    Attributes:
        sender: Name of the sender; two senders of the same file write into separate temporary files.
    """

    name: str
    offset: int
    content: bytes
    is_last: bool
    sender: str


def read_pieces(dataset: Dataset, piece_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """Yield all files of a data set on this machine in pieces, the description last."""
    sender = uuid.uuid4().hex[:8]
    folder = dataset.directory
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    for name in (*sorted(names - {DESCRIPTION}), DESCRIPTION):
        path = folder / name
        size = path.stat().st_size
        with path.open("rb") as file:
            for offset in range(0, max(size, 1), piece_bytes):
                content = file.read(piece_bytes)
                is_last = offset + piece_bytes >= size
                yield Piece(name=name, offset=offset, content=content, is_last=is_last, sender=sender)


def write_piece(dataset: Dataset, piece: Piece) -> None:
    """Write a piece into this machine's copy; a complete file is renamed to its final name."""
    path = copy_directory(dataset) / piece.name
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{piece.sender}.partial")
    with partial.open("ab" if piece.offset else "wb") as file:
        file.write(piece.content)
    if piece.is_last:
        partial.replace(path)


def measure_on_node(
    dataset: Dataset, spec: ModelSpec | GraphSpec, placement: Placement, steps: int
) -> Measurement | None:
    """Measure steps on the node that runs this function; the data set must have been sent there before."""
    return measure(_there(dataset), spec, placement, steps)


class NodeTrainer:
    """Actor on a node; Ray calls its methods one after another, while a thread trains."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._arrived = threading.Condition()
        self._stop: Stop | None = None
        self._meter: EnergyMeter | None = None
        self._ended = threading.Event()

    def start(self, task: Task, files: Files) -> None:
        """Start the training in a thread.

        Args:
            task: Training to begin or resume; its data arrays are read from this node.
            files: Checkpoint to resume from; empty to begin.
        """
        threading.Thread(target=self._run, args=(task, files), name="training", daemon=True).start()

    def order(self, order: Order) -> None:
        """Store an order to stop after the current step; other orders are ignored."""
        if isinstance(order, Stop):
            self._stop = order

    def messages(self, seconds: float = ANSWER_SECONDS) -> list[Message]:
        """Return the messages since the last call; wait at most `seconds` for one."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._messages), timeout=seconds)
            messages, self._messages = self._messages, []
        if self._meter is not None:
            messages.insert(0, EnergyUsed(self._meter.reading))
        return messages

    def ready(self) -> None:
        """Do nothing: the call returns once Ray has reserved the resources of the actor."""

    def end(self, seconds: float) -> None:
        """Wait for the training to end, at most a given number of seconds."""
        self._ended.wait(seconds)

    def _run(self, task: Task, files: Files) -> None:
        def train_there() -> TrainResult:
            device = task.job.execution.device
            own = replace(task, job=replace(task.job, dataset=_there(task.job.dataset)))
            load_libraries(device)
            with self._folder() as folder, measure_energy(device, cores=task.cores) as meter:
                self._meter = meter
                return self._train(own, files, folder)

        try:
            self._send(run_to_message(train_there, wants_model=task.wants_model))
        finally:
            self._ended.set()

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Yield a folder for the training's state, closed to other users."""
        with tempfile.TemporaryDirectory(prefix="shunter-") as name:
            yield Path(name) / "checkpoint"

    def _train(self, task: Task, files: Files, folder: Path) -> TrainResult:
        checkpointing = task.checkpointing and replace(task.checkpointing, directory=folder)
        if files:
            write_checkpoint(files, folder)
        with self._sending(CheckpointWatch(folder) if checkpointing else None) as hooks:
            return trainer_of(task.job)(task.job, hooks, checkpointing)

    @contextmanager
    def _sending(self, watch: CheckpointWatch | ShardedWatch | None) -> Iterator[Hooks]:
        """Yield hooks that send progress and the new checkpoint files; the last files are sent after the block."""

        def send_checkpoint() -> None:
            files = watch.changed() if watch else None
            if files:
                self._send(CheckpointSaved(files))

        def on_step(done: int, total: int) -> None:
            send_checkpoint()
            self._send(Progress(done, total))

        def on_epoch(report: EpochReport) -> None:
            send_checkpoint()
            self._send(EpochEnded(report))

        try:
            yield Hooks(on_step=on_step, on_epoch=on_epoch, should_stop=self._should_stop)
        finally:
            send_checkpoint()

    def _should_stop(self) -> StopReason | None:
        if self._stop is None:
            return None
        if self._stop.because is None:
            raise KeyboardInterrupt
        return self._stop.because

    def _send(self, message: Message) -> None:
        """Queue a message; a later step or checkpoint replaces an earlier one."""
        with self._arrived:
            if isinstance(message, CheckpointSaved):
                # Part files of a queued checkpoint are kept, because a later checkpoint may refer to them unsent.
                queued = [kept.files for kept in self._messages if isinstance(kept, CheckpointSaved)]
                unsent = {name: part for files in queued for name, part in files.items() if is_part(name)}
                message = CheckpointSaved({**unsent, **message.files})
            if isinstance(message, Progress | CheckpointSaved):
                self._messages = [kept for kept in self._messages if type(kept) is not type(message)]
            self._messages.append(message)
            self._arrived.notify()


@dataclass(frozen=True)
class Membership:
    """Membership of one process in a group, whose first process waits for the others at `host` and `port`.

    Attributes:
        keepers: For each process, the first rank on its node.
    """

    name: str
    rank: int
    keepers: tuple[int, ...]
    host: str
    port: int

    @classmethod
    def of_all(cls, node_ids: Sequence[str], host: str, port: int) -> list[Self]:
        """Return the memberships of a new group with a process on each of these nodes."""
        name, keepers = uuid.uuid4().hex, tuple(node_ids.index(one) for one in node_ids)
        return [cls(name, rank, keepers, host, port) for rank in range(len(node_ids))]


class GroupTrainer(NodeTrainer):
    """Actor that trains on a node together with other processes of a group; the first process reports."""

    def __init__(self) -> None:
        super().__init__()
        self._listener: socket.socket | None = None
        self._member: Membership

    def address(self) -> tuple[str, int]:
        """Open the rendezvous socket on the node's cluster address only, and return host and port."""
        import ray

        self._listener = socket.create_server((ray.util.get_node_ip_address(), 0))
        host, port = self._listener.getsockname()[:2]
        return host, port

    def join(self, member: Membership) -> None:
        """Set the membership of this process; called before `start`."""
        self._member = member

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Yield a folder shared by the group's processes of this node; the lowest rank removes it."""
        member = self._member
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

    def _train(self, task: Task, files: Files, folder: Path) -> TrainResult:
        checkpointing = replace(task.checkpointing or Checkpointing(folder), directory=folder)
        if files:
            write_sharded(files, folder, checkpointing.checkpoint_settings.generations)
        job, folders = task.job, Folders(self._member.keepers)
        with self._group(job.execution.device):
            sharding = _agreed_sharding(self._member, job, task.division or Division())
            if self._member.rank:
                figures, _ = train_together(job, Hooks(), checkpointing, sharding, read=None, folders=folders)
                return TrainResult(model=NO_MODEL, **vars(figures))
            with self._sending(ShardedWatch(checkpointing.directory)) as hooks:
                figures, best = train_together(
                    job, hooks, checkpointing, sharding, read=lambda: self._stop, folders=folders
                )
            if not task.wants_model:
                return TrainResult(model=NO_MODEL, **vars(figures))
            model = build_model(job.spec, job.dataset.features)
            gather_weights(best, model)
            return TrainResult(model=model, **vars(figures))

    @contextmanager
    def _group(self, device: str) -> Iterator[None]:
        """Join torch's default group while the block runs: gloo over the nodes' network, and NCCL as well for GPUs."""
        import ray

        member, count = self._member, len(self._member.keepers)
        interface = interface_of(ray.util.get_node_ip_address())
        os.environ |= dict.fromkeys(NETWORK_INTERFACES, interface)
        # TorchRec sees all processes as one host: division by hosts would change the order of additions.
        os.environ |= {"RANK": str(member.rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(count)}
        on_gpu = device.startswith("cuda")
        if on_gpu:
            torch.cuda.set_device(0)  # Ray shows each actor its own GPU alone
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            member.host,
            member.port,
            count,
            is_master=member.rank == 0,
            timeout=timedelta(seconds=MEET_SECONDS),
            wait_for_workers=False,
            master_listen_fd=self._listener.detach() if self._listener else None,
        )
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=dist.PrefixStore(member.name, store),  # pyright: ignore[reportPrivateImportUsage]
            rank=member.rank,
            world_size=count,
        )
        yield
        dist.barrier()  # no folder is removed while other processes read it
        dist.destroy_process_group()


def _there(dataset: Dataset) -> Dataset:
    """Return the data set of the job in its folder on this node."""
    found = find_dataset(dataset)
    assert found is not None, "the data set was sent first"
    return replace(dataset, directory=found)


def _agreed_sharding(member: Membership, job: ClickJob, division: Division) -> Sharding:
    """Return sharding constraints from the first process's measurements, broadcast to all processes."""
    agreed: list[Any] = [None]
    if member.rank == 0:
        sharing = member.keepers.count(0)
        counts = {member.keepers.count(keeper) for keeper in member.keepers}
        per_node = counts.pop() if len(counts) == 1 else None
        host_model: type[HostModel] | None = MODEL_FAMILIES.load_part(job.spec.family, "host_model")
        by_hosts = (
            division.tables is None
            and per_node is not None
            and host_model is not None
            and host_model.can_be_divided(job.spec, job.dataset.features, job.hyperparameters, per_node)
        )
        machine = local_machine(job.execution.device, sharing)
        if sharing < len(member.keepers):  # this machine's link does not connect the nodes
            machine = replace(machine, link_bytes_per_second=None)
        hosts = per_node if by_hosts else None
        agreed = [
            Sharding(machine=machine, processes_per_node=hosts, given=division.tables, precision=division.precision)
        ]
    dist.broadcast_object_list(agreed, src=0)
    return agreed[0]
