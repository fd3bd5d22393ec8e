"""Differences between training runs of click models, which predict a probability, and of graph models, which rank."""

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from shunter.engine.checkpoint.checked_files import take_snapshots
from shunter.engine.checkpoint.storage import save_model
from shunter.engine.ensemble.scored import store_scores
from shunter.engine.executors.compilation import choose_compilation
from shunter.engine.executors.role import Executor
from shunter.engine.executors.training_passes import try_training_passes, with_passes
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.passes.record import PassRecord
from shunter.engine.results import EpochReport, TrainResult
from shunter.engine.trained_model import Trained, TrainedModel
from shunter.model_families import PROBLEMS, problem_of
from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.role import EmbeddingTables
from shunter.tasks.progress_line import ProgressLine
from shunter.tracking.convention import (
    TABLE_BYTES,
    Values,
    epoch_metrics,
    model_params,
    quality_metrics,
)
from shunter.tracking.reports import log_passes
from shunter.tracking.runs import Run

CHECKPOINT = "checkpoint"  # folder of an unfinished training run, inside that of its model


class Kind(ABC):
    """Kind of a training run, by its model; `shunter.tasks.train.member.train_model` calls the methods in order."""

    trained: type[Trained[Any, Any, Any, Any]]

    def __init__(self, job: TrainingJob[Any, Any, Any]) -> None:
        self.job = job

    @property
    def has_steps(self) -> bool:
        """Return True if the measured steps can improve predictions of later training runs."""
        return True

    def load(self) -> None:
        """Read the training data before anything is measured."""
        return

    @abstractmethod
    def params(self) -> Values:
        """Return the parameters to log: the model and the schedule."""

    @abstractmethod
    def prepared(self, executor: Executor, checkpoints: Path, run: Run | None) -> TrainingJob[Any, Any, Any]:
        """Return the job for the executor, with options that are measured once and reused by later attempts."""

    @abstractmethod
    def show(self, report: Any, progress: ProgressLine) -> None:
        """Show the quality after an epoch."""

    @abstractmethod
    def epoch_metrics(self, report: Any) -> Values:
        """Return the metrics of an epoch for the training curves."""

    @abstractmethod
    def save(self, result: TrainResult[Any, Any, Any], directory: Path) -> dict[str, Any]:
        """Write the model into its folder; return the fields of the result that only this kind has."""

    @abstractmethod
    def quality(self, trained: Any) -> list[tuple[Values, int | None]]:
        """Return groups of metrics of the final weights, each with the step to log it at; None: no step."""


class ClickKind(Kind):
    """Click model, a possible member of an ensemble; the test part is scored later, once for the whole ensemble."""

    job: ClickJob
    trained = TrainedModel
    passes: tuple[PassRecord, ...] = ()

    def params(self) -> Values:
        """Return the parameters to log."""
        options = vars(self.job.schedule).items()
        schedule = {f"schedule.{key}": value for key, value in options if key != "repeats"}  # for rankings only
        kernel = choose_kernel("auto", torch.device(self.job.execution.device))
        spec = model_params(self.job.spec, self.job.hyperparameters)
        return {**spec, "model.embedding_kernel": kernel, **schedule}

    def prepared(self, executor: Executor, checkpoints: Path, run: Run | None) -> ClickJob:
        """Return the job, compiled if faster, with those optimisations (passes) that measurably save time or memory."""
        job = self.job
        choice = choose_compilation(
            job, directory=checkpoints, eager_because=executor.eager_because, trial=executor.trial
        )
        if run:
            run.set_tags({"training.compilation": choice.reason})
        job = replace(job, execution=replace(job.execution, compiled=choice.compiled))
        tried_on = choice if executor.trains_in_process else choice.unmeasured()  # passes are measured in this process
        found = try_training_passes(job, tried_on, checkpoints, job.spec.family)
        self.passes = found.records
        if run:
            log_passes(run.run_id, found.records)
        return with_passes(job, found)

    def show(self, report: EpochReport, progress: ProgressLine) -> None:
        """Show NE and AUC."""
        progress.on_epoch(report)

    def epoch_metrics(self, report: EpochReport) -> Values:
        """Return the metrics of an epoch for the training curves."""
        return epoch_metrics(report)

    def save(self, result: TrainResult, directory: Path) -> dict[str, Any]:
        """Write the weights, validation scores and snapshots."""
        save_model(result.model, directory)
        if result.validation_logits is not None:
            store_scores(directory, self.job.dataset, "validation", self.job.execution, result.validation_logits)
        take_snapshots(directory / CHECKPOINT, directory)
        return {"passes": self.passes}

    def quality(self, trained: TrainedModel) -> list[tuple[Values, int | None]]:
        """Return the bytes of the tables, and NE, AUC and others on validation."""
        size = EmbeddingTables.count_bytes(self.job.spec.tables(self.job.dataset.features))
        return [({TABLE_BYTES: size.weights}, None), (quality_metrics(trained.validation), len(trained.history))]


def kind_of(job: TrainingJob[Any, Any, Any]) -> Kind:
    """Return the kind of a training run, by its architecture."""
    return PROBLEMS.load_part(problem_of(job.spec.family), "training")(job)
