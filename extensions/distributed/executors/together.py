"""Training loop of each process of a multi-process training, independent of launcher and channel."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import distributed as dist

from shunter.engine.executors.messages import Stop
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainingFigures
from shunter.engine.stopping import StopKind, StopReason
from shunter.extensions.distributed.training.agreement import from_all
from shunter.extensions.distributed.training.folders import Folders
from shunter.extensions.distributed.training.plan import Sharding, with_stored_machine
from shunter.extensions.distributed.training.processes import ManyProcesses
from shunter.models.embeddings.cache_counts import CacheCounts

GO_ON, STOP, INTERRUPT = range(3)
Read = Callable[[], Stop | None]


def train_together(
    job: ClickJob,
    hooks: Hooks,
    checkpointing: Checkpointing,
    sharding: Sharding,
    *,
    read: Read | None,
    folders: Folders | None = None,
) -> tuple[TrainingFigures, Path]:
    """Train with the other processes of torch's default group.

    Args:
        job: The training, on the device of this process.
        hooks: Functions that are called in this process.
        checkpointing: Folder and frequency of its checkpoints.
        sharding: Constraints on the division of the tables.
        read: Reads the caller's orders, in the first process; None in the others.
        folders: Checkpoint folder of each process; None for one folder that all processes share.

    Returns:
        The figures, with peak memory and cache counts of all processes, and the folder of the best weights' parts.

    Raises:
        KeyboardInterrupt: The caller ordered a stop; the state has been saved.
        ShunterError: See `shunter.engine.loop.trainer.train`.
    """
    linked = with_stored_machine(sharding, torch.device(job.execution.device), checkpointing.directory)
    processes = ManyProcesses(job.dataset, linked, folders)
    result = train(job, replace(hooks, should_stop=_Orders(read)), checkpointing, processes=processes)
    memory = torch.tensor([result.peak_memory_bytes])
    dist.all_reduce(memory)
    tiers = None if result.tiers is None else CacheCounts.of_all(from_all(result.tiers))
    return replace(result.figures, peak_memory_bytes=int(memory), tiers=tiers), processes.kept.best


class _Orders:
    """Orders of the caller, checked after each step: the first process reads them, and all processes obey.

    An order is broadcast during the next step and received after it, so that no step waits for it.
    """

    def __init__(self, read: Read | None) -> None:
        self._read = read
        self._on_its_way: tuple[dist.Work, torch.Tensor, Stop | None] | None = None

    def __call__(self) -> StopReason | None:
        heard = GO_ON, None
        if self._on_its_way is not None:
            sending, word, stop = self._on_its_way
            sending.wait()
            heard = int(word), stop
        stop = self._read() if self._read else None
        word = torch.tensor([GO_ON if stop is None else INTERRUPT if stop.because is None else STOP])
        sending = dist.broadcast(word, src=0, async_op=True)
        assert sending is not None, "all processes belong to the group"
        self._on_its_way = sending, word, stop
        agreed, of = heard
        if agreed == INTERRUPT:
            raise KeyboardInterrupt
        if agreed == GO_ON:
            return None
        return (of.because if of else None) or StopReason(StopKind.INTERRUPTED)
