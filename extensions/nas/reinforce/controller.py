"""Controller: a policy over the choices of a space that learns from the result of each point.

A search is a sequence of one-step episodes in the same state. The policy is improved by proximal policy optimisation
after every few rewards. If past trials are informative (`guide.Guide`), the policy starts from them and is penalised
for diverging from them at first. If the past trials prove misleading, the policy restarts without them.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.reinforce import checkpoint
from shunter.extensions.nas.reinforce.checkpoint import CurvePoint
from shunter.extensions.nas.reinforce.experience import Action, Actions, History
from shunter.extensions.nas.reinforce.guide import agrees, guide_for
from shunter.extensions.nas.reinforce.learner import Learner, Tried
from shunter.extensions.nas.reinforce.policy import sample
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Cost, Outcome, Parameters
from shunter.search.reward import reward
from shunter.tracking.runs import Run, open_run

BATCH = 8  # number of rewards between two improvements of the policy
HORIZON = 100  # planned number of rewards of a search without a budget in trials
GUIDED_SHARE = 0.3  # share of the horizon in which the weight of the guide falls from 1 to 0
CONTROL_EVERY = 4  # one of this many guided points is sampled uniformly, to check the guide
DRAWS = 64  # samples of the policy to find a new point
WARMER = 2.0  # temperature of samples where the guide is uncertain
PATIENCE = 12  # rewards in a row below the baseline, until the search returns to its best point
MARGIN = 0.5  # in standard deviations below the baseline


class Controller:
    """Search method (`shunter.search.protocol.SearchMethod`) by reinforcement learning.

    Args:
        actions: Encoding of the space's points.
        cost: Cost against which NE is weighed.
        seed: Seed of all random draws.
        defaults: Points to try first.
        past: Trials of other searches for a warm start.
        features: Meta-features of the present data and limits, in the same units as those of past studies.
        horizon: Planned number of trials; None for `HORIZON`.
        trains_value: If True, the value head is pretrained too.
        directory: Folder where the state is saved after each improvement; None to save nothing.
        run: MLflow run to which the learning curve is logged; None to log nothing.
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
        run: Run | None = None,
    ) -> None:
        self._actions, self._seed = actions, seed
        self._cost: Cost | None = cost
        self._defaults = [action for point in defaults if (action := actions.encode(point)) is not None]
        self._past, self._features = list(past), dict(features or {})
        self._horizon, self._trains_value, self._directory = horizon or HORIZON, trains_value, directory
        self._run = run
        self._told: list[tuple[Action, Outcome]] = []
        self._predictions: dict[Hashable, float | None] = {}  # by model that was requested or reported
        self._learnt = self._distrusted = 0
        self._learner: Learner | None = None
        self.curve: list[CurvePoint] = []

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next point: a default, or a sample of the policy; None if every point was requested."""
        learner = self._ready()
        action = next((default for default in self._defaults if self._is_new(default)), None) or self._draw(learner)
        if action is None:
            return None
        self._predict_returns(learner, action)
        return self._actions.decode(action)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Record the result of a point, and improve the policy when a batch of results is complete."""
        action = self._actions.encode(parameters)
        if action is None:
            return
        self._told.append((action, outcome))
        if self._learner is None:  # trials before this process are predicted later
            return
        # A new action was proposed by another method, perhaps for its quality.
        self._predictions.setdefault(self._actions.identity(action), None)
        guided = [point for point in self._tried() if point.predicted is not None] if self._learner.guide else []
        if not agrees(np.array([point.predicted for point in guided]), np.array([point.reward for point in guided])):
            # The past trials are misleading.
            self._predictions = dict.fromkeys(self._predictions)
            self._learnt = 0
            self._learner = Learner(self._actions, None, seed=self._seed)
        if len(self._told) - self._learnt >= BATCH:
            self._learn(self._learner)

    def _ready(self) -> Learner:
        """Return the learner; create it at the first call, which follows the reports of the search's earlier trials."""
        if self._learner is None:
            self._learner = self._restored() or self._begun()
            for action, _ in self._told[self._learnt :]:
                self._predict_returns(self._learner, action)
            if len(self._told) - self._learnt >= BATCH:
                self._learn(self._learner)
        return self._learner

    def _begun(self) -> Learner:
        """Return a new learner, trained on past studies and on the results so far."""
        guide = guide_for(self._actions, [*self._past, self._own()], self._features, self._cost, seed=self._seed)
        guide = guide if guide and guide.fit() else None
        for action, _ in self._told:  # part of the guide's training data, so no test of the guide
            self._predictions[self._actions.identity(action)] = None
        learner = Learner(self._actions, guide, seed=self._seed, trains_value=self._trains_value)
        self._save(learner, [])
        return learner

    def _restored(self) -> Learner | None:
        """Return the saved learner; None if there is none, or if it was trained on other trials."""
        kept = checkpoint.load(self._directory) if self._directory else None
        if kept is None:
            return None
        told, learnt = list(self._told), list[tuple[Action, Outcome]]()
        for action, _ in kept.learnt:
            index = next((index for index, (known, _) in enumerate(told) if known == action), None)
            if index is None:
                return None
            learnt.append(told.pop(index))
        guide = guide_for(self._actions, self._past, self._features, self._cost, seed=self._seed)
        if kept.is_guided and guide is None:
            return None
        self._told = learnt + told  # in the order of training
        self._learnt, self.curve = len(learnt), list(kept.curve)
        for action, predicted in kept.learnt:
            self._predictions[self._actions.identity(action)] = predicted
        guide = guide if kept.is_guided else None
        if guide:
            guide.restore_levels(self._own(self._learnt))
        return Learner.restore(self._actions, guide, kept.tensors, seed=self._seed)

    def _learn(self, learner: Learner) -> None:
        """Improve the policy, and the guide's surrogate, from all trials."""
        tried = self._tried()
        if learner.guide:
            learner.guide.learn(self._own())
        trusted = 1.0 - min(1.0, self._distrusted / max(len(tried) - self._learnt, 1))
        weight = self._anchor_weight() * trusted if learner.guide else 0.0
        learner.learn(tried, weight)
        self._learnt, self._distrusted = len(tried), 0
        point = CurvePoint(
            evaluations=len(tried),
            best_reward=max(point.reward for point in tried),
            entropy_share=learner.entropy_share(),
            guide_weight=weight,
            is_guided=learner.guide is not None,
        )
        self.curve.append(point)
        self._save(learner, tried)
        if self._run:
            figures = {name: float(value) for name, value in asdict(point).items() if name != "evaluations"}
            metrics = {f"search.rl.{name}": value for name, value in figures.items()}
            self._run.log_metrics(metrics, step=point.evaluations)

    def _save(self, learner: Learner, tried: Sequence[Tried]) -> None:
        """Save the learned state, with the trials that it was trained on."""
        if self._directory:
            kept = checkpoint.Checkpoint(
                tensors=learner.tensors(),
                learnt=tuple((point.action, point.predicted) for point in tried),
                is_guided=learner.guide is not None,
                curve=tuple(self.curve),
            )
            checkpoint.save(self._directory, kept)

    def _anchor_weight(self) -> float:
        """Return the weight of the divergence from the first policy: from 1 to 0 over part of the horizon."""
        return max(0.0, 1.0 - len(self._told) / (GUIDED_SHARE * self._horizon))

    def _draw(self, learner: Learner) -> Action | None:
        """Sample a new point from the policy; raise the temperature until one is found."""
        known = len(self._predictions)
        generator = np.random.default_rng((self._seed, known))  # so that a resumed search draws the same numbers
        if learner.guide and self._anchor_weight() > 0 and known % CONTROL_EVERY == CONTROL_EVERY - 1:
            return self._first_new(self._actions.uniform(DRAWS, generator)) or self._any_new(generator)
        near = self._near_the_best(generator)
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
        """Return any new point; None if a small space has none left."""
        if self._actions.count <= 10_000:
            actions = np.stack(np.unravel_index(np.arange(self._actions.count), self._actions.sizes), axis=1)
            return self._first_new(generator.permutation(actions))
        return self._first_new(self._actions.uniform(10_000, generator))

    def _first_new(self, drawn: np.ndarray) -> Action | None:
        actions = (tuple(map(int, row)) for row in drawn)
        return next((action for action in actions if self._is_new(action) and self._actions.fits(action)), None)

    def _near_the_best(self, generator: np.random.Generator) -> Action | None:
        """Return a new point that differs from the best one in one factor; None if all were requested before.

        None too unless the last points were all clearly worse than the first one, the baseline.
        """
        tried = self._tried()
        rewards = np.array([point.reward for point in tried])
        if len(tried) <= PATIENCE or not (rewards[-PATIENCE:] < rewards[0] - MARGIN * rewards.std()).all():
            return None
        best = max(tried, key=lambda point: point.reward).action
        return self._first_new(generator.permutation(np.array(self._actions.neighbours(best))))

    def _is_new(self, action: Action) -> bool:
        return self._actions.identity(action) not in self._predictions

    def _predict_returns(self, learner: Learner, action: Action) -> None:
        """Record a point, with the reward that the guide predicts for it before the measurement."""
        predicted = float(learner.guide.predict(_row(action))[0]) if learner.guide else None
        self._predictions.setdefault(self._actions.identity(action), predicted)

    def _tried(self) -> list[Tried]:
        """Return the reported points, with rewards relative to the first point with a cost."""
        cost = self._cost
        reference = next((paid for _, outcome in self._told if cost and (paid := outcome.costs.get(cost))), None)
        return [
            Tried(
                action=action,
                reward=reward(outcome, reference_cost=reference, cost=cost),
                predicted=self._predictions.get(self._actions.identity(action)),
            )
            for action, outcome in self._told
        ]

    def _own(self, count: int | None = None) -> History:
        """Return the reported points, or only the first `count`, as training data of the surrogate."""
        told = ((self._actions.decode(action), outcome) for action, outcome in self._told[:count])
        return History.of(self._actions, self._features, told)


def _row(action: Action) -> np.ndarray:
    return np.array([action])


def controller_for(context: SearchContext) -> Controller:
    """Return the search method; it starts without a guide if there are no past studies of similar points.

    Raises:
        RequestError: A factor of the space has no values.
        InfeasibleError: Even the smallest architecture takes more memory than the limit allows.
        DataError: An array cannot be read.
        TrackingError: The run of the search cannot be opened.
    """
    space, limits = context.space, context.limits
    defaults, features = space.defaults(), dict[str, float]()
    if any(study.features for study in context.past):  # otherwise no past study has meta-features to compare with
        from shunter.extensions.meta_learning.features import meta_features  # imported by reading the past studies

        features = meta_features(context.dataset)
    actions = Actions(
        space.factors(),
        default=defaults[0] if defaults else None,
        identity=space.identity,
        bytes_of=space.parameter_bytes if isinstance(space, ArchitectureSpace) else None,
        most_bytes=limits.max_memory_gib * 2**30 if limits and limits.max_memory_gib else None,
    )
    return Controller(
        actions,
        cost=context.cost,
        seed=context.seed,
        defaults=defaults,
        past=[History.of(actions, _in_units(study.features), study.trials) for study in context.past],
        features=_in_units(features),
        horizon=context.trials,
        directory=context.directory,
        run=None if context.run_id is None else open_run(context.run_id),
    )


def _in_units(features: Mapping[str, float]) -> dict[str, float]:
    """Return meta-features in units in which data sets are compared, where a difference of one is relevant."""
    if not features:
        return {}
    from shunter.extensions.meta_learning.features import SCALES

    return {
        name: scaled(features[name]) / unit
        for name, (scaled, unit) in SCALES.items()
        if math.isfinite(features.get(name, math.nan))
    }
