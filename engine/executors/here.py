"""How the engine trains at a placement: in this process, or in many."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from engine.loop.interrupt import stopped_between_steps
from engine.loop.trainer import train
from engine.parallel import Machine, Sharding, holds_sharded_checkpoint, train_in_processes
from engine.profiling.profiles import local_profiles
from engine.results import TrainResult
from hardware.types import HardwareProfile, Placement


def is_shared(placement: Placement, checkpoints: Path) -> bool:
    """Whether many processes train there: asked for, or begun, for one process resumes what many have left.

    Args:
        placement: where it runs.
        checkpoints: folder of the training's checkpoints.
    """
    return placement.processes > 1 or holds_sharded_checkpoint(checkpoints)


def training_of(placement: Placement, checkpoints: Path) -> Callable[..., TrainResult]:
    """How the engine trains there: in this process, or in processes of its own; see `is_shared`.

    Either way, Ctrl-C, a cancelled flow and a time limit end it after a step, with its state saved.
    """
    if not is_shared(placement, checkpoints):
        return stopped_between_steps(train)
    profile = next(one for one in local_profiles() if one.accelerator.name == placement.accelerator)
    sharding = Sharding(machine=machine_of(profile, placement.processes))
    return partial(train_in_processes, processes=placement.processes, sharding=sharding)


def machine_of(profile: HardwareProfile, processes: int) -> Machine:
    """What the planner of the tables is told: processes share a CPU's memory, and have a GPU each."""
    shared_by = processes if profile.accelerator.kind == "cpu" else 1
    return Machine(
        memory_bytes=profile.accelerator.memory_bytes // shared_by,
        memory_bytes_per_second=profile.copy_bytes_per_second.value,
    )
