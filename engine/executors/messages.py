"""What a training elsewhere and the one who wants it say to each other, whatever carries it there."""

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
from shunter.engine.ranking.trainer import RankingData
from shunter.engine.results import EpochReport, TrainingFigures, TrainResult
from shunter.engine.stopping import StopReason
from shunter.errors import TrainingError
from shunter.hardware.types import EnergyReading
from shunter.models.graph import GraphSpec, build_graph_model
from shunter.models.registry import build_model


@dataclass(frozen=True, kw_only=True)
class Task:
    """One training, as it is sent to where it runs.

    Attributes:
        job: The training.
        checkpointing: Where its state is kept; None keeps none.
        wants_model: Whether the weights come home with the figures.
        wants_steps: Whether each step is told.
        cores: Cores whose idle power counts as this training's, where it shares a machine; None is all of them.
        division: How several processes divide the tables, for the executor that they form; None leaves it to them.
    """

    job: ClickJob
    checkpointing: Checkpointing | None = None
    wants_model: bool = True
    wants_steps: bool = True
    cores: int | None = None
    division: Any = None


@dataclass(frozen=True)
class Progress:
    """A step is done.

    Attributes:
        done: Steps done.
        total: Steps of the longest schedule.
    """

    done: int
    total: int


@dataclass(frozen=True)
class EpochEnded:
    """An epoch has ended, or a check of the schedule was made; it may be waited for a `GoOn`."""

    report: EpochReport


@dataclass(frozen=True)
class EnergyUsed:
    """What the training has used so far."""

    reading: EnergyReading


@dataclass(frozen=True)
class CheckpointSaved:
    """There is a new checkpoint, which consists of these files."""

    files: Files


@dataclass(frozen=True)
class Done:
    """The training has come to its end.

    Attributes:
        figures: Its figures.
        weights: On the CPU, or the folder in which they lie in parts; None where nobody wants them.
    """

    figures: TrainingFigures
    weights: dict[str, Tensor] | Path | None = None


@dataclass(frozen=True)
class Failed:
    """The training has ended without a result: a KeyboardInterrupt when it was told to."""

    error: BaseException


@dataclass(frozen=True)
class GoOn:
    """The training may go on after an epoch."""


@dataclass(frozen=True)
class Stop:
    """The training shall end after its current step.

    Attributes:
        because: Reason; None ends it as Ctrl-C does, with its state saved.
    """

    because: StopReason | None


Message = Progress | EpochEnded | EnergyUsed | CheckpointSaved | Done | Failed
Order = GoOn | Stop


def attended(work: Callable[[], TrainResult], *, wants_model: bool) -> Done | Failed:
    """Train, and say what came of it.

    Args:
        work: The training.
        wants_model: Whether the weights are wanted.
    """
    try:
        result = work()
    except BaseException as error:
        error.add_note(traceback.format_exc())
        return Failed(_portable(error))
    if not wants_model:
        return Done(result.figures)
    return Done(result.figures, {name: tensor.detach().cpu() for name, tensor in result.model.state_dict().items()})


def with_model(job: TrainingJob[Any, Any, Any], done: Done) -> TrainResult[Any, Any, Any]:
    """The result of a training whose weights came home."""
    assert isinstance(done.weights, dict), "the weights were wanted"
    if isinstance(job.spec, GraphSpec):
        data = RankingData.of(job.dataset, learn_validation=job.learn_validation, repeats=job.schedule.repeats)
        model: Any = build_graph_model(job.spec, data.graph)
    else:
        model = build_model(job.spec, job.dataset.features, is_loaded_next=True)
    model.load_state_dict(done.weights)
    return TrainResult(model=model.eval(), **vars(done.figures))


def send(connection: Connection, value: Task | Message | Order) -> None:
    """Send along a connection; as plain bytes, for torch would share the memory of tensors with its kin only."""
    connection.send_bytes(pickle.dumps(value))


def receive(connection: Connection) -> Any:
    """What `send` sent; the connection is one that was inherited, so that nobody else writes to it."""
    return pickle.loads(connection.recv_bytes())


def _portable(error: BaseException) -> BaseException:
    """The error itself where it survives the way to another process, else one that says what it was."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return TrainingError(f"{type(error).__name__}: {error}")
    return error
