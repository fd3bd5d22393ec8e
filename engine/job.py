"""Definition of a training job, with the hooks and the checkpointing of its run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from shunter.engine.checkpoint.checkpoint_settings import BY_DEFAULT, CheckpointSettings
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
    """Complete description of one training job; running it twice gives bitwise the same model.

    Attributes:
        dataset: Data set; `train` is used for training and `validation` for early stopping.
        spec: Architecture.
        hyperparameters: Hyperparameters.
        execution: Device, threads, precision and batch size.
        schedule: Largest number of epochs, patience and seed.
        warm_start: Trained model to start from, in a single process; None starts from random weights.
        learn_validation: Whether a graph model is trained on the validation part too, after all selection is done.
            Nothing is then evaluated on that part, and the last epoch is used.
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
    """Functions that are called during training; an exception in a hook ends the training run and reaches the caller.

    Attributes:
        on_epoch: Called after each epoch with its report, and at the schedule's checks. Called again for an epoch whose
            end had not been saved before an interruption.
        on_step: Called after each step with the number of steps done and the steps of `max_epochs`.
        should_stop: Called after each step, so it must be fast; a returned reason ends training.
        adapt: Called after each step with its seconds, including the wait for its batch; returns the intra-operator
            threads of the next step. Another number of threads rounds differently, so that repetitions are not bitwise
            equal.
    """

    on_epoch: Callable[[Any], None] | None = None
    on_step: Callable[[int, int], None] | None = None
    should_stop: ShouldStop | None = None
    adapt: Callable[[float], int] | None = None


@dataclass(frozen=True)
class Checkpointing:
    """Location and frequency of a training run's checkpoints.

    Attributes:
        directory: Folder of this training run only; a state in the folder is resumed.
        seconds: Longest time between two checkpoints; each epoch ends with a checkpoint in any case.
        steps: Largest number of steps between two checkpoints; None is no limit.
        checkpoint_settings: Checkpoint policy.
    """

    directory: Path
    seconds: float = 300.0
    steps: int | None = None
    checkpoint_settings: CheckpointSettings = BY_DEFAULT
