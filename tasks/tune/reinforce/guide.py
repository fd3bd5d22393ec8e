"""What past trials teach a search before and while it measures: the surrogate, the inverse model, and whether to trust.

Yeung et al., "Hybrid supervised and reinforcement learning for the design and optimization of nanophotonic
structures" (arXiv 2209.04447), give the pattern: supervised models first, reinforcement learning from there.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from torch import Tensor

from tasks.tune.method import Cost
from tasks.tune.reinforce.actions import Actions
from tasks.tune.reinforce.experience import History, States, pooled_levels, predicted_reward
from tasks.tune.reinforce.inverse import InverseModel
from tasks.tune.reinforce.policy import Policy
from tasks.tune.reinforce.surrogate import Surrogate, rank_correlation

if TYPE_CHECKING:
    from sklearn.covariance import LedoitWolf

FEWEST_POINTS = 12  # fewer do not tell the values of the factors apart
LEAST_SKILL = 0.3  # rank correlation on points that a member has not seen
LEAST_AGREEMENT = 0.2  # rank correlation of what was foretold with what was measured
MOST_DISAGREEMENT = 1.0  # of the members on a point, in spreads of NE
REFIT_STEPS = 20


class Guide:
    """Foretells what points are worth, as long as it may be trusted.

    Use `fit`, which gives none where the past has nothing to teach.
    """

    def __init__(
        self,
        actions: Actions,
        past: Sequence[History],
        features: Mapping[str, float],
        cost: Cost | None,
        *,
        seed: int,
    ) -> None:
        self._actions, self._past, self._features = actions, list(past), dict(features)
        self._cost: Cost | None = cost
        known = [history.features for history in past]
        self._known = known if self._features in known else [*known, self._features]
        states = States(self._known)
        self.surrogate = Surrogate(actions, states, seed=seed)
        self.surrogate.fit(self._past)
        self._inverse = InverseModel(actions, states, self.surrogate, cost, seed=seed)
        self._levels = pooled_levels(past)
        self._gate = _gate(actions.one_hot(np.concatenate([history.actions for history in past])))

    @classmethod
    def fit(
        cls,
        actions: Actions,
        past: Sequence[History],
        features: Mapping[str, float],
        cost: Cost | None,
        *,
        seed: int,
    ) -> Self | None:
        """Learn from the past; None where it has too few points, or they do not foretell each other.

        Args:
            actions: of the space.
            past: trials of other searches, or of this one before it was asked.
            features: of the present data and limits.
            cost: what NE is weighed against.
            seed: of all that is drawn.
        """
        past = [history for history in past if len(history.actions)]
        if sum(len(history.actions) for history in past) < FEWEST_POINTS:
            return None
        guide = cls(actions, past, features, cost, seed=seed)
        return guide if guide.surrogate.skill >= LEAST_SKILL else None

    def policy(self, *, with_value: bool = True) -> tuple[Policy, Tensor]:
        """A policy that starts where the inverse model ends, and the state that it is asked in.

        Args:
            with_value: teaches its value head first, without which the first real rewards would all surprise it.
        """
        state = self._inverse.fit(self._known, self._levels, self._features)
        if with_value:
            self._inverse.fit_value(state, self._features, self._levels)
        return self._inverse.policy, state

    def foretell(self, actions: np.ndarray) -> np.ndarray:
        """The rewards of actions (points) in spreads of NE above an ordinary point."""
        figures, _ = self.surrogate.predict(self._features, actions)
        return predicted_reward(figures, self._levels, self._cost)

    def trusts(self, actions: np.ndarray) -> np.ndarray:
        """For each action whether the members agree on it, and it is not unlike all that was tried (points)."""
        _, spread = self.surrogate.predict(self._features, actions)
        covariance, most_distance = self._gate
        distances = covariance.mahalanobis(self._actions.one_hot(actions))
        return (spread[:, 0] <= MOST_DISAGREEMENT) & (distances <= most_distance)

    def roll_outs(self, choices: Tensor, samples: int) -> tuple[np.ndarray, np.ndarray]:
        """Synthetic episodes: foretold rewards (samples) and the actions (samples, factors)."""
        return self._inverse.roll_outs(choices, self._features, self._levels, samples)

    def learn(self, own: History) -> None:
        """Learn from what this search has measured, beside the past."""
        self._levels = own.levels
        self.surrogate.fit([*self._past, own], REFIT_STEPS)


def agrees(foretold: np.ndarray, rewards: np.ndarray) -> bool:
    """Whether what was foretold before it was measured came true, as far as eight or more points can tell."""
    return len(rewards) < 8 or rank_correlation(foretold, rewards) >= LEAST_AGREEMENT


def _gate(seen: np.ndarray) -> "tuple[LedoitWolf, float]":
    """The covariance of what was tried, and the squared Mahalanobis distance up to which a point resembles it."""
    from sklearn.covariance import LedoitWolf

    covariance = LedoitWolf().fit(seen)
    return covariance, 1.5 * float(np.quantile(covariance.mahalanobis(seen), 0.99))
