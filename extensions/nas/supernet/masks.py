"""What a super-net has to choose, and how it chooses: Gumbel-softmax over learned logits, for each sample anew.

Jang, Gu and Poole, "Categorical Reparameterization with Gumbel-Softmax" (arXiv 1611.01144); one sample for each example
of a batch instead of one for the batch, as in DNAS (arXiv 2110.14812): the gradient of the logits is less noisy, and
candidates that are rarely drawn still learn from some of the examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Masks:
    """How much of each candidate there is, for each sample.

    Attributes:
        values: `[batch, choices, candidates of the largest]`; of a choice they sum to one, what it lacks is 0.
        places: Number of each choice by its name.
        sizes: Candidates of each choice by its name.
    """

    values: Tensor
    places: Mapping[str, int]
    sizes: Mapping[str, int]

    def __getitem__(self, name: str) -> Tensor:
        """`[batch, candidates]` of a choice."""
        return self.values[:, self.places[name], : self.sizes[name]]


class Choices(nn.Module):
    """The logits theta of every choice; all candidates are as likely at first.

    Args:
        sizes: Candidates of each choice, by its name.

    Attributes:
        theta: `[choices, candidates of the largest]`; entries that a choice lacks are never read.
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
        """Draw a mixture of the candidates for each sample; the lower the temperature, the nearer to one of them.

        Args:
            batch: Samples.
            temperature: Tau, above 0.
        """
        logits = self.logits().t().unsqueeze(1).expand(-1, batch, -1)
        # Over the first axis, along which a processor computes many softmaxes at a time.
        drawn = nn.functional.gumbel_softmax(logits, tau=temperature, dim=0)
        return self.masks(drawn.permute(1, 2, 0))

    def values(self) -> dict[str, list[float]]:
        """Theta of each choice."""
        rows = self.theta.tolist()
        return {name: row[:size] for (name, size), row in zip(self.sizes.items(), rows, strict=True)}

    @torch.no_grad()
    def probabilities(self) -> dict[str, list[float]]:
        """Of the candidates of each choice."""
        rows = self.logits().softmax(1).tolist()
        return {name: row[:size] for (name, size), row in zip(self.sizes.items(), rows, strict=True)}

    def one_hot(self, picked: Mapping[str, int], batch: int = 1) -> Masks:
        """Masks of exactly one candidate of each choice, the first where none is picked."""
        numbers = torch.tensor([picked.get(name, 0) for name in self.sizes], device=self.theta.device)
        values = nn.functional.one_hot(numbers, self.theta.shape[1]).to(self.theta.dtype)
        return self.masks(values.expand(batch, -1, -1))

    def masks(self, values: Tensor) -> Masks:
        """Name the choices in `[batch, choices, candidates of the largest]`."""
        return Masks(values=values, places=self.places, sizes=self.sizes)

    def logits(self) -> Tensor:
        """`[choices, candidates of the largest]`, minus infinity where there is no candidate."""
        return self.theta.masked_fill(~self.exists, -torch.inf)


def draw(theta: Mapping[str, Sequence[float]], generator: torch.Generator, temperature: float = 1.0) -> dict[str, int]:
    """Draw one candidate of each choice, by their probabilities: samples, and not always the likeliest.

    Args:
        theta: Logits of each choice.
        generator: Source of the random numbers.
        temperature: Above 1 unlikely candidates are drawn more often than they should.
    """
    chances = {name: (torch.tensor(values) / temperature).softmax(0) for name, values in theta.items()}
    return {name: int(torch.multinomial(chance, 1, generator=generator)) for name, chance in chances.items()}
