"""The inverse model: from what is wanted on a data set to the choices that bring it, which is where a policy starts.

It has the policy's own shape, so that the policy starts as a copy of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tasks.tune.method import Cost
from tasks.tune.reinforce.actions import Actions
from tasks.tune.reinforce.experience import COSTS, Levels, States, predicted_reward
from tasks.tune.reinforce.policy import Policy, as_states, log_probabilities, most_entropy, sample
from tasks.tune.reinforce.surrogate import Surrogate

CANDIDATES = 2048
ELITES = 0.01  # share of the candidates that the inverse model imitates
COST_QUANTILES = (0.1, 0.25, 0.5, 1.0)
INITIAL_ENTROPY = 0.3  # least share of the uniform distribution's that a policy starts with
IMITATION_STEPS = 80
VALUE_STEPS = 40
ROLL_OUTS = 128
TARGETS = 2  # standardised NE, and standardised logarithm of the cost


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One row of the inverse model's lesson: a state with targets, and an action that meets them."""

    state: np.ndarray
    action: np.ndarray


class InverseModel:
    """Learns from the surrogate's best points which choices meet a target, on each data set that is known.

    Args:
        actions: of the space.
        states: that make vectors of meta-features.
        surrogate: fitted.
        cost: what NE is weighed against, if anything.
        seed: of the candidates and the initial weights.
    """

    def __init__(self, actions: Actions, states: States, surrogate: Surrogate, cost: Cost | None, *, seed: int) -> None:
        self._actions, self._states, self._surrogate = actions, states, surrogate
        self._cost: Cost | None = cost
        self._generator = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.policy = Policy(len(states.names) + TARGETS, actions.mask)

    def fit(self, known: Sequence[Mapping[str, float]], levels: Levels, present: Mapping[str, float]) -> Tensor:
        """Imitate the best actions by the surrogate; returns the state with the targets of the present search (1, n).

        Args:
            known: meta-features of the data sets, the present one among them.
            levels: of the present data, which weigh the cost.
            present: meta-features of the present data.
        """
        candidates = self._candidates()
        lessons = [lesson for features in known for lesson in self._lessons(features, candidates)]
        best, aim = self._best_by_reward(present, levels, candidates)
        lessons += [Wanted(state=aim, action=action) for action in best]
        states = as_states([lesson.state for lesson in lessons])
        labels = torch.from_numpy(np.stack([lesson.action for lesson in lessons]))
        optimizer = torch.optim.Adam(self.policy.parameters(), 0.04)
        for _ in range(IMITATION_STEPS):
            optimizer.zero_grad()
            choices, _ = self.policy(states)
            (-log_probabilities(choices, labels).sum(1).mean()).backward()
            optimizer.step()
        state = as_states([aim])
        self.policy.flatten(state, INITIAL_ENTROPY * most_entropy(self._actions.mask))
        return state

    def fit_value(self, state: Tensor, features: Mapping[str, float], levels: Levels) -> None:
        """Teach the value head what the surrogate makes of the policy's own actions, before any real one is known."""
        with torch.no_grad():
            choices, _ = self.policy(state)
        returns, _ = self.roll_outs(choices, features, levels, ROLL_OUTS)
        wanted = torch.tensor([float(np.mean(returns))])
        optimizer = torch.optim.Adam(self.policy.value.parameters(), 0.05)
        for _ in range(VALUE_STEPS):
            optimizer.zero_grad()
            _, value = self.policy(state)
            ((value - wanted) ** 2).mean().backward()
            optimizer.step()

    def roll_outs(
        self, choices: Tensor, features: Mapping[str, float], levels: Levels, samples: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Synthetic episodes: rewards by the surrogate (samples) of actions drawn by the policy (samples, factors)."""
        drawn = sample(choices, samples, self._generator)
        figures, _ = self._surrogate.predict(features, drawn)
        return predicted_reward(figures, levels, self._cost), drawn

    def _candidates(self) -> np.ndarray:
        drawn = np.unique(self._actions.uniform(CANDIDATES, self._generator), axis=0)
        return np.array([action for action in drawn if self._actions.fits(tuple(action))])

    def _lessons(self, features: Mapping[str, float], candidates: np.ndarray) -> list[Wanted]:
        """For one data set the best points within each quantile of the cost."""
        figures, _ = self._surrogate.predict(features, candidates)
        vector = self._states.vector(features)
        column = 1 + COSTS.index(self._cost) if self._cost else None
        lessons: list[Wanted] = []
        for quantile in COST_QUANTILES if column else (1.0,):
            allowed = np.arange(len(candidates))
            cost = 0.0
            if column:
                cost = float(np.quantile(figures[:, column], quantile))
                allowed = np.flatnonzero(figures[:, column] <= cost)
            best = allowed[np.argsort(figures[allowed, 0], kind="stable")[: _elites(len(candidates))]]
            target = np.array([figures[best, 0].mean(), cost])
            lessons += [Wanted(state=np.concatenate([vector, target]), action=candidates[one]) for one in best]
        return lessons

    def _best_by_reward(
        self, features: Mapping[str, float], levels: Levels, candidates: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best actions of the present data by reward, and the state with the targets that they meet."""
        figures, _ = self._surrogate.predict(features, candidates)
        best = np.argsort(-predicted_reward(figures, levels, self._cost), kind="stable")[: _elites(len(candidates))]
        cost = figures[best, 1 + COSTS.index(self._cost)].max() if self._cost else 0.0
        target = np.array([figures[best, 0].mean(), cost])
        return candidates[best], np.concatenate([self._states.vector(features), target])


def _elites(candidates: int) -> int:
    return max(4, round(ELITES * candidates))
