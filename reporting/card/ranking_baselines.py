"""Comparison of a graph model with the rankings of baselines on the same test part."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import Field

from shunter.engine.config import Repeats
from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.evaluation import UserFigures, evaluate_users
from shunter.engine.ranking.interactions import read_before_test, read_interactions
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import load_ranker
from shunter.frozen import Frozen
from shunter.reporting.card.figures import TrainedAt
from shunter.statistics import mean_interval

if TYPE_CHECKING:
    from shunter.engine.ranking.breakdown import Breakdown
    from shunter.models.graph.ranker import Ranker


class RankedBaseline(Frozen):
    """Trained ranking baseline or requested ranking model, with the time and energy of its training runs."""

    model: TrainedRanker = Field(
        description="Best setting of the baseline, retrained on training plus validation part where requested."
    )
    chosen: TrainedRanker = Field(description="Best setting of the baseline, as evaluated on the validation part.")
    is_asked: bool = Field(default=False, description="Whether this is the requested model and not a baseline.")
    tried: int = Field(description="Number of settings that were tried.")
    train_seconds: float = Field(description="Seconds of all training runs of the baseline.")
    joules: float | None = Field(
        description="Energy of all training runs of the baseline, in joules; None if no meter or estimate is available."
    )
    trained_at: TrainedAt = None


class RankingBaseline(Frozen):
    """Baseline, or requested model that was not selected, compared with the result of the run."""

    name: str
    options: str = Field(description="Options of the baseline, as text.")
    validation_ndcg20: float = Field(
        description="NDCG@20 on the validation part, before the model was retrained on that part."
    )
    ndcg20: float = Field(description="NDCG@20 on the test part; the following metrics are on the test part too.")
    recall20: float
    train_seconds: float
    joules: float | None
    gain: float = Field(description="NDCG@20 of the result minus that of the baseline.")
    gain_low: float = Field(description="Lower bound of the NDCG@20 difference with 95 % confidence.")
    gain_high: float
    is_result: bool = Field(default=False, description="Whether the baseline itself was selected as the result.")
    is_asked: bool = Field(default=False, description="Whether this is the requested model and not a baseline.")
    trained_at: TrainedAt = None

    @property
    def summary(self) -> str:
        """Comparison of the result with this baseline, in one sentence."""
        name = f"requested model {self.name}" if self.is_asked else f"baseline {self.name}"
        if self.is_result:
            return f"The {name} is the result: nothing ranks the validation part better."
        by = f"{self.gain:+.4f} NDCG@20, {self.gain_low:+.4f} to {self.gain_high:+.4f} with 95 % confidence"
        if self.gain_low > 0:
            return f"The result beats the {name}, by {by}."
        if self.gain_high < 0:
            return f"The {name} is ahead of the result, which gains {by}."
        return f"The result is level with the {name}: it gains {by}."


class RankingEvaluator:
    """Evaluator of stored ranking models on the test part; items seen in earlier parts are not recommended.

    The ranking by popularity is evaluated once for all models that were trained on the same interactions.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._seen, self._test = read_before_test(dataset), read_interactions(dataset, "test")
        self._popularity: list[tuple[torch.Tensor, Repeats, UserFigures]] = []

    def evaluate(self, trained: TrainedRanker) -> "tuple[TrainedRanker, Breakdown]":
        """Return a model with its quality on the test part, and its ranking for each user.

        Raises:
            CheckpointError: A file of the model is damaged.
        """
        from shunter.engine.ranking.breakdown import break_down

        ranker, repeats = load_ranker(trained.directory).ranker, trained.schedule.repeats
        found = break_down(ranker, self._test, self._seen, name="test", repeats=repeats)
        if ranker.is_popularity:
            self._popularity.append((ranker.popularity(), repeats, found.figures))
        return trained.with_test(found.figures, self._by_popularity(ranker, repeats)), found

    def _by_popularity(self, ranker: "Ranker", repeats: Repeats) -> UserFigures:
        popularity = ranker.popularity()
        for other, of_repeats, figures in self._popularity:
            if of_repeats == repeats and torch.equal(other, popularity):
                return figures
        figures = evaluate_users(ranker.by_popularity(), self._test, self._seen, name="test", repeats=repeats)
        self._popularity.append((popularity, repeats, figures))
        return figures


def evaluate_on_test(dataset: Dataset, trained: TrainedRanker) -> "tuple[TrainedRanker, Breakdown]":
    """Rank the test part by one stored model; see `RankingEvaluator`."""
    return RankingEvaluator(dataset).evaluate(trained)


def compare_rankings(
    baselines: Sequence[RankedBaseline], others: Sequence[UserFigures], result: TrainedRanker, figures: UserFigures
) -> tuple[RankingBaseline, ...]:
    """Compare each baseline with the result by the metrics of each user; the comparison does not select a model."""
    found = []
    for baseline, of_baseline in zip(baselines, others, strict=True):
        model, test = baseline.model, of_baseline.mean()
        gains = figures.ndcg20 - of_baseline.ndcg20
        low, high = mean_interval(gains)
        found.append(
            RankingBaseline(
                name=model.spec.family,
                options=model.spec.as_text(),
                validation_ndcg20=model.validation.ndcg20,
                ndcg20=test.ndcg20,
                recall20=test.recall20,
                train_seconds=baseline.train_seconds,
                joules=baseline.joules,
                gain=float(gains.mean()),
                gain_low=low,
                gain_high=high,
                is_result=model.directory == result.directory,
                is_asked=baseline.is_asked,
                trained_at=baseline.trained_at,
            )
        )
    return tuple(found)


def ranking_baseline_metrics(baselines: Sequence[RankingBaseline]) -> dict[str, float]:
    """Return the MLflow metrics of the baselines, `baseline.*`."""
    values: dict[str, float | None] = {}
    for one in baselines:
        values |= {
            f"baseline.{one.name}.ndcg20": one.validation_ndcg20,
            f"baseline.{one.name}.test.ndcg20": one.ndcg20,
            f"baseline.{one.name}.test.recall20": one.recall20,
            f"baseline.{one.name}.train_seconds": one.train_seconds,
            f"baseline.{one.name}.joules": one.joules,
            f"baseline.{one.name}.gain": one.gain,
            f"baseline.{one.name}.gain_low": one.gain_low,
            f"baseline.{one.name}.gain_high": one.gain_high,
        }
    return {name: value for name, value in values.items() if value is not None}
