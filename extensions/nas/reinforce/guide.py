"""Guide of a search from past trials: the surrogate, the inverse model, and checks of their reliability.

The pattern is that of Yeung et al., "Hybrid supervised and reinforcement learning for the design and optimization of
nanophotonic structures" (arXiv 2209.04447): supervised models first, then reinforcement learning from there.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from shunter.extensions.nas.reinforce.actions import Actions
from shunter.extensions.nas.reinforce.experience import History, States, pooled_levels, predicted_reward
from shunter.extensions.nas.reinforce.inverse import InverseModel
from shunter.extensions.nas.reinforce.policy import Policy, sample
from shunter.extensions.nas.reinforce.surrogate import Surrogate, rank_correlation
from shunter.search.protocol import Cost

if TYPE_CHECKING:
    from sklearn.covariance import LedoitWolf

FEWEST_POINTS = 12  # fewer do not separate the effects of the factors
LEAST_SKILL = 0.3  # rank correlation on points that a member was not trained on
LEAST_AGREEMENT = 0.2  # rank correlation of predictions with measurements
FEWEST_MEASURED = 8  # fewest points to compute the agreement
MOST_DISAGREEMENT = 1.0  # standard deviation of the members' predictions, in spreads of NE
REFIT_STEPS = 20


class Guide:
    """Predictor of the reward of points, used as long as its predictions are reliable.

    Args:
        actions: Encoding of the space's points.
        past: Trials of other searches, or of this one before its first request; at least one has a result.
        features: Meta-features of the present data and limits.
        cost: Cost against which NE is weighed.
        seed: Seed of all random draws.
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
        self._states = States(self._known)
        self._seed = seed
        self.surrogate = Surrogate(actions, self._states, seed=seed)
        self._levels = pooled_levels(past)
        self._gate = _gate(actions.one_hot(np.concatenate([history.actions for history in past])))

    def fit(self) -> bool:
        """Fit to the past; return True if cross-validated predictions are good enough to be used."""
        self.surrogate.fit(self._past)
        return self.surrogate.skill >= LEAST_SKILL

    def policy(self, *, with_value: bool = True) -> tuple[Policy, Tensor]:
        """Return a policy initialised from the inverse model, and its state vector.

        Args:
            with_value: If True, pretrain the value head too; otherwise the first real rewards all differ from its
                values.
        """
        inverse = InverseModel(self._actions, self._states, self.surrogate, self._cost, seed=self._seed)
        state = inverse.fit(self._known, self._levels, self._features)
        if with_value:
            returns, _ = self.roll_outs(inverse.choices(state), 128, np.random.default_rng(self._seed))
            inverse.fit_value(state, float(np.mean(returns)))
        return inverse.policy, state

    def predict(self, actions: np.ndarray) -> np.ndarray:
        """Predict the rewards of actions (points), as spreads of NE above a median point."""
        figures, _ = self.surrogate.predict(self._features, actions)
        return predicted_reward(figures, self._levels, self._cost)

    def trusts(self, actions: np.ndarray) -> np.ndarray:
        """Return for each action True if the members agree on it and it resembles the training data (points)."""
        _, spread = self.surrogate.predict(self._features, actions)
        covariance, most_distance = self._gate
        distances = covariance.mahalanobis(self._actions.one_hot(actions))
        return (spread[:, 0] <= MOST_DISAGREEMENT) & (distances <= most_distance)

    def roll_outs(self, choices: Tensor, samples: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return synthetic episodes from a policy: predicted rewards (samples), actions (samples, factors)."""
        drawn = sample(choices, samples, generator)
        return self.predict(drawn), drawn

    def learn(self, own: History) -> None:
        """Fit to the measurements of this search, in addition to the past."""
        if len(own.actions):
            self.restore_levels(own)
            self.surrogate.fit([*self._past, own], REFIT_STEPS)

    def restore_levels(self, own: History) -> None:
        """Use the cost levels of this search's measurements, if there are any."""
        if len(own.actions):
            self._levels = own.levels


def agrees(predicted: np.ndarray, rewards: np.ndarray) -> bool:
    """Return True if earlier predictions agree with the measurements, as far as there are enough points."""
    return len(rewards) < FEWEST_MEASURED or rank_correlation(predicted, rewards) >= LEAST_AGREEMENT


def guide_for(
    actions: Actions, past: Sequence[History], features: Mapping[str, float], cost: Cost | None, *, seed: int
) -> Guide | None:
    """Return an unfitted guide; None if the past has too few points."""
    past = [history for history in past if len(history.actions)]
    if sum(len(history.actions) for history in past) < FEWEST_POINTS:
        return None
    return Guide(actions, past, features, cost, seed=seed)


def _gate(seen: np.ndarray) -> "tuple[LedoitWolf, float]":
    """Return the covariance of the trials, and the largest squared Mahalanobis distance of a similar point."""
    from sklearn.covariance import LedoitWolf

    covariance = LedoitWolf().fit(seen)
    return covariance, 1.5 * float(np.quantile(covariance.mahalanobis(seen), 0.99))
