"""Training in this process."""

from contextlib import AbstractContextManager

from engine.executors.role import Executor, Reading
from engine.job import Checkpointing, ClickJob, Hooks
from engine.libraries import load_libraries
from engine.loop.interrupt import stopped_between_steps
from engine.loop.trainer import train
from engine.results import TrainingFigures, TrainResult
from hardware.meters.meter import measure_energy
from hardware.types import Placement


class Here(Executor):
    """Trains in this process.

    Args:
        placement: Where it trains.
    """

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    def run(self, job: ClickJob, hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None) -> TrainResult:
        """Train; Ctrl-C, a cancelled flow and a time limit end it after a step, with its state saved."""
        return stopped_between_steps(train)(job, hooks, checkpointing)

    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train for the figures alone."""
        return train(job, hooks).figures

    def meter(self) -> AbstractContextManager[Reading]:
        """Meter of this machine."""
        load_libraries(self.placement.device)
        return measure_energy(self.placement.accelerator)
