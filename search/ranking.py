"""Search for settings of a graph model: propose the next point, and stop training runs that are worse than others.

The search stores no state. A search that starts again with the same seed and gets the same outcomes proposes the same
points; the finished training runs themselves are stored.
"""

from collections.abc import Sequence
from statistics import median

from shunter.search.methods.samplers import tpe_sampler
from shunter.search.protocol import Parameters
from shunter.search.space.ranking import RankingSpace

FEWEST_RIVALS = 2  # training runs needed for a median to compare with
FEWEST_EPOCHS = 2  # epochs before which no training is stopped


class RankingSearch:
    """Search method that proposes the space's first points, then points of a tree-structured Parzen estimator.

    Args:
        space: Search space.
        trials: Largest number of trials; None if something else ends the search.
        seed: Seed of the draws.
    """

    def __init__(self, space: RankingSpace, trials: int | None, *, seed: int = 0) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = space
        self._study = optuna.create_study(direction="maximize", sampler=tpe_sampler(seed, trials))
        self._told: list[Sequence[float]] = []
        first = space.first()
        self._first = len(first)
        for point in first:
            self._study.enqueue_trial(point)

    def ask(self) -> Parameters | None:
        """Return the next point; None if there is no other."""
        if self._told and not self.space.searched:
            return None
        self._trial = self._study.ask()
        return self.space.suggest(self._trial)

    def tell(self, qualities: Sequence[float]) -> None:
        """Learn from the outcome of the last point that `ask` returned.

        Args:
            qualities: Figure that selects, on the validation part after each epoch, at least one; higher is better.
        """
        self._told.append(qualities)
        self._study.tell(self._trial, max(qualities))

    def is_beaten(self, qualities: Sequence[float]) -> bool:
        """Return True if a run is worse than the median of the others at the same epoch (Optuna's median rule).

        The first points are never stopped. They are few and unlike each other, and the best one on a log may improve
        later than the others.
        """
        epoch = len(qualities)
        if epoch < FEWEST_EPOCHS or len(self._told) < self._first:
            return False
        others = [max(told[:epoch]) for told in self._told if len(told) >= epoch]
        return len(others) >= FEWEST_RIVALS and max(qualities) < median(others)
