"""Training runs of graph models, which rank."""

from functools import cached_property
from pathlib import Path
from typing import Any

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.role import Executor
from shunter.engine.job import TrainingJob
from shunter.engine.loop.step import applied
from shunter.engine.ranking.config import RankingHyperparameters, RankingReport
from shunter.engine.ranking.interactions import sides
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import StoredRanker, ranker_of, save_ranker
from shunter.engine.ranking.trainer import RankingData
from shunter.engine.results import TrainResult
from shunter.models.graph import GraphSpec, learns_in_steps
from shunter.models.graph.counting import count_graph_parameters
from shunter.tasks.progress_line import ProgressLine
from shunter.tasks.train.kinds import Kind
from shunter.tracking.convention import (
    Values,
    schedule_params,
)
from shunter.tracking.ranking import graph_params, ranking_epoch_metrics, ranking_metrics
from shunter.tracking.runs import Run


class RankerKind(Kind):
    """Graph model, whose test part is scored only when its model card is written."""

    job: TrainingJob[Dataset, GraphSpec, RankingHyperparameters]
    trained = TrainedRanker

    @cached_property
    def data(self) -> RankingData:
        """Graph and validation part."""
        return RankingData.of(
            self.job.dataset, learn_validation=self.job.learn_validation, repeats=self.job.schedule.repeats
        )

    @property
    def has_steps(self) -> bool:
        """Return False if the model is solved in closed form, without steps."""
        return learns_in_steps(self.job.spec.family)

    def load(self) -> None:
        """Read the graph."""
        _ = self.data

    def params(self) -> Values:
        """Return the parameters to log."""
        schedule = {**schedule_params(self.job.schedule), "schedule.repeats": self.job.schedule.repeats}
        return {**graph_params(self.job.spec, self.job.hyperparameters), **schedule}

    def prepared(self, executor: Executor, checkpoints: Path, run: Run | None) -> TrainingJob[Any, Any, Any]:
        """Return the job unchanged: the executor reads its data as a graph."""
        return self.job

    def show(self, report: RankingReport, progress: ProgressLine) -> None:
        """Show NDCG and recall, unless the validation part is trained on."""
        quality = report.validation
        if not quality.users:
            return
        progress.show(f"epoch {report.epoch}: NDCG@20 {quality.ndcg20:.4f}, recall@20 {quality.recall20:.4f}")

    def epoch_metrics(self, report: RankingReport) -> Values:
        """Return the metrics of an epoch for the training curves."""
        return ranking_epoch_metrics(report)

    def save(self, result: TrainResult[Any, Any, Any], directory: Path) -> dict[str, Any]:
        """Write the ranker."""
        dataset = self.job.dataset
        user, item = sides(dataset)
        with applied(self.job.execution):  # as in training, because another number of threads would round differently
            ranker = ranker_of(result.model)
        save_ranker(
            StoredRanker(ranker=ranker, spec=self.job.spec, features=dataset.features, user=user, item=item), directory
        )
        return {"parameters": count_graph_parameters(self.job.spec, self.data.graph)}

    def quality(self, trained: TrainedRanker) -> list[tuple[Values, int | None]]:
        """Return NDCG, recall and others on validation."""
        return [(ranking_metrics(trained.validation) if trained.validation.users else {}, len(trained.history))]
