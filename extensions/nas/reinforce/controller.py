"""The controller: a policy over the choices of a space, which learns from what each of its points came to.

A search is a row of episodes of one step in the same state. The policy is improved by proximal policy optimisation
after every few rewards. Where past trials teach something (`guide.Guide`) it starts from them and is held close to
them at first; where they turn out to mislead, it is let loose.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path

import numpy as np

from shunter.extensions.nas.reinforce import checkpoint
from shunter.extensions.nas.reinforce.actions import Action, Actions
from shunter.extensions.nas.reinforce.checkpoint import CurvePoint
from shunter.extensions.nas.reinforce.experience import History
from shunter.extensions.nas.reinforce.guide import agrees, guide_for
from shunter.extensions.nas.reinforce.learner import Learner, Tried
from shunter.extensions.nas.reinforce.policy import sample
from shunter.search.protocol import BudgetLeft, Cost, Outcome, Parameters
from shunter.search.reward import reward

BATCH = 8  # rewards between two improvements of the policy
HORIZON = 100  # rewards that a search is planned for where it has no budget in trials
GUIDED_SHARE = 0.3  # of the horizon, in which the hold of the guide falls from 1 to 0
CONTROL_EVERY = 4  # of the guided points one is drawn evenly, which tells whether the guide is right
DRAWS = 64  # of the policy for a point that is new
WARMER = 2.0  # temperature of draws where the guide does not know its way
PATIENCE = 12  # rewards in a row that fall short of the baseline, until the search returns to its best point
MARGIN = 0.5  # in standard deviations, by which they fall short


class Controller:
    """A way of searching (`shunter.search.protocol.SearchMethod`) by reinforcement learning.

    Args:
        actions: Actions of the space.
        cost: Cost that NE is weighed against.
        seed: Seed of all that is drawn.
        defaults: Points to try first.
        past: Trials of other searches that its policy may start from.
        features: Meta-features of the present data and limits, in the units of the past.
        horizon: Trials that are planned; None counts on `HORIZON`.
        trains_value: Whether the value head is taught before the policy is let loose.
        directory: Folder where its state is kept after each improvement; None keeps none.
        on_improved: Called after each improvement with where the controller stands.
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
        directory: Path | None = None,
        on_improved: Callable[[CurvePoint], None] | None = None,
    ) -> None:
        self._actions, self._seed = actions, seed
        self._cost: Cost | None = cost
        self._defaults = [action for point in defaults if (action := actions.encode(point)) is not None]
        self._past, self._features = list(past), dict(features or {})
        self._horizon, self._trains_value, self._directory = horizon or HORIZON, trains_value, directory
        self._on_improved = on_improved
        self._told: list[tuple[Action, Outcome]] = []
        self._foretold: dict[Hashable, float | None] = {}  # of each model that was asked for or told
        self._learnt = self._distrusted = 0
        self._learner: Learner | None = None
        self.curve: list[CurvePoint] = []

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """The next point: a default, or drawn by the policy; None when every point was asked for."""
        learner = self._ready()
        action = next((default for default in self._defaults if self._is_new(default)), None) or self._draw(learner)
        if action is None:
            return None
        self._foretell(learner, action)
        return self._actions.decode(action)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Note what came of a point, and improve the policy when a batch of them is there."""
        action = self._actions.encode(parameters)
        if action is None:
            return
        self._told.append((action, outcome))
        if self._learner is None:  # trials of before this process: what was foretold of them is known later
            return
        if self._is_new(action):
            self._foretold[self._actions.identity(action)] = None  # proposed by somebody else, perhaps for its quality
        if self._learner.guide and not self._guide_agrees():
            self._learner = self._let_loose()
        if len(self._told) - self._learnt >= BATCH:
            self._learn(self._learner)

    def _ready(self) -> Learner:
        """The learner, which is made at the first question: until then a search tells of its earlier trials."""
        if self._learner is None:
            self._learner = self._restored() or self._begun()
            for action, _ in self._told[self._learnt :]:
                self._foretell(self._learner, action)
            if len(self._told) - self._learnt >= BATCH:
                self._learn(self._learner)
        return self._learner

    def _begun(self) -> Learner:
        """A learner that starts from the past and what was told already."""
        guide = guide_for(self._actions, [*self._past, self._own()], self._features, self._cost, seed=self._seed)
        guide = guide if guide and guide.fit() else None
        for action, _ in self._told:  # the guide learnt from them, so that they cannot speak for it
            self._foretold[self._actions.identity(action)] = None
        learner = Learner(self._actions, guide, seed=self._seed, trains_value=self._trains_value)
        self._save(learner, [])
        return learner

    def _restored(self) -> Learner | None:
        """The learner as it was after its last improvement; None where none was kept, or of other trials."""
        kept = checkpoint.load(self._directory) if self._directory else None
        if kept is None:
            return None
        told = list(self._told)
        learnt = [_take(told, action) for action, _ in kept.learnt]
        guide = guide_for(self._actions, self._past, self._features, self._cost, seed=self._seed)
        if None in learnt or (kept.is_guided and guide is None):
            return None
        self._told = [pair for pair in learnt if pair] + told  # in the order in which they were learnt
        self._learnt, self.curve = len(learnt), list(kept.curve)
        for action, foretold in kept.learnt:
            self._foretold[self._actions.identity(action)] = foretold
        guide = guide if kept.is_guided else None
        if guide:
            guide.restore_levels(self._own(self._learnt))
        return Learner.restore(self._actions, guide, kept.tensors, seed=self._seed)

    def _learn(self, learner: Learner) -> None:
        """One improvement by all that was tried, of the guide's surrogate too."""
        tried = self._tried()
        if learner.guide:
            learner.guide.learn(self._own())
        trusted = 1.0 - min(1.0, self._distrusted / max(len(tried) - self._learnt, 1))
        weight = self._hold() * trusted if learner.guide else 0.0
        learner.learn(tried, weight)
        self._learnt, self._distrusted = len(tried), 0
        self._note(learner, tried, weight)

    def _guide_agrees(self) -> bool:
        """Whether what the guide said of points before they were measured came true."""
        guided = [point for point in self._tried() if point.foretold is not None]
        return agrees(np.array([point.foretold for point in guided]), np.array([point.reward for point in guided]))

    def _let_loose(self) -> Learner:
        """A learner that starts anew, without the past that has misled the one before."""
        self._foretold = dict.fromkeys(self._foretold)
        self._learnt = 0
        return Learner(self._actions, None, seed=self._seed)

    def _note(self, learner: Learner, tried: Sequence[Tried], guide_weight: float) -> None:
        """Add to the learning curve, and keep the state."""
        point = CurvePoint(
            evaluations=len(tried),
            best_reward=max(point.reward for point in tried),
            entropy_share=learner.entropy_share(),
            guide_weight=guide_weight,
            is_guided=learner.guide is not None,
        )
        self.curve.append(point)
        self._save(learner, tried)
        if self._on_improved:
            self._on_improved(point)

    def _save(self, learner: Learner, tried: Sequence[Tried]) -> None:
        """Keep the state, of which these are what it was learnt from."""
        if self._directory:
            kept = checkpoint.Checkpoint(
                tensors=learner.tensors(),
                learnt=tuple((point.action, point.foretold) for point in tried),
                is_guided=learner.guide is not None,
                curve=tuple(self.curve),
            )
            checkpoint.save(self._directory, kept)

    def _hold(self) -> float:
        """Weight of the divergence from the first policy: from 1 to 0 over the first share of the horizon."""
        return max(0.0, 1.0 - len(self._told) / (GUIDED_SHARE * self._horizon))

    def _draw(self, learner: Learner) -> Action | None:
        """A point that was not asked for, by the policy, or as far from it as it takes to find one."""
        known = len(self._foretold)
        generator = np.random.default_rng((self._seed, known))  # so that a search that goes on draws as it would have
        if learner.guide and self._hold() > 0 and known % CONTROL_EVERY == CONTROL_EVERY - 1:
            return self._first_new(self._actions.uniform(DRAWS, generator)) or self._any_new(generator)
        near = self._near_the_best(generator) if self._falls_short() else None
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
            actions = np.stack(np.unravel_index(np.arange(self._actions.count), self._actions.sizes), axis=1)
            return self._first_new(generator.permutation(actions))
        return self._first_new(self._actions.uniform(10_000, generator))

    def _first_new(self, drawn: np.ndarray) -> Action | None:
        actions = (tuple(map(int, row)) for row in drawn)
        return next((action for action in actions if self._is_new(action) and self._actions.fits(action)), None)

    def _near_the_best(self, generator: np.random.Generator) -> Action | None:
        """A new point that differs from the best one in one factor; None where all are known."""
        best = max(self._tried(), key=lambda point: point.reward).action
        return self._first_new(generator.permutation(np.array(self._actions.neighbours(best))))

    def _falls_short(self) -> bool:
        """Whether the last points were all clearly worse than the first one, which is the baseline."""
        if len(self._told) <= PATIENCE:
            return False
        rewards = np.array([point.reward for point in self._tried()])
        return bool((rewards[-PATIENCE:] < rewards[0] - MARGIN * rewards.std()).all())

    def _is_new(self, action: Action) -> bool:
        return self._actions.identity(action) not in self._foretold

    def _foretell(self, learner: Learner, action: Action) -> None:
        """Note that a point is known, and what the guide says of it before it is measured."""
        foretold = float(learner.guide.foretell(_row(action))[0]) if learner.guide else None
        self._foretold.setdefault(self._actions.identity(action), foretold)

    def _tried(self) -> list[Tried]:
        """What was told, with rewards by the cost of the first point that has one."""
        cost = self._cost
        reference = next((paid for _, outcome in self._told if cost and (paid := outcome.costs.get(cost))), None)
        return [
            Tried(
                action=action,
                reward=reward(outcome, reference_cost=reference, cost=cost),
                foretold=self._foretold.get(self._actions.identity(action)),
            )
            for action, outcome in self._told
        ]

    def _own(self, count: int | None = None) -> History:
        """What was told, or the first of it, as the surrogate learns it."""
        told = ((self._actions.decode(action), outcome) for action, outcome in self._told[:count])
        return History.of(self._actions, self._features, told)


def _take(told: list[tuple[Action, Outcome]], action: Action) -> tuple[Action, Outcome] | None:
    """Take the first outcome of an action out of a list; None where it is not there."""
    index = next((index for index, (known, _) in enumerate(told) if known == action), None)
    return None if index is None else told.pop(index)


def _row(action: Action) -> np.ndarray:
    return np.array([action])
