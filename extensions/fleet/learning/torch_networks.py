"""Networks in torch, for gradients: the formula of `learned/networks.py` for a batch of choices."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from shunter.extensions.fleet.learned.networks import CRITIC, Weights, draw_weights


class Networks:
    """Trainable actors and critic.

    Args:
        agents: Number of features by agent.
        hidden: Width of the layers.
        seed: Seed of the initial weights.
    """

    def __init__(self, agents: dict[str, int], hidden: int, seed: int) -> None:
        first = next(iter(agents))
        self.agents = tuple(agents)
        drawn = draw_weights({**agents, CRITIC: agents[first]}, hidden, seed)
        self.tensors = {name: torch.tensor(value, requires_grad=True) for name, value in drawn.items()}

    def load(self, weights: Weights) -> None:
        """Load the weights of policy networks; agents without weights in the file keep their current ones."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if name in weights and weights[name].shape == tuple(tensor.shape):
                    tensor.copy_(torch.from_numpy(weights[name]))

    def snapshot(self) -> Weights:
        """Return a copy of the weights in numpy, for decisions."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self.tensors.items()}

    def log_probabilities(self, agent: str, candidates: Tensor, mask: Tensor) -> Tensor:
        """Return the log probability of each candidate of each choice, (choices, candidates).

        Args:
            agent: Agent of the choices.
            candidates: Features, (choices, candidates, features), padded.
            mask: True for candidates, False for padding, (choices, candidates).
        """
        _, hidden = self._hidden(agent, candidates, mask)
        found = hidden @ self.tensors[f"{agent}.v"]
        return torch.log_softmax(found.masked_fill(~mask, -1e9), dim=1)

    def values(self, candidates: Tensor, mask: Tensor) -> Tensor:
        """Return the critic's prediction of the remaining increase of the objective, (choices,)."""
        _, hidden = self._hidden(CRITIC, candidates, mask)
        found = hidden @ self.tensors[f"{CRITIC}.v"]
        return (found * mask).sum(dim=1) / mask.sum(dim=1)

    def _hidden(self, agent: str, candidates: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.tanh(candidates @ self.tensors[f"{agent}.w1"] + self.tensors[f"{agent}.b1"])
        split = first.shape[2]
        mean = (first * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        second = self.tensors[f"{agent}.w2"]
        shared = mean @ second[split:] + self.tensors[f"{agent}.b2"]
        return mean, torch.tanh(first @ second[:split] + shared[:, None, :])


def padded(candidates: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return the candidates of several choices as one padded tensor, with a mask of the candidates."""
    most = max(len(one) for one in candidates)
    found = np.zeros((len(candidates), most, candidates[0].shape[1]), dtype=np.float32)
    mask = np.zeros((len(candidates), most), dtype=bool)
    for i, one in enumerate(candidates):
        found[i, : len(one)] = one
        mask[i, : len(one)] = True
    return torch.from_numpy(found), torch.from_numpy(mask)
