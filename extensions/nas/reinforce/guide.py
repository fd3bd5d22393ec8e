"""What past trials teach a search before and while it measures: the surrogate, the inverse model, and whether to trust.

Yeung et al., "Hybrid supervised and reinforcement learning for the design and optimization of nanophotonic
structures" (arXiv 2209.04447), give the pattern: supervised models first, reinforcement learning from there.
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

FEWEST_POINTS = 12  # fewer do not tell the values of the factors apart
LEAST_SKILL = 0.3  # rank correlation on points that a member has not seen
LEAST_AGREEMENT = 0.2  # rank correlation of what was foretold with what was measured
FEWEST_MEASURED = 8  # points before agreement is judged
MOST_DISAGREEMENT = 1.0  # of the members on a point, in spreads of NE
REFIT_STEPS = 20


class Guide:
    """Foretells what points are worth, as long as it may be trusted.

    Args:
        actions: Actions of the space.
        past: Trials of other searches, or of this one before it was asked; at least one has a result.
        features: Meta-features of the present data and limits.
        cost: Cost that NE is weighed against.
        seed: Seed of all that is drawn.
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
        """Learn from the past; whether its points foretell each other well enough to be of use."""
        self.surrogate.fit(self._past)
        return self.surrogate.skill >= LEAST_SKILL

    def policy(self, *, with_value: bool = True) -> tuple[Policy, Tensor]:
        """A policy that starts where the inverse model ends, and the state that it is asked in.

        Args:
            with_value: Teaches its value head first, without which the first real rewards would all surprise it.
        """
        inverse = InverseModel(self._actions, self._states, self.surrogate, self._cost, seed=self._seed)
        state = inverse.fit(self._known, self._levels, self._features)
        if with_value:
            returns, _ = self.roll_outs(inverse.choices(state), 128, np.random.default_rng(self._seed))
            inverse.fit_value(state, float(np.mean(returns)))
        return inverse.policy, state

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

    def roll_outs(self, choices: Tensor, samples: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Synthetic episodes: foretold rewards (samples) of actions drawn by a policy (samples, factors)."""
        drawn = sample(choices, samples, generator)
        return self.foretell(drawn), drawn

    def learn(self, own: History) -> None:
        """Learn from what this search has measured, beside the past."""
        if len(own.actions):
            self.restore_levels(own)
            self.surrogate.fit([*self._past, own], REFIT_STEPS)

    def restore_levels(self, own: History) -> None:
        """Weigh costs by what this search has measured, if it has measured anything."""
        if len(own.actions):
            self._levels = own.levels


def agrees(foretold: np.ndarray, rewards: np.ndarray) -> bool:
    """Whether what was foretold before it was measured came true, as far as the points can tell."""
    return len(rewards) < FEWEST_MEASURED or rank_correlation(foretold, rewards) >= LEAST_AGREEMENT


def guide_for(
    actions: Actions, past: Sequence[History], features: Mapping[str, float], cost: Cost | None, *, seed: int
) -> Guide | None:
    """A guide that has yet to learn; None where the past has too few points."""
    past = [history for history in past if len(history.actions)]
    if sum(len(history.actions) for history in past) < FEWEST_POINTS:
        return None
    return Guide(actions, past, features, cost, seed=seed)


def _gate(seen: np.ndarray) -> "tuple[LedoitWolf, float]":
    """The covariance of what was tried, and the squared Mahalanobis distance up to which a point resembles it."""
    from sklearn.covariance import LedoitWolf

    covariance = LedoitWolf().fit(seen)
    return covariance, 1.5 * float(np.quantile(covariance.mahalanobis(seen), 0.99))
