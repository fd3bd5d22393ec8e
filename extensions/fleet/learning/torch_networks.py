"""The networks in torch, for their gradients: the formula of `learned/networks.py` for many choices at once."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shunter.extensions.fleet.learned.networks import CRITIC, Weights, draw_weights


class Networks:
    """Actors and critic as tensors that can be trained.

    Args:
        agents: Number of features by agent.
        hidden: Width of the layers.
        seed: Of the first weights.
    """

    def __init__(self, agents: dict[str, int], hidden: int, seed: int) -> None:
        first = next(iter(agents))
        self.agents = tuple(agents)
        drawn = draw_weights({**agents, CRITIC: agents[first]}, hidden, seed)
        self.tensors = {name: torch.tensor(value, requires_grad=True) for name, value in drawn.items()}

    def load(self, weights: Weights) -> None:
        """Take over weights; those of agents that are not there are left as they are."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if name in weights and weights[name].shape == tuple(tensor.shape):
                    tensor.copy_(torch.from_numpy(weights[name]))

    def snapshot(self) -> Weights:
        """A copy for deciding."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self.tensors.items()}

    def log_probabilities(self, agent: str, candidates: Tensor, there: Tensor) -> Tensor:
        """Of each candidate of each choice, (choices, candidates).

        Args:
            agent: Whose choices.
            candidates: Features, (choices, candidates, features), padded.
            there: Which are no padding, (choices, candidates).
        """
        _, hidden = self._hidden(agent, candidates, there)
        found = hidden @ self.tensors[f"{agent}.v"]
        return torch.log_softmax(found.masked_fill(~there, -1e9), dim=1)

    def values(self, candidates: Tensor, there: Tensor) -> Tensor:
        """What the critic expects the objective to come to yet, (choices,)."""
        _, hidden = self._hidden(CRITIC, candidates, there)
        found = hidden @ self.tensors[f"{CRITIC}.v"]
        return (found * there).sum(dim=1) / there.sum(dim=1)

    def _hidden(self, agent: str, candidates: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.tanh(candidates @ self.tensors[f"{agent}.w1"] + self.tensors[f"{agent}.b1"])
        split = first.shape[2]
        mean = (first * there[:, :, None]).sum(dim=1) / there.sum(dim=1, keepdim=True)
        second = self.tensors[f"{agent}.w2"]
        shared = mean @ second[split:] + self.tensors[f"{agent}.b2"]
        return mean, torch.tanh(first @ second[:split] + shared[:, None, :])


def padded(candidates: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Candidates of several choices in one tensor, and which of its rows are candidates."""
    most = max(len(one) for one in candidates)
    found = np.zeros((len(candidates), most, candidates[0].shape[1]), dtype=np.float32)
    there = np.zeros((len(candidates), most), dtype=bool)
    for i, one in enumerate(candidates):
        found[i, : len(one)] = one
        there[i, : len(one)] = True
    return torch.from_numpy(found), torch.from_numpy(there)
