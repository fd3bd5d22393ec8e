"""Result of the training of a graph model; the result is stored in the model's folder too."""

import math
from typing import Self

from shunter.engine.ranking.config import RankingHyperparameters, RankingReport
from shunter.engine.ranking.evaluation import RankingMetrics, UserFigures
from shunter.engine.trained_model import AnyGraphSpec, Trained
from shunter.statistics import mean_interval


class TrainedRanker(Trained[AnyGraphSpec, RankingHyperparameters, RankingMetrics, RankingReport]):
    """Trained graph model; `shunter.engine.ranking.storage.load_ranker` loads its vectors.

    Attributes:
        test: Quality on the test part, which no earlier step has read; items that a user saw in validation are not
            ranked. A model that was not evaluated, such as a search trial, has 0 test users.
        popularity: Test quality of a ranking by popularity; None if the model was not evaluated.
        gain: Confidence interval (95 %) of the mean gain in NDCG@20 over a ranking by popularity, by a paired bootstrap
            over the users. None if the model was not evaluated.
        parameters: Number of learned parameters.
    """

    test: RankingMetrics = RankingMetrics(recall20=0.0, ndcg20=0.0, users=0)
    popularity: RankingMetrics | None = None
    gain: tuple[float, float] | None = None
    parameters: int

    @property
    def headline(self) -> tuple[str, float]:
        """Label and value of the main metric on the test part."""
        return "NDCG@20", self.test.ndcg20

    @property
    def test_auc(self) -> float:
        """AUC on the test part, which is undefined for a ranking model."""
        return math.nan

    def families(self, _: str) -> str:
        """Return the family of the model."""
        return self.spec.family

    def with_test(self, figures: UserFigures, popularity: UserFigures) -> Self:
        """Return the model with its quality on the test part, user by user, and write it to the model's folder."""
        gain = mean_interval(figures.ndcg20 - popularity.ndcg20, seed=self.schedule.seed)
        found = self.model_copy(update={"test": figures.mean(), "popularity": popularity.mean(), "gain": gain})
        found.save()
        return found
