"""The controller: a policy over the choices of a space, which learns from what each of its points came to.

A search is a row of episodes of one step in the same state. The policy is improved by proximal policy optimisation
after every few rewards. Where past trials teach something (`guide.Guide`) it starts from them and is held close to
them at first; where they turn out to mislead, it is let loose.
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from tasks.tune.method import BudgetLeft, Cost, Outcome, Parameters
from tasks.tune.reinforce.actions import Action, Actions
from tasks.tune.reinforce.experience import History
from tasks.tune.reinforce.guide import Guide, agrees
from tasks.tune.reinforce.learner import Learner, Tried
from tasks.tune.reinforce.policy import sample
from tasks.tune.reward import reward

BATCH = 8  # rewards between two improvements of the policy
HORIZON = 100  # rewards that a search is planned for where it has no budget in trials
GUIDED_SHARE = 0.3  # of the horizon, in which the hold of the guide falls from 1 to 0
CONTROL_EVERY = 4  # of the guided points one is drawn evenly, which tells whether the guide is right
DRAWS = 64  # of the policy for a point that is new
WARMER = 2.0  # temperature of draws where the guide does not know its way
PATIENCE = 12  # rewards in a row that fall short of the baseline, until the search returns to its best point
MARGIN = 0.5  # in standard deviations, by which they fall short


class Controller:
    """A way of searching (`tasks.tune.method.SearchMethod`) by reinforcement learning.

    Args:
        actions: of the space.
        cost: what NE is weighed against.
        seed: of all that is drawn.
        defaults: points to try first.
        past: trials of other searches that its policy may start from.
        features: of the present data and limits, in the terms of the past.
        horizon: trials that are planned; None counts on `HORIZON`.
        trains_value: whether the value head is taught before the policy is let loose.
    """

    def __init__(
        self,
        actions: Actions,
        *,
        cost: Cost | None = None,
        seed: int = 0,
        defaults: Sequence[Parameters] = (),
        past: Sequence[History] = (),
        features: Mapping[str, float] | None = None,
        horizon: int | None = None,
        trains_value: bool = True,
    ) -> None:
        self._actions, self._seed = actions, seed
        self._cost: Cost | None = cost
        self._defaults = [action for point in defaults if (action := actions.encode(point)) is not None]
        self._past, self._features = list(past), dict(features or {})
        self._horizon, self._trains_value = horizon or HORIZON, trains_value
        self._told: list[tuple[Parameters, Outcome]] = []
        self._tried: list[Tried] = []
        self._foretold: dict[Hashable, float | None] = {}  # of each model that was asked for or told
        self._draws = self._learnt = self._distrusted = 0
        self._learner: Learner | None = None

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """The next point: a default, or drawn by the policy; None when every point was asked for."""
        learner = self._ready()
        action = next((one for one in self._defaults if self._is_new(one)), None) or self._draw(learner)
        if action is None:
            return None
        guide = learner.guide
        self._foretold[self._actions.identity(action)] = float(guide.foretell(_row(action))[0]) if guide else None
        return self._actions.decode(action)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Note what came of a point, and improve the policy when a batch of them is there."""
        action = self._actions.encode(parameters)
        if action is None:
            return
        known = self._foretold.setdefault(self._actions.identity(action), None)
        self._told.append((parameters, outcome))
        self._tried.append(Tried(action=action, reward=self._reward(outcome), foretold=known))
        if self._learner and len(self._tried) - self._learnt >= BATCH:
            self._learn(self._learner)

    def _ready(self) -> Learner:
        """The learner, which is made at the first question: until then a search may tell of earlier trials."""
        if self._learner is None:
            own = History.of(self._actions, self._features, self._told)
            guide = Guide.fit(self._actions, [*self._past, own], self._features, self._cost, seed=self._seed)
            self._learner = Learner(self._actions, guide, seed=self._seed, trains_value=self._trains_value)
            if self._tried:
                self._learn(self._learner)
        return self._learner

    def _learn(self, learner: Learner) -> None:
        """One improvement by all that was tried; a guide that was wrong is left first."""
        guided = [one for one in self._tried if one.foretold is not None]
        if learner.guide:
            if not agrees(np.array([one.foretold for one in guided]), np.array([one.reward for one in guided])):
                learner.let_loose()
            else:
                learner.guide.learn(History.of(self._actions, self._features, self._told))
        fresh = len(self._tried) - self._learnt
        trusted = 1.0 - min(1.0, self._distrusted / max(fresh, 1))
        learner.learn(self._tried, self._hold() * trusted)
        self._learnt, self._distrusted = len(self._tried), 0

    def _hold(self) -> float:
        """Weight of the divergence from the first policy: from 1 to 0 over the first share of the horizon."""
        return max(0.0, 1.0 - len(self._tried) / (GUIDED_SHARE * self._horizon))

    def _draw(self, learner: Learner) -> Action | None:
        """A point that was not asked for, by the policy, or as far from it as it takes to find one."""
        self._draws += 1
        generator = np.random.default_rng((self._seed, self._draws))
        if learner.guide and self._hold() > 0 and self._draws % CONTROL_EVERY == 0:
            return self._first_new(self._actions.uniform(DRAWS, generator))
        if self._falls_short():
            best = max(self._tried, key=lambda one: one.reward).action
            near = self._first_new(generator.permutation(np.array(self._actions.neighbours(best))))
            if near is not None:
                return near
        warmer = 1.0
        while warmer < 100:
            action = self._first_new(sample(learner.choices(warmer=warmer), DRAWS, generator))
            if action is not None and learner.guide and warmer == 1 and not learner.guide.trusts(_row(action))[0]:
                self._distrusted += 1
                action = None
            if action is not None:
                return action
            warmer *= WARMER
        return self._any_new(generator)

    def _any_new(self, generator: np.random.Generator) -> Action | None:
        """Any point that was not asked for; None where a small space has none left."""
        if self._actions.count <= 10_000:
            every = np.stack(np.unravel_index(np.arange(self._actions.count), self._actions.sizes), axis=1)
            return self._first_new(generator.permutation(every))
        return self._first_new(self._actions.uniform(10_000, generator))

    def _first_new(self, drawn: np.ndarray) -> Action | None:
        actions = (tuple(map(int, row)) for row in drawn)
        return next((action for action in actions if self._is_new(action) and self._actions.fits(action)), None)

    def _is_new(self, action: Action) -> bool:
        return self._actions.identity(action) not in self._foretold

    def _falls_short(self) -> bool:
        """Whether the last points were all clearly worse than the first one, which is the baseline."""
        if len(self._tried) <= PATIENCE:
            return False
        rewards = np.array([one.reward for one in self._tried])
        return bool((rewards[-PATIENCE:] < rewards[0] - MARGIN * rewards.std()).all())

    def _reward(self, outcome: Outcome) -> float:
        return reward(outcome, reference_cost=self._reference_cost(), cost=self._cost)

    def _reference_cost(self) -> float | None:
        """The cost of the first point that has one."""
        if self._cost is None:
            return None
        return next((cost for _, outcome in self._told if (cost := outcome.costs.get(self._cost))), None)


def _row(action: Action) -> np.ndarray:
    return np.array([action])
