"""Guide of a search from past trials: the surrogate, the inverse model, and checks of their reliability.

The pattern is that of Yeung et al., "Hybrid supervised and reinforcement learning for the design and optimization of
nanophotonic structures" (arXiv 2209.04447): supervised models first, then reinforcement learning from there.

The surrogate predicts the figures of a point on a data set, and estimates its own reliability.

The inverse model maps a target on a data set to choices that reach the target. It has the same architecture as the
policy, so that the policy starts as a copy of the inverse model.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from shunter.extensions.nas.reinforce.checkpoint import optimizer_tensors, part, restore_optimizer
from shunter.extensions.nas.reinforce.experience import (
    FIGURES,
    Actions,
    History,
    Levels,
    States,
    pooled_levels,
    predicted_reward,
)
from shunter.extensions.nas.reinforce.policy import Policy, as_states, log_probabilities, most_entropy, sample
from shunter.search.protocol import COSTS, Cost

if TYPE_CHECKING:
    from sklearn.covariance import LedoitWolf

MEMBERS = 5
WIDTH = 32
FIT_STEPS = 120
SURROGATE_LEARNING_RATE = 0.03
WEIGHT_DECAY = 1e-3
CANDIDATES = 1024
ROUNDS = 3  # further rounds of candidates, each sampled from the value frequencies of the best so far
PARENTS = 0.1  # share of the candidates from which the next round is sampled
ELITES = 0.01  # share of the candidates that the inverse model imitates
FEWEST_ELITES = 4
COST_QUANTILES = (0.1, 0.25, 0.5, 1.0)
INITIAL_ENTROPY = 0.3  # of the uniform distribution's entropy, as the lower bound of an initial policy
IMITATION_STEPS = 80
VALUE_STEPS = 40
LEARNING_RATE = 0.04
TARGETS = 2  # standardised NE, and standardised log cost
FEWEST_POINTS = 12  # fewer do not separate the effects of the factors
LEAST_SKILL = 0.3  # rank correlation on points that a member was not trained on
LEAST_AGREEMENT = 0.2  # rank correlation of predictions with measurements
FEWEST_MEASURED = 8  # fewest points to compute the agreement
MOST_DISAGREEMENT = 1.0  # standard deviation of the members' predictions, in spreads of NE
REFIT_STEPS = 20


class Ensemble(nn.Module):
    """Five MLPs with one hidden layer, computed together in batched matrix products.

    Args:
        generator: Generator of the initial weights.
    """

    def __init__(self, inputs: int, generator: torch.Generator) -> None:
        super().__init__()

        def normal(*shape: int, fan_in: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(MEMBERS, *shape, generator=generator) / fan_in**0.5)

        self.first, self.first_bias = normal(inputs, WIDTH, fan_in=inputs), nn.Parameter(torch.zeros(MEMBERS, 1, WIDTH))
        self.last = normal(WIDTH, FIGURES, fan_in=WIDTH)
        self.last_bias = nn.Parameter(torch.zeros(MEMBERS, 1, FIGURES))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the figures from each member, `[members, samples, figures]`, given inputs `[samples, inputs]`."""
        hidden = torch.tanh(torch.baddbmm(self.first_bias, inputs.expand(MEMBERS, -1, -1), self.first))
        return torch.baddbmm(self.last_bias, hidden, self.last)


class Surrogate:
    """Ensemble that predicts standardised figures of points; each member is trained without a fifth of the points.

    The members' predictions of their held-out points show if the surrogate is reliable.

    Args:
        actions: Encoding of the space's points.
        states: Vectors of meta-features, by name.
        seed: Seed of the initial weights.
    """

    def __init__(self, actions: Actions, states: States, *, seed: int) -> None:
        self._actions, self._states = actions, states
        inputs = len(states.names) + sum(actions.sizes)
        self.network = Ensemble(inputs, torch.Generator().manual_seed(seed))
        self._optimizer = torch.optim.AdamW(
            self.network.parameters(), SURROGATE_LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        self.skill = 0.0

    def fit(self, histories: Sequence[History], steps: int = FIT_STEPS) -> None:
        """Continue the training on all histories, and measure the quality of the predictions.

        `skill` is then the mean over data sets of the rank correlation between NE and the predictions of the members
        that were not trained on the point.
        """
        inputs = torch.cat([self._inputs(history.features, history.actions) for history in histories])
        targets = torch.from_numpy(np.concatenate([history.standardised for history in histories])).float()
        points = [len(history.actions) for history in histories]
        # Points of small data sets have up to ten times the weight of others.
        weight_of = [min(10.0, max(points) / max(count, 1)) for count in points]
        weights = torch.tensor(weight_of).repeat_interleave(torch.tensor(points)).view(-1, 1) * ~targets.isnan()
        # Each member does not see a fixed fifth of each data set, `[members, points]`.
        positions = torch.cat([torch.arange(count) for count in points])
        held_out = positions % MEMBERS == torch.arange(MEMBERS).unsqueeze(1)
        weights = weights * ~held_out.unsqueeze(2)
        targets = targets.nan_to_num()
        for _ in range(steps):
            self._optimizer.zero_grad()
            errors = (self.network(inputs) - targets) ** 2 * weights
            # Each member has its own loss; the sum of the losses trains all members independently.
            (errors.sum((1, 2)) / weights.sum((1, 2)).clamp(min=1)).sum().backward()
            self._optimizer.step()
        with torch.no_grad():
            unseen = (self.network(inputs)[..., 0] * held_out).sum(0).numpy()
        actual, bounds = targets[:, 0].numpy(), pairwise(np.cumsum((0, *points)))
        skills = [rank_correlation(unseen[a:b], actual[a:b]) for a, b in bounds if b > a]
        self.skill = float(np.mean(skills or [0.0]))

    def predict(self, features: Mapping[str, float], actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the members' predictions on one data set, each `[points, figures]`."""
        with torch.no_grad():
            predictions = self.network(self._inputs(features, actions)).numpy()
        return predictions.mean(0), predictions.std(0)

    def tensors(self) -> dict[str, Tensor]:
        """Return all learned state by name."""
        kept = {f"surrogate.{name}": tensor for name, tensor in self.network.state_dict().items()}
        return kept | optimizer_tensors(self._optimizer, "surrogate_optimizer")

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""
        self.network.load_state_dict(part(tensors, "surrogate"))
        restore_optimizer(self._optimizer, "surrogate_optimizer", tensors)

    def _inputs(self, features: Mapping[str, float], actions: np.ndarray) -> Tensor:
        state = np.broadcast_to(self._states.vector(features), (len(actions), len(self._states.names)))
        return torch.from_numpy(np.concatenate([state, self._actions.one_hot(actions)], axis=1).astype(np.float32))


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's coefficient; 0 if one of the inputs is constant."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


class InverseModel:
    """Model that learns from the surrogate's best points which choices meet a target, on each known data set.

    Args:
        actions: Encoding of the space's points.
        states: Vectors of meta-features, by name.
        surrogate: Fitted surrogate.
        cost: Cost against which NE is weighed, if any.
        seed: Seed of the candidates and the initial weights.
    """

    def __init__(self, actions: Actions, states: States, surrogate: Surrogate, cost: Cost | None, *, seed: int) -> None:
        self._actions, self._states, self._surrogate = actions, states, surrogate
        self._cost: Cost | None = cost
        self._column = None if cost is None else 1 + COSTS.index(cost)
        self._generator = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.policy = Policy(len(states.names) + TARGETS, actions.mask)

    def fit(self, known: Sequence[Mapping[str, float]], levels: Levels, present: Mapping[str, float]) -> Tensor:
        """Imitate the surrogate's best actions; return the present search's state with its targets, `[1, state size]`.

        Args:
            known: Meta-features of all data sets, including the present one.
            levels: Levels of the present data, which set the weight of the cost.
            present: Meta-features of the present data.
        """
        best, figures = self._search(present, lambda figures: predicted_reward(figures, levels, self._cost))
        cost = figures[:, self._column].max() if self._column else 0.0
        aim = self._state(present, figures[:, 0].mean(), cost)
        examples = [(aim, best), *(example for features in known for example in self._best_within_costs(features))]
        states = as_states([state for state, actions in examples for _ in actions])
        labels = torch.from_numpy(np.concatenate([actions for _, actions in examples]))
        optimizer = torch.optim.Adam(self.policy.parameters(), LEARNING_RATE)
        for _ in range(IMITATION_STEPS):
            optimizer.zero_grad()
            choices, _ = self.policy(states)
            (-log_probabilities(choices, labels).sum(1).mean()).backward()
            optimizer.step()
        state = as_states([aim])
        self.policy.flatten(state, INITIAL_ENTROPY * most_entropy(self._actions.mask))
        return state

    def choices(self, state: Tensor) -> Tensor:
        """Return the policy's log probabilities of the values of each factor, float `[states, factors, values]`."""
        with torch.no_grad():
            return self.policy(state)[0]

    def fit_value(self, state: Tensor, value: float) -> None:
        """Train the value head on the predicted reward of the policy in a state, before any real reward is known."""
        wanted = torch.tensor([value])
        optimizer = torch.optim.Adam(self.policy.value.parameters(), LEARNING_RATE)
        for _ in range(VALUE_STEPS):
            optimizer.zero_grad()
            _, predicted = self.policy(state)
            ((predicted - wanted) ** 2).mean().backward()
            optimizer.step()

    def _best_within_costs(self, features: Mapping[str, float]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the state and the best actions of a data set within each quantile of the cost."""
        column = self._column
        if column is None:
            best, figures = self._search(features, lambda figures: -figures[:, 0])
            return [(self._state(features, figures[:, 0].mean(), 0.0), best)]
        everyday, _ = self._surrogate.predict(features, self._candidates)
        examples = []
        for most in np.quantile(everyday[:, column], COST_QUANTILES):

            def score(figures: np.ndarray, most: float = most) -> np.ndarray:
                return -figures[:, 0] - 10.0 * np.maximum(figures[:, column] - most, 0.0)

            best, figures = self._search(features, score)
            examples.append((self._state(features, figures[:, 0].mean(), most), best))
        return examples

    def _state(self, features: Mapping[str, float], ne: float, cost: float) -> np.ndarray:
        """Return the state of a data set with targets for NE and cost."""
        return np.concatenate([self._states.vector(features), [ne, cost]])

    def _search(
        self, features: Mapping[str, float], score: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the surrogate's best actions `[elites, factors]` and their figures, by the cross-entropy method.

        For a small space the first candidates are the whole space. For a large one each round samples each factor from
        the values of the best actions so far.
        """
        pool, figures = self._ranked(self._candidates, features, score)
        for _ in range(ROUNDS if self._actions.count > CANDIDATES else 0):
            parents = pool[: _count(len(pool), PARENTS)]
            drawn = np.stack([self._generator.choice(column, CANDIDATES) for column in parents.T], axis=1)
            pool, figures = self._ranked(np.concatenate([parents, drawn]), features, score)
        elites = self._fitting(pool, _count(len(pool), ELITES))
        return pool[elites], figures[elites]

    @cached_property
    def _candidates(self) -> np.ndarray:
        """Sample actions `[candidates, factors]` uniformly within the memory limit; without it if no action fits."""
        drawn = np.unique(self._actions.uniform(CANDIDATES, self._generator), axis=0)
        return drawn[self._fitting(drawn, len(drawn))]

    def _fitting(self, pool: np.ndarray, most: int) -> np.ndarray:
        """Return the indices of the first `most` actions that fit into memory, or of the first `most` if none fits."""
        places = (place for place, action in enumerate(pool) if self._actions.fits(tuple(map(int, action))))
        return np.array(list(islice(places, most)) or range(min(most, len(pool))))

    def _ranked(
        self, drawn: np.ndarray, features: Mapping[str, float], score: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct actions, the best first, and their figures."""
        pool = np.unique(drawn, axis=0)
        figures, _ = self._surrogate.predict(features, pool)
        order = np.argsort(-score(figures), kind="stable")
        return pool[order], figures[order]


def _count(candidates: int, share: float) -> int:
    return max(FEWEST_ELITES, round(share * candidates))


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
            with_value: If True, pretrain the value head too; otherwise the first real rewards all differ from the
                head's values.
        """
        inverse = InverseModel(self._actions, self._states, self.surrogate, self._cost, seed=self._seed)
        state = inverse.fit(self._known, self._levels, self._features)
        if with_value:
            returns, _ = self.roll_outs(inverse.choices(state), 128, np.random.default_rng(self._seed))
            inverse.fit_value(state, float(np.mean(returns)))
        return inverse.policy, state

    def predict(self, actions: np.ndarray) -> np.ndarray:
        """Return the predicted reward of each action: its gain over a median point, in units of the spread of NE."""
        figures, _ = self.surrogate.predict(self._features, actions)
        return predicted_reward(figures, self._levels, self._cost)

    def trusts(self, actions: np.ndarray) -> np.ndarray:
        """Return for each action True if the surrogate's members agree on it and it resembles the training data."""
        _, spread = self.surrogate.predict(self._features, actions)
        covariance, most_distance = self._gate
        distances = covariance.mahalanobis(self._actions.one_hot(actions))
        return (spread[:, 0] <= MOST_DISAGREEMENT) & (distances <= most_distance)

    def roll_outs(self, choices: Tensor, samples: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return predicted rewards `[samples]` of actions `[samples, factors]` that are sampled from a policy."""
        drawn = sample(choices, samples, generator)
        return self.predict(drawn), drawn

    def learn(self, own: History) -> None:
        """Fit to the measurements of this search, in addition to the past."""
        if len(own.actions):
            self.restore_levels(own)
            self.surrogate.fit([*self._past, own], REFIT_STEPS)

    def restore_levels(self, own: History) -> None:
        """Replace the assumed centre and spread of the figures by those that this search measured, if any."""
        if len(own.actions):
            self._levels = own.levels


def agrees(predicted: np.ndarray, rewards: np.ndarray) -> bool:
    """Return True if predictions agree with the later measurements, or if there are too few points to compare."""
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
    """Return the covariance of the trials' settings, and the largest squared Mahalanobis distance of similar points."""
    from sklearn.covariance import LedoitWolf

    covariance = LedoitWolf().fit(seen)
    return covariance, 1.5 * float(np.quantile(covariance.mahalanobis(seen), 0.99))
