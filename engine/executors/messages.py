"""Messages between a remote training and its caller, independent of the channel."""

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch import Tensor

from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.job import Checkpointing, ClickJob, TrainingJob
from shunter.engine.results import EpochReport, TrainingFigures, TrainResult
from shunter.engine.stopping import StopReason
from shunter.errors import TrainingError
from shunter.hardware.types import EnergyReading
from shunter.model_families import PROBLEMS, problem_of
from shunter.models.registry import build_model


@dataclass(frozen=True, kw_only=True)
class Task:
    """Training job as sent to the process that runs it.

    Attributes:
        job: The training.
        checkpointing: Folder and frequency of the training run's checkpoints; None saves no state.
        wants_model: Whether the weights are returned with the figures.
        wants_steps: Whether each step is reported.
        cores: Cores whose idle power counts for this training run, if it shares a machine; None counts all.
        division: Division of the tables among processes.
    """

    job: ClickJob
    checkpointing: Checkpointing | None = None
    wants_model: bool = True
    wants_steps: bool = True
    cores: int | None = None
    division: Any = None


@dataclass(frozen=True)
class Progress:
    """Message that a step is done, with the number of steps done and the steps of the longest schedule."""

    done: int
    total: int


@dataclass(frozen=True)
class EpochEnded:
    """Message that an epoch has ended or a validation was made; the training may wait for a `ContinueOrder`."""

    report: EpochReport


@dataclass(frozen=True)
class EnergyUsed:
    """Message with the energy used so far."""

    reading: EnergyReading


@dataclass(frozen=True)
class CheckpointSaved:
    """Message with the files of a new checkpoint."""

    files: Files


@dataclass(frozen=True)
class Done:
    """Message that the training has finished, with its result.

    Attributes:
        figures: Figures of the training.
        weights: Weights on the CPU, or the folder of their parts; None if not requested.
    """

    figures: TrainingFigures
    weights: dict[str, Tensor] | Path | None = None


@dataclass(frozen=True)
class Failed:
    """Message that the training failed; its error is a KeyboardInterrupt if an order ended the training."""

    error: BaseException


@dataclass(frozen=True)
class ContinueOrder:
    """Order to continue after an epoch."""


@dataclass(frozen=True)
class Stop:
    """Order to end the training after the current step; without a reason it ends as by Ctrl-C, with its state saved."""

    because: StopReason | None


Message = Progress | EpochEnded | EnergyUsed | CheckpointSaved | Done | Failed
Order = ContinueOrder | Stop


def run_to_message(work: Callable[[], TrainResult], *, wants_model: bool) -> Done | Failed:
    """Call a training function, and return its result or its error as a message."""
    try:
        result = work()
    except BaseException as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # such an error cannot be sent
            return Failed(TrainingError(f"{type(error).__name__}: {error}"))
        return Failed(error)
    if not wants_model:
        return Done(result.figures)
    return Done(result.figures, {name: tensor.detach().cpu() for name, tensor in result.model.state_dict().items()})


def with_model(job: TrainingJob[Any, Any, Any], done: Done) -> TrainResult[Any, Any, Any]:
    """Build the model from the weights of a remote training, and return its result."""
    assert isinstance(done.weights, dict), "the weights were wanted"
    model = PROBLEMS.load_part(problem_of(job.spec.family), "builder")(job)
    model.load_state_dict(done.weights)
    return TrainResult(model=model.eval(), **vars(done.figures))


def build_recommender(job: ClickJob) -> Any:
    """Build the click model of a job, whose weights are loaded next."""
    return build_model(job.spec, job.dataset.features, is_loaded_next=True)


def send(connection: Connection, value: Task | Message | Order) -> None:
    """Send a value over a connection as plain bytes; torch's own pickling would share tensor memory."""
    connection.send_bytes(pickle.dumps(value))


def receive(connection: Connection) -> Any:
    """Receive a value from `send`; the connection is inherited, so that no other process can write to it."""
    return pickle.loads(connection.recv_bytes())
