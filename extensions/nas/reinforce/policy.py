"""Policy: a distribution of the choices of each factor, and an expected reward, given meta-features of the data."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

WIDTH = 32


class Policy(nn.Module):
    """Categorical distributions of the factors, independent given the state, with a value head.

    Args:
        state_size: Number of features of the data and the limits.
        mask: True for the allowed values, `[factors, values of the largest factor]`.
    """

    def __init__(self, state_size: int, mask: np.ndarray) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(state_size + 1, WIDTH), nn.Tanh())
        self.heads = nn.Linear(WIDTH, mask.size)
        self.value = nn.Linear(WIDTH, 1)
        for head in (self.heads, self.value):  # start with the uniform distribution and value 0
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
        self.register_buffer("mask", torch.from_numpy(mask), persistent=False)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log probabilities `[states, factors, values]`, and the expected rewards `[states]`."""
        # The input has an additional 1, because for data without known features the trunk would return only its bias.
        features = self.trunk(torch.cat([states, states.new_ones(len(states), 1)], dim=1))
        mask: Tensor = self.mask  # pyright: ignore[reportAssignmentType] - a buffer
        logits = self.heads(features).view(-1, *mask.shape)
        return _log_softmax(logits, mask), self.value(features).squeeze(1)

    @torch.no_grad()
    def flatten(self, state: Tensor, floor: float) -> None:
        """Raise the temperature until the entropy in a state, `[1, state size]`, is at least `floor` nats."""
        temperature = temperature_for(self(state)[0], floor)
        self.heads.weight.div_(temperature)
        self.heads.bias.div_(temperature)


def log_probabilities(choices: Tensor, actions: Tensor) -> Tensor:
    """Return the log probabilities of actions, both `[samples, factors]`.

    Args:
        choices: Log probabilities of all values, `[1 or samples, factors, values]`.
        actions: Index of the chosen value of each factor, `[samples, factors]`.
    """
    return choices.expand(len(actions), -1, -1).gather(2, actions.unsqueeze(2)).squeeze(2)


def entropy(choices: Tensor) -> Tensor:
    """Return the entropy of the joint distribution in nats, `[states]`: the sum over the independent factors."""
    return -(choices.exp() * choices.clamp(min=-1e9)).sum((1, 2))


def divergence(choices: Tensor, reference: Tensor) -> Tensor:
    """Return KL(choices || reference) of the joint distributions in nats, `[states]`."""
    difference = choices.clamp(min=-1e9) - reference.clamp(min=-1e9)
    return (choices.exp() * difference).sum((1, 2))


def most_entropy(mask: np.ndarray) -> float:
    """Return the entropy in nats of the uniform distribution over the allowed values."""
    return sum(math.log(allowed) for allowed in mask.sum(1))


def tempered(choices: Tensor, temperature: float) -> Tensor:
    """Return the distribution at a temperature; above 1 it is flatter."""
    return _log_softmax(choices.clamp(min=-1e9) / temperature, choices > -math.inf)


def temperature_for(choices: Tensor, floor: float) -> float:
    """Return the lowest temperature, from 1, at which one state's distribution has an entropy of at least `floor` nats.

    Found by bisection, because entropy increases with temperature; at most 100.
    """
    if float(entropy(choices)) >= floor:
        return 1.0
    low, high = 1.0, 100.0
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if float(entropy(tempered(choices, middle))) >= floor else (middle, high)
    return high


def sample(choices: Tensor, samples: int, generator: np.random.Generator) -> np.ndarray:
    """Sample actions `[samples, factors]` from the distribution of one state, by Gumbel noise on each value."""
    noise = generator.gumbel(size=(samples, *choices.shape[1:]))
    return np.argmax(choices.detach().numpy() + noise, axis=2)


def as_states(rows: Sequence[np.ndarray]) -> Tensor:
    """Convert state vectors to the policy's input, float32 `[states, state size]`."""
    return torch.from_numpy(np.stack(rows).astype(np.float32))


def _log_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    return torch.log_softmax(logits.masked_fill(~mask, -math.inf), dim=2)
