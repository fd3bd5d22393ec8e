"""What the training of a graph model hands on, and keeps beside the model."""

from typing import Self

from shunter.engine.ranking.config import RankingHyperparameters, RankingReport
from shunter.engine.ranking.evaluation import RankingMetrics, UserFigures
from shunter.engine.specs import AnyGraphSpec
from shunter.engine.trained_model import Trained
from shunter.statistics.bootstrap import mean_interval


class TrainedRanker(Trained[AnyGraphSpec, RankingHyperparameters, RankingMetrics, RankingReport]):
    """A graph model, trained to the end; its vectors are for `shunter.engine.ranking.storage.load_ranker`.

    Attributes:
        test: Quality on the test part, which nothing before has seen; what a user saw in validation is not ranked. Of 0
            users where it was not judged, as of trials that are not compared with anything there.
        popularity: The same of the same items in the order of their popularity; None where it was not judged.
        gain: Where the mean over users of its NDCG@20 less that of the order by popularity lies with 95 %
            confidence, by a paired bootstrap over the users; None where it was not judged.
        parameters: Learned numbers.
    """

    test: RankingMetrics = RankingMetrics(recall20=0.0, ndcg20=0.0, users=0)
    popularity: RankingMetrics | None = None
    gain: tuple[float, float] | None = None
    parameters: int

    def judged(self, figures: UserFigures, popularity: UserFigures) -> Self:
        """Return the model with its quality on the test part, and write that beside it.

        Args:
            figures: Quality on the test part, by user.
            popularity: The same of the order by popularity.
        """
        gain = mean_interval(figures.ndcg20 - popularity.ndcg20, seed=self.schedule.seed)
        found = self.model_copy(update={"test": figures.mean(), "popularity": popularity.mean(), "gain": gain})
        found.save()
        return found
