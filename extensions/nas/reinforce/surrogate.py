"""The supervised surrogate: what a point would come to on a data set, and how far that can be believed."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from shunter.extensions.nas.reinforce.actions import Actions
from shunter.extensions.nas.reinforce.checkpoint import optimizer_tensors, part, restore_optimizer
from shunter.extensions.nas.reinforce.experience import FIGURES, History, States

MEMBERS = 5
WIDTH = 32
FIT_STEPS = 120
LEARNING_RATE = 0.03
WEIGHT_DECAY = 1e-3


class Ensemble(nn.Module):
    """Five MLPs of one hidden layer, side by side in each matrix product.

    Args:
        inputs: Count of numbers of a sample.
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
        """Figures by each member (members, samples, figures) of inputs (samples, inputs)."""
        hidden = torch.tanh(torch.baddbmm(self.first_bias, inputs.expand(MEMBERS, -1, -1), self.first))
        return torch.baddbmm(self.last_bias, hidden, self.last)


class Surrogate:
    """Standardised figures of points by an ensemble, each member of which has not seen a fifth of the points.

    What the members say of the points that they have not seen tells whether there is anything to believe.

    Args:
        actions: Actions of the space.
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
        """Learn from all histories, going on from what was learnt before, and find out how well it works.

        `skill` is then the mean over the data sets of the rank correlation of NE with the predictions by members that
        have not seen the point.
        """
        inputs = torch.cat([self._inputs(history.features, history.actions) for history in histories])
        targets = torch.from_numpy(np.concatenate([history.standardised for history in histories])).float()
        points = [len(history.actions) for history in histories]
        weights = _weights(points).view(-1, 1) * ~targets.isnan()
        held_out = _held_out(points)
        weights = weights * ~held_out.unsqueeze(2)
        targets = targets.nan_to_num()
        for _ in range(steps):
            self._optimizer.zero_grad()
            errors = (self.network(inputs) - targets) ** 2 * weights
            # Each member has its own loss: their sum trains them side by side.
            (errors.sum((1, 2)) / weights.sum((1, 2)).clamp(min=1)).sum().backward()
            self._optimizer.step()
        with torch.no_grad():
            unseen = (self.network(inputs)[..., 0] * held_out).sum(0).numpy()
        self.skill = _mean_rank_correlation(unseen, targets[:, 0].numpy(), points)

    def predict(self, features: Mapping[str, float], actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the members (points, figures) on one data set."""
        with torch.no_grad():
            predictions = self.network(self._inputs(features, actions)).numpy()
        return predictions.mean(0), predictions.std(0)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that it has learnt, by name."""
        kept = {f"surrogate.{name}": tensor for name, tensor in self.network.state_dict().items()}
        return kept | optimizer_tensors(self._optimizer, "surrogate_optimizer")

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` kept."""
        self.network.load_state_dict(part(tensors, "surrogate"))
        restore_optimizer(self._optimizer, "surrogate_optimizer", tensors)

    def _inputs(self, features: Mapping[str, float], actions: np.ndarray) -> Tensor:
        state = np.broadcast_to(self._states.vector(features), (len(actions), len(self._states.names)))
        return torch.from_numpy(np.concatenate([state, self._actions.one_hot(actions)], axis=1).astype(np.float32))


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's coefficient; 0 where one of them does not vary."""
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def _mean_rank_correlation(predicted: np.ndarray, actual: np.ndarray, points: Sequence[int]) -> float:
    bounds = np.cumsum((0, *points))
    return float(
        np.mean([rank_correlation(predicted[a:b], actual[a:b]) for a, b in pairwise(bounds) if b > a] or [0.0])
    )


def _weights(points: Sequence[int]) -> Tensor:
    """Of each point: a data set with few counts for more than its points, ten times at most."""
    most = max(points)
    return torch.cat([torch.full((count,), min(10.0, most / max(count, 1))) for count in points])


def _held_out(points: Sequence[int]) -> Tensor:
    """Which points a member does not see (members, points): a fifth of each data set, the same in each fit."""
    positions = torch.cat([torch.arange(count) for count in points])
    return positions % MEMBERS == torch.arange(MEMBERS).unsqueeze(1)
