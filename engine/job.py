"""What a training is, who is told of it, and where its state is kept: three values that travel together everywhere."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from shunter.engine.checkpoint.keeping import BY_DEFAULT, Keeping
from shunter.engine.checkpoint.warm_start import WarmStart
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.stopping import ShouldStop
from shunter.models.spec import ModelSpec

Data = TypeVar("Data")
Spec = TypeVar("Spec")
Rates = TypeVar("Rates")


@dataclass(frozen=True)
class TrainingJob(Generic[Data, Spec, Rates]):
    """One training, completely described: trained twice, it gives bitwise the same model.

    Attributes:
        dataset: The data; `train` is learned from and `validation` decides when to stop.
        spec: The architecture.
        hyperparameters: Settings that it is learned with.
        execution: Device, threads, precision and batch size.
        schedule: Longest duration, patience and seed.
        warm_start: A trained model to go on from, where one process trains; None starts from random weights.
        learn_validation: Whether a graph model learns from the validation part too, once there is nothing left to
            choose: then nothing is judged on it, and the last epoch is kept.
    """

    dataset: Data
    spec: Spec
    hyperparameters: Rates
    execution: Execution
    schedule: Schedule
    warm_start: WarmStart | None = None
    learn_validation: bool = False


ClickJob = TrainingJob[Dataset, ModelSpec, Hyperparameters]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Functions that a training calls while it goes on; what one raises ends the training and reaches the caller.

    Attributes:
        on_epoch: Called after each epoch with its report; for an epoch that was interrupted before its end was saved,
            again. Also called at the schedule's checks.
        on_step: Called after each step with the steps done and the steps of `max_epochs`.
        should_stop: Called after each step, so it must be cheap; a reason ends the training.
        adapt: Called after each step with its seconds, waiting for its batch included; returns the intra-operator
            threads of the next one. Another number rounds otherwise, so that repetitions are not bitwise equal.
    """

    on_epoch: Callable[[Any], None] | None = None
    on_step: Callable[[int, int], None] | None = None
    should_stop: ShouldStop | None = None
    adapt: Callable[[float], int] | None = None


@dataclass(frozen=True)
class Checkpointing:
    """Where the state of a training is kept, and how often it is saved.

    Attributes:
        directory: A folder of the training's own; a state that lies there is gone on from.
        seconds: Longest time between two checkpoints; there is one at the end of each epoch anyway.
        steps: Most steps between two checkpoints; None leaves it to the time.
        keeping: What each holds, and how many are kept.
    """

    directory: Path
    seconds: float = 300.0
    steps: int | None = None
    keeping: Keeping = BY_DEFAULT
