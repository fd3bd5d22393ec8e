"""Choices of a super-net: Gumbel-softmax masks over learned logits, sampled for each example.

Jang, Gu and Poole, "Categorical Reparameterization with Gumbel-Softmax" (arXiv 1611.01144). One draw is made for each
example instead of one for the batch, as in DNAS (arXiv 2110.14812). The gradient of the logits is thus less noisy, and
rarely drawn candidates still learn from some examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Masks:
    """Weight of each candidate, for each sample.

    Attributes:
        values: `[batch, choices, candidates of the largest]`; the weights of a choice sum to one, padding is 0.
        places: Index of each choice by its name.
        sizes: Number of candidates of each choice by its name.
    """

    values: Tensor
    places: Mapping[str, int]
    sizes: Mapping[str, int]

    def __getitem__(self, name: str) -> Tensor:
        """Return the weights of a choice, `[batch, candidates]`."""
        return self.values[:, self.places[name], : self.sizes[name]]


class Choices(nn.Module):
    """Logits theta of every choice, initially with equally likely candidates.

    Args:
        sizes: Number of candidates of each choice, by its name.

    Attributes:
        theta: `[choices, candidates of the largest]`; padding entries are never read.
    """

    exists: Tensor

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.sizes = dict(sizes)
        self.places = {name: place for place, name in enumerate(self.sizes)}
        counts = torch.tensor(list(self.sizes.values()))
        self.theta = nn.Parameter(torch.zeros(len(counts), int(counts.max())))
        exists = torch.arange(self.theta.shape[1]) < counts.unsqueeze(1)
        self.register_buffer("exists", exists, persistent=False)

    def soft(self, batch: int, temperature: float) -> Masks:
        """Sample a mixture of the candidates for each sample; the lower the temperature, the closer to one-hot.

        Args:
            batch: Number of samples.
            temperature: Temperature tau, above 0.
        """
        logits = self.logits().t().unsqueeze(1).expand(-1, batch, -1)
        # Softmax over the first axis, which a CPU vectorises across many softmaxes.
        drawn = nn.functional.gumbel_softmax(logits, tau=temperature, dim=0)
        return self.masks(drawn.permute(1, 2, 0))

    def values(self) -> dict[str, list[float]]:
        """Return the parameters theta of each choice."""
        rows = self.theta.tolist()
        return {name: row[:size] for (name, size), row in zip(self.sizes.items(), rows, strict=True)}

    @torch.no_grad()
    def probabilities(self) -> dict[str, list[float]]:
        """Return the probabilities of each choice's candidates."""
        rows = self.logits().softmax(1).tolist()
        return {name: row[:size] for (name, size), row in zip(self.sizes.items(), rows, strict=True)}

    def one_hot(self, picked: Mapping[str, int], batch: int = 1) -> Masks:
        """Return one-hot masks of one candidate of each choice; the first candidate by default."""
        numbers = torch.tensor([picked.get(name, 0) for name in self.sizes], device=self.theta.device)
        values = nn.functional.one_hot(numbers, self.theta.shape[1]).to(self.theta.dtype)
        return self.masks(values.expand(batch, -1, -1))

    def masks(self, values: Tensor) -> Masks:
        """Wrap `[batch, choices, candidates of the largest]` as masks with names."""
        return Masks(values=values, places=self.places, sizes=self.sizes)

    def logits(self) -> Tensor:
        """Return `[choices, candidates of the largest]`, minus infinity for padding."""
        return self.theta.masked_fill(~self.exists, -torch.inf)


def draw(theta: Mapping[str, Sequence[float]], generator: torch.Generator, temperature: float = 1.0) -> dict[str, int]:
    """Sample one candidate of each choice from their probabilities.

    Args:
        theta: Logits of each choice.
        generator: Random generator.
        temperature: Above 1, unlikely candidates are sampled more often than their probability.
    """
    chances = {name: (torch.tensor(values) / temperature).softmax(0) for name, values in theta.items()}
    return {name: int(torch.multinomial(chance, 1, generator=generator)) for name, chance in chances.items()}
