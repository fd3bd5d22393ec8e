"""Supervised surrogate: predicts the figures of a point on a data set, and estimates its own reliability."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from shunter.extensions.nas.reinforce.checkpoint import optimizer_tensors, part, restore_optimizer
from shunter.extensions.nas.reinforce.experience import FIGURES, Actions, History, States

MEMBERS = 5
WIDTH = 32
FIT_STEPS = 120
LEARNING_RATE = 0.03
WEIGHT_DECAY = 1e-3


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
        self._optimizer = torch.optim.AdamW(self.network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
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
