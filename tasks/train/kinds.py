"""What differs between trainings: of a model that gives a probability, and of one that ranks along a graph."""

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.scored import keep_scores
from shunter.engine.executors.compilation import choose_compilation
from shunter.engine.executors.role import Executor
from shunter.engine.executors.training_passes import try_training_passes, with_passes
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.loop.snapshots import take_snapshots
from shunter.engine.loop.step import applied
from shunter.engine.passes.record import PassRecord
from shunter.engine.ranking.config import RankingHyperparameters, RankingReport
from shunter.engine.ranking.evaluation import ranked_on_test
from shunter.engine.ranking.interactions import sides
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import StoredRanker, load_ranker, save_ranker
from shunter.engine.ranking.trainer import RankingData
from shunter.engine.results import EpochReport, TrainResult
from shunter.engine.trained_model import Trained, TrainedModel
from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.graph import GraphModel, GraphSpec, VectorRanker, learns_in_steps
from shunter.models.graph.counting import count_graph_parameters
from shunter.tasks.progress_line import ProgressLine
from shunter.tracking.convention import (
    TABLE_BYTES,
    Values,
    epoch_metrics,
    model_params,
    quality_metrics,
    schedule_params,
)
from shunter.tracking.passes import log_passes
from shunter.tracking.ranking import graph_params, ranking_epoch_metrics, ranking_metrics
from shunter.tracking.runs import Run

CHECKPOINT = "checkpoint"  # folder of an unfinished training, in that of its model


class Kind(ABC):
    """One training, by the kind of its model: asked by `shunter.tasks.train.member.train_to_the_end`, in this order.

    Args:
        job: The training, with the data set as it was ingested.
    """

    trained: type[Trained[Any, Any, Any, Any]]

    def __init__(self, job: TrainingJob[Any, Any, Any]) -> None:
        self.job = job

    @property
    def has_steps(self) -> bool:
        """Whether its steps teach what later ones take."""
        return True

    def load(self) -> None:
        """Read what it is trained on, before anything is measured."""
        return

    @abstractmethod
    def params(self) -> Values:
        """Parameters of its run: the model and the schedule."""

    @abstractmethod
    def prepared(self, executor: Executor, checkpoints: Path, run: Run | None) -> TrainingJob[Any, Any, Any]:
        """The job as the executor shall run it, settled before the first step and kept for later attempts."""

    @abstractmethod
    def show(self, report: Any, progress: ProgressLine) -> None:
        """Show the quality after an epoch."""

    @abstractmethod
    def epoch_metrics(self, report: Any) -> Values:
        """The point of its curves after an epoch."""

    @abstractmethod
    def save(self, result: TrainResult[Any, Any, Any], directory: Path) -> dict[str, Any]:
        """Write the model into its folder; returns what of its description no other kind has."""

    @abstractmethod
    def quality(self, trained: Any) -> list[tuple[Values, int | None]]:
        """Metrics of the weights that were kept, each group with the step that it is logged at."""


class ClickKind(Kind):
    """A model of clicks: one member of an ensemble, whose test part is scored with the others."""

    job: ClickJob
    trained = TrainedModel
    passes: tuple[PassRecord, ...] = ()

    def params(self) -> Values:
        """Parameters of its run."""
        options = vars(self.job.schedule).items()
        schedule = {f"schedule.{key}": value for key, value in options if key != "repeats"}  # which is of rankings
        kernel = choose_kernel("auto", torch.device(self.job.execution.device))
        spec = model_params(self.job.spec, self.job.hyperparameters)
        return {**spec, "model.embedding_kernel": kernel, **schedule}

    def prepared(self, executor: Executor, checkpoints: Path, run: Run | None) -> ClickJob:
        """The job, compiled where that pays, and with the passes that gain."""
        job = self.job
        choice = choose_compilation(
            job, directory=checkpoints, eager_because=executor.eager_because, trial=executor.trial
        )
        if run:
            run.set_tags({"training.compilation": choice.reason})
        job = replace(job, execution=replace(job.execution, compiled=choice.compiled))
        tried_on = choice if executor.trains_here else choice.unmeasured()  # passes are tried in this process
        found = try_training_passes(job, tried_on, checkpoints, job.spec.family)
        self.passes = found.records
        if run:
            log_passes(run.run_id, found.records)
        return with_passes(job, found)

    def show(self, report: EpochReport, progress: ProgressLine) -> None:
        """Show NE and AUC."""
        progress.on_epoch(report)

    def epoch_metrics(self, report: EpochReport) -> Values:
        """The point of its curves."""
        return epoch_metrics(report)

    def save(self, result: TrainResult, directory: Path) -> dict[str, Any]:
        """Write the weights."""
        save_model(result.model, directory)
        if result.validation_logits is not None:
            keep_scores(directory, self.job.dataset, "validation", self.job.execution, result.validation_logits)
        take_snapshots(directory / CHECKPOINT, directory)
        return {"passes": self.passes}

    def quality(self, trained: TrainedModel) -> list[tuple[Values, int | None]]:
        """Bytes of the tables; NE, AUC and so on, on validation."""
        size = EmbeddingTables.count_bytes(self.job.spec.tables(self.job.dataset.features))
        return [({TABLE_BYTES: size.weights}, None), (quality_metrics(trained.validation), len(trained.history))]


class GraphKind(Kind):
    """A model that ranks along a graph: trained alone, scored once on the test part, and described by a card."""

    job: TrainingJob[Dataset, GraphSpec, RankingHyperparameters]
    trained = TrainedRanker

    @cached_property
    def data(self) -> RankingData:
        """The graph, and the validation part."""
        return RankingData.of(
            self.job.dataset, learn_validation=self.job.learn_validation, repeats=self.job.schedule.repeats
        )

    @property
    def has_steps(self) -> bool:
        """What is solved has none."""
        return learns_in_steps(self.job.spec.family)

    def load(self) -> None:
        """Read the graph."""
        _ = self.data

    def params(self) -> Values:
        """Parameters of its run."""
        schedule = {**schedule_params(self.job.schedule), "schedule.repeats": self.job.schedule.repeats}
        return {**graph_params(self.job.spec, self.job.hyperparameters), **schedule}

    def prepared(self, executor: Executor, checkpoints: Path, run: Run | None) -> TrainingJob[Any, Any, Any]:
        """The job as it is: where it is trained, its data are read as a graph."""
        return self.job

    def show(self, report: RankingReport, progress: ProgressLine) -> None:
        """Show NDCG and recall, where validation is not learned from."""
        quality = report.validation
        if not quality.users:
            return
        progress.show(f"epoch {report.epoch}: NDCG@20 {quality.ndcg20:.4f}, recall@20 {quality.recall20:.4f}")

    def epoch_metrics(self, report: RankingReport) -> Values:
        """The point of its curves."""
        return ranking_epoch_metrics(report)

    def save(self, result: TrainResult[Any, Any, Any], directory: Path) -> dict[str, Any]:
        """Write the ranker, and score the files themselves on the test part: they are what will be registered."""
        dataset = self.job.dataset
        user, item = sides(dataset)
        with applied(self.job.execution):  # as in training: other threads would round otherwise
            ranker = VectorRanker.of(result.model) if isinstance(result.model, GraphModel) else result.model
        save_ranker(
            StoredRanker(ranker=ranker, spec=self.job.spec, features=dataset.features, user=user, item=item), directory
        )
        return {
            **ranked_on_test(
                dataset,
                load_ranker(directory).ranker,
                seed=self.job.schedule.seed,
                repeats=self.job.schedule.repeats,
            ),
            "parameters": count_graph_parameters(self.job.spec, self.data.graph),
        }

    def quality(self, trained: TrainedRanker) -> list[tuple[Values, int | None]]:
        """NDCG, recall and so on, on validation and test."""
        return [
            (ranking_metrics(trained.validation) if trained.validation.users else {}, len(trained.history)),
            (ranking_metrics(trained.test, "test"), None),
        ]


def kind_of(job: TrainingJob[Any, Any, Any]) -> Kind:
    """The kind of a training, by its architecture."""
    return GraphKind(job) if isinstance(job.spec, GraphSpec) else ClickKind(job)
