"""The search of a graph model's settings: which point comes next, and which training is not worth its end.

Nothing of it is kept: a search that begins again with the same seed proposes the same points as long as it is told the
same outcomes, and the trainings themselves are what was kept.
"""

from collections.abc import Sequence
from statistics import median

from shunter.search.methods.samplers import tpe_sampler
from shunter.search.protocol import Parameters
from shunter.search.space.ranking import RankingSpace

FEWEST_RIVALS = 2  # trainings whose median says what is too little
FEWEST_EPOCHS = 2  # before which no training is ended


class RankingSearch:
    """Proposes points: those of the space that come first, then by a tree-structured Parzen estimator.

    Args:
        space: What may be tried.
        trials: How many will be at most; None where something else ends the search.
        seed: Seed of what is drawn.
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
        """The next point; None when there is no other."""
        if self._told and not self.space.searched:
            return None
        self._trial = self._study.ask()
        return self.space.suggest(self._trial)

    def tell(self, qualities: Sequence[float]) -> None:
        """Learn what came of the point that was asked for last.

        Args:
            qualities: The figure that selects, on validation after each epoch, at least one; the higher the better.
        """
        self._told.append(qualities)
        self._study.tell(self._trial, max(qualities))

    def is_beaten(self, qualities: Sequence[float]) -> bool:
        """Whether a training is worse than the median of the others was by the same epoch (Optuna's median rule).

        The points that come first are trained to their end: they are few and unlike each other, and the best of them
        on one log may rise later than those that suit another.
        """
        epoch = len(qualities)
        if epoch < FEWEST_EPOCHS or len(self._told) < self._first:
            return False
        others = [max(told[:epoch]) for told in self._told if len(told) >= epoch]
        return len(others) >= FEWEST_RIVALS and max(qualities) < median(others)
