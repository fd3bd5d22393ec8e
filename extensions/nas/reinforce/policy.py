"""The policy: what it would choose for each factor, from what is known of the data, and what it expects to gain."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

WIDTH = 32


class Policy(nn.Module):
    """A categorical distribution for each factor, independent given the state, and a value beside them.

    Args:
        state_size: Numbers that describe the data and the limits.
        mask: The values that may be chosen (factors, most values).
    """

    def __init__(self, state_size: int, mask: np.ndarray) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(state_size + 1, WIDTH), nn.Tanh())
        self.heads = nn.Linear(WIDTH, mask.size)
        self.value = nn.Linear(WIDTH, 1)
        for head in (self.heads, self.value):  # at first every value is as likely as any other, and nothing is expected
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
        self.register_buffer("mask", torch.from_numpy(mask), persistent=False)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithms of the probabilities (states, factors, most values), and the values (states)."""
        # A one beside the state: of data about which nothing is known the trunk would give nothing but its bias.
        features = self.trunk(torch.cat([states, states.new_ones(len(states), 1)], dim=1))
        mask: Tensor = self.mask  # pyright: ignore[reportAssignmentType] - a buffer
        logits = self.heads(features).view(-1, *mask.shape)
        return _log_softmax(logits, mask), self.value(features).squeeze(1)

    @torch.no_grad()
    def flatten(self, state: Tensor, floor: float) -> None:
        """Even out the choices in one state (1, state size) until their entropy is at least `floor` nats."""
        temperature = temperature_for(self(state)[0], floor)
        self.heads.weight.div_(temperature)
        self.heads.bias.div_(temperature)


def log_probabilities(choices: Tensor, actions: Tensor) -> Tensor:
    """Of each factor's choice in actions (samples, factors), by choices (1 or samples, factors, most values)."""
    return choices.expand(len(actions), -1, -1).gather(2, actions.unsqueeze(2)).squeeze(2)


def entropy(choices: Tensor) -> Tensor:
    """Of the joint distribution in nats (states): the sum over the independent factors."""
    return -(choices.exp() * choices.clamp(min=-1e9)).sum((1, 2))


def divergence(choices: Tensor, reference: Tensor) -> Tensor:
    """KL(choices || reference) of the joint distributions in nats (states)."""
    difference = choices.clamp(min=-1e9) - reference.clamp(min=-1e9)
    return (choices.exp() * difference).sum((1, 2))


def most_entropy(mask: np.ndarray) -> float:
    """The entropy of the uniform distribution in nats."""
    return sum(math.log(allowed) for allowed in mask.sum(1))


def tempered(choices: Tensor, temperature: float) -> Tensor:
    """The distribution at a temperature; above 1 it is flatter."""
    return _log_softmax(choices.clamp(min=-1e9) / temperature, choices > -math.inf)


def temperature_for(choices: Tensor, floor: float, *, most: float = 100.0) -> float:
    """The lowest temperature, from 1, that gives the distribution of one state an entropy of at least `floor` nats.

    By bisection, for entropy grows with temperature; `most` is the answer where no temperature below does.
    """
    if float(entropy(choices)) >= floor:
        return 1.0
    low, high = 1.0, most
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if float(entropy(tempered(choices, middle))) >= floor else (middle, high)
    return high


def sample(choices: Tensor, samples: int, generator: np.random.Generator) -> np.ndarray:
    """Draw actions (samples, factors) from the distribution of one state, by a Gumbel variate for each value."""
    noise = generator.gumbel(size=(samples, *choices.shape[1:]))
    return np.argmax(choices.detach().numpy() + noise, axis=2)


def as_states(rows: Sequence[np.ndarray]) -> Tensor:
    """State vectors as the policy takes them (states, state size)."""
    return torch.from_numpy(np.stack(rows).astype(np.float32))


def _log_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    return torch.log_softmax(logits.masked_fill(~mask, -math.inf), dim=2)
