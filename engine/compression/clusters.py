"""Prototypes of sub-vectors by k-means, for all parts of a layer at once."""

import torch
from torch import Tensor

ROUNDS = 12


@torch.no_grad()
def prototypes_of(parts: Tensor, count: int, seed: int = 0, rounds: int = ROUNDS) -> Tensor:
    """The centres of some clusters (k-means++: Arthur and Vassilvitskii, SODA 2007; then Lloyd's iterations).

    A centre that nothing is nearest to begins anew at the vector that lies farthest from its own.

    Args:
        parts: Vectors of each part, `[parts, vectors, length]`.
        count: Clusters.
        seed: Of the first centres.
        rounds: Lloyd's iterations.

    Returns:
        `[parts, count, length]`.
    """
    generator = torch.Generator().manual_seed(seed)
    centres = _first_centres(parts, count, generator)
    for _ in range(rounds):
        distances = squared_distances(parts, centres)
        least, nearest = distances.min(2)
        chosen = torch.nn.functional.one_hot(nearest, count).to(parts.dtype)
        sizes = chosen.sum(1)
        centres = torch.bmm(chosen.transpose(1, 2), parts) / sizes.clamp(min=1).unsqueeze(2)
        for part in (sizes == 0).any(1).nonzero().flatten().tolist():
            dead = (sizes[part] == 0).nonzero().flatten()
            farthest = least[part].topk(min(len(dead), parts.shape[1])).indices
            centres[part, dead[: len(farthest)]] = parts[part, farthest]
    return centres


def squared_distances(vectors: Tensor, centres: Tensor) -> Tensor:
    """`[parts, vectors, length]` and `[parts, count, length]` to `[parts, vectors, count]`."""
    cross = torch.bmm(vectors, centres.transpose(1, 2))
    found = vectors.square().sum(2, keepdim=True) - 2 * cross + centres.square().sum(2).unsqueeze(1)
    return found.clamp(min=0)


def _first_centres(parts: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Vectors drawn one after the other, each with the probability of its squared distance from those before."""
    everywhere, vectors = torch.arange(len(parts)), parts.shape[1]
    centres = [parts[everywhere, torch.randint(vectors, (len(parts),), generator=generator)]]
    least = squared_distances(parts, centres[0].unsqueeze(1)).squeeze(2)
    while len(centres) < count:
        chances = least + 1e-12 * least.amax(1, keepdim=True) + 1e-30  # where all vectors are alike, any will do
        drawn = torch.multinomial(chances, 1, generator=generator).squeeze(1)
        centres.append(parts[everywhere, drawn])
        least = torch.minimum(least, squared_distances(parts, centres[-1].unsqueeze(1)).squeeze(2))
    return torch.stack(centres, dim=1)
