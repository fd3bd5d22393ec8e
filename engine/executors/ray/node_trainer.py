"""The side of a training that runs on a node of the cluster: an actor that trains and answers what has happened."""

import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.config import Execution, Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.executors.ray.checkpoint import CheckpointWatch, Files, write_checkpoint
from engine.executors.ray.data import find_dataset
from engine.libraries import load_libraries
from engine.loop.trainer import train
from engine.results import EpochReport, TrainingFigures, TrainResult
from hardware.meters.meter import EnergyMeter, measure_energy
from hardware.types import EnergyReading
from models.spec import ModelSpec

ANSWER_SECONDS = 0.5  # the longest time until the one who asks hears something


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training, or the rest of one.

    Attributes:
        dataset: the data, described; the arrays are looked for on the node.
        spec: the architecture.
        hyperparameters: what it is learned with.
        execution: on what it runs there.
        schedule: for how long, and the seed.
        options: further arguments of `engine.loop.trainer.train`, such as the time between checkpoints.
        checkpoint: files to go on from, empty to begin; None keeps no checkpoints.
        wants_weights: whether the weights come home too.
        cores: of the node whose idle power counts as this training's, where it shares the node; None: all.
    """

    dataset: Dataset
    spec: ModelSpec
    hyperparameters: Hyperparameters
    execution: Execution
    schedule: Schedule
    options: dict[str, Any]
    checkpoint: Files | None
    wants_weights: bool = True
    cores: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished training without its module: its figures, and the weights on the CPU where they are wanted."""

    figures: TrainingFigures
    weights: dict[str, Tensor]


@dataclass(kw_only=True)
class News:
    """What has happened since the last answer.

    Attributes:
        step: steps done and steps of the longest schedule, the latest.
        epochs: reports of the epochs that ended.
        checkpoint: the latest checkpoint, if there is a new one.
        energy: of the node's training so far.
        outcome: the result, once there is one.
        error: what ended the training instead; a KeyboardInterrupt when it was told to.
        ended: whether nothing more will come.
    """

    step: tuple[int, int] | None = None
    epochs: tuple[EpochReport, ...] = ()
    checkpoint: Files | None = None
    energy: EnergyReading | None = None
    outcome: Outcome | None = None
    error: BaseException | None = None
    ended: bool = False


class NodeTrainer:
    """Lives on a node; Ray calls its methods one after another, while a thread trains."""

    def __init__(self) -> None:
        self._news = News()
        self._arrived = threading.Condition()
        self._stop_because: str | None = None
        self._interrupted = False
        self._meter: EnergyMeter | None = None

    def start(self, job: Job) -> None:
        """Begin to train."""
        threading.Thread(target=self._run, args=(job,), name="training", daemon=True).start()

    def stop(self, because: str | None) -> None:
        """Let the training end after its current step: as its budget does for a reason, as Ctrl-C does without."""
        self._stop_because, self._interrupted = because, because is None

    def news(self) -> News:
        """What has happened since the last call; waits a moment for something to happen."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._news != News(), timeout=ANSWER_SECONDS)
            news, self._news = self._news, News()
        if self._meter is not None:
            news.energy = self._meter.reading
        return news

    def _run(self, job: Job) -> None:
        try:
            outcome = self._train(job)
        except BaseException as error:
            self._tell(error=error, ended=True)
        else:
            self._tell(outcome=outcome, ended=True)

    def _train(self, job: Job) -> Outcome:
        found = find_dataset(job.dataset)
        assert found is not None, "the data set was sent first"
        load_libraries(job.execution.device)
        with tempfile.TemporaryDirectory(prefix="shunter-") as name, _meter(job) as meter:
            self._meter = meter
            directory = None if job.checkpoint is None else Path(name) / "checkpoint"
            if directory is not None and job.checkpoint:
                write_checkpoint(job.checkpoint, directory)
            tell_checkpoint = self._checkpoint_teller(directory)

            def on_step(done: int, total: int) -> None:
                tell_checkpoint()
                self._tell(step=(done, total))

            def on_epoch(report: EpochReport) -> None:
                tell_checkpoint()
                self._tell(epochs=(report,))

            try:
                result = train(
                    replace(job.dataset, directory=found),
                    job.spec,
                    job.hyperparameters,
                    job.execution,
                    job.schedule,
                    checkpoint_directory=directory,
                    on_step=on_step,
                    on_epoch=on_epoch,
                    should_stop=self._should_stop,
                    **job.options,
                )
            finally:
                tell_checkpoint()
        return _outcome(result, job.wants_weights)

    def _should_stop(self) -> str | None:
        if self._interrupted:
            raise KeyboardInterrupt
        return self._stop_because

    def _checkpoint_teller(self, directory: Path | None) -> Callable[[], None]:
        if directory is None:
            return lambda: None
        watch = CheckpointWatch(directory)

        def tell() -> None:
            files = watch.changed()
            if files:
                self._tell(checkpoint=files)

        return tell

    def _tell(self, **fields: Any) -> None:
        with self._arrived:
            epochs = self._news.epochs + fields.pop("epochs", ())
            self._news = replace(self._news, epochs=epochs, **fields)
            self._arrived.notify()


def _meter(job: Job) -> EnergyMeter:
    """Of the whole node, or of the training's part where it shares it."""
    scope = "machine" if job.cores is None else "process"
    return measure_energy(job.execution.device, scope=scope, cores=job.cores)


def _outcome(result: TrainResult, wants_weights: bool) -> Outcome:
    weights = {name: tensor.detach().cpu() for name, tensor in result.model.state_dict().items()}
    return Outcome(figures=result.figures, weights=weights if wants_weights else {})
