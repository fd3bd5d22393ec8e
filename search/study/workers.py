"""The slots of a search: how many trainings run at a time, and where each of them runs."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from engine.config import Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.execution import execution_of
from engine.executors.process_slot import ProcessSlot
from engine.executors.role import Place, Reading, Slot
from engine.libraries import load_libraries
from engine.loop.trainer import train
from engine.results import TrainingFigures
from hardware.devices.discovery import usable_cores
from hardware.meters.meter import measure_energy
from hardware.types import Placement
from models.spec import ModelSpec
from shunter.errors import RequestError

log = logging.getLogger(__name__)


@contextmanager
def open_slots(placement: Placement, count: int, place: Place | None = None) -> Iterator[Sequence[Slot]]:
    """Slots for so many trials at a time, which end with the block.

    One trial at a time trains in this process. Several train in a process each, which share the threads of the
    placement, or on nodes of a cluster. What they measure of a step holds for so many at a time.

    Args:
        placement: The chosen placement.
        count: Trials at a time.
        place: Place that trains instead of this machine.

    Raises:
        RequestError: There are fewer GPUs than trials at a time.
    """
    slots = place.slots(placement, count) if place else local_slots(placement, count)
    if count > 1:
        log.info("%d trials at a time: %s", count, ", ".join(slot.placement.label for slot in slots))
    try:
        yield slots
    finally:
        for slot in slots:
            slot.close()


def local_slots(placement: Placement, count: int) -> list[Slot]:
    """Slots of this machine: a processor's threads are divided, and a GPU takes one training."""
    if count == 1:
        return [HereSlot(placement)]
    cores = max(1, usable_cores() // count)
    if placement.device == "cpu":
        shared = placement.model_copy(update={"threads": max(1, placement.threads // count)})
        return [ProcessSlot(shared, cores=cores) for _ in range(count)]
    _check_gpus(placement.device, count)
    names = [f"cuda:{index}" for index in range(count)]  # those that `hardware.reservation` keeps
    return [ProcessSlot(placement.model_copy(update={"accelerator": name}), cores=cores) for name in names]


def _check_gpus(device: str, count: int) -> None:
    """Raise when so many trials would share a GPU, or run on others than the chosen, which nobody could compare."""
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    model = torch.cuda.get_device_name(device)
    alike = next((index for index, name in enumerate(names) if name != model), len(names))
    if count > alike:
        raise RequestError(
            f"{count} trials at a time want a GPU each, and of the GPUs {', '.join(names)} the first {alike} are of "
            f"the chosen model {model}: lower --parallel-trials to {max(1, alike)}."
        )


class HereSlot:
    """Trains in this process; a `engine.executors.role.Slot`.

    Args:
        placement: Placement of its trainings.
    """

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    def meter(self) -> AbstractContextManager[Reading]:
        """Meter of this machine."""
        load_libraries(self.placement.device)
        return measure_energy(self.placement.accelerator)

    def train(
        self,
        dataset: Dataset,
        spec: ModelSpec,
        hyperparameters: Hyperparameters,
        schedule: Schedule,
        *,
        should_stop: Callable[[], str | None] | None = None,
        **options: Any,
    ) -> TrainingFigures:
        """Train; see `engine.executors.role.Slot.train`."""
        execution = execution_of(self.placement)
        return train(dataset, spec, hyperparameters, execution, schedule, should_stop=should_stop, **options).figures

    def close(self) -> None:
        """Nothing is left to do."""
