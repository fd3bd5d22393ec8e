"""What the training of a graph model hands on, and keeps beside the model."""

from shunter.engine.ranking.config import RankingHyperparameters, RankingReport
from shunter.engine.ranking.evaluation import RankingMetrics
from shunter.engine.specs import AnyGraphSpec
from shunter.engine.trained_model import Trained


class TrainedRanker(Trained[AnyGraphSpec, RankingHyperparameters, RankingMetrics, RankingReport]):
    """A graph model, trained to the end; its vectors are for `shunter.engine.ranking.storage.load_ranker`.

    Attributes:
        test: Quality on the test part, which nothing before has seen; what a user saw in validation is not ranked.
        popularity: The same of the same items in the order of their popularity; None where it was not judged.
        gain: Where the mean over users of its NDCG@20 less that of the order by popularity lies with 95 %
            confidence, by a paired bootstrap over the users; None where it was not judged.
        parameters: Learned numbers.
    """

    test: RankingMetrics
    popularity: RankingMetrics | None = None
    gain: tuple[float, float] | None = None
    parameters: int
