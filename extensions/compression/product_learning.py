"""Training of lookup-table layers: prototypes by k-means, then jointly with the weights by a soft assignment.

LUT-NN (Tang et al., MobiCom 2023, arXiv 2302.03213): the forward pass is that of the final layer, with the nearest
prototype and rounded tables. Gradients are those of a mixture of all prototypes, weighted by a softmax over distances
with a learned temperature.
"""

from typing import Any

import torch
from torch import Tensor, nn

from shunter.extensions.compression.product import ProductLinear

MOST_VECTORS = 4_096  # of each part, for k-means
LEAST_WEIGHT = 1e-3  # smallest relative weight of an input in its part's distances, against division by zero
SMALLEST = 1e-12

ROUNDS = 12


class _Forward(torch.autograd.Function):
    """Autograd function that returns the second of two tensors, and passes its gradient to the first."""

    @staticmethod
    def forward(ctx: Any, mixed: Tensor, hard: Tensor) -> Tensor:
        """Return a copy of `hard`, the output of the final layer."""
        return hard.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the unchanged gradient for `mixed`, and None for `hard`."""
        return gradients[0], None


class LearnedProduct(nn.Module):
    """Product-quantised linear layer (`ProductLinear`) with trainable prototypes.

    The weight of an input in the distances of its sub-vector is the size of its linear weights, because that scales the
    error of the outputs. Prototypes are stored as shares of the largest grid value.

    Args:
        linear: Linear layer to replace.
        seen: Inputs of the layer for a sample of rows, `[rows, inputs]`.
        options: `length`, `prototypes` and `bits`.
        seed: Seed of the first prototypes.
    """

    scale: Tensor

    def __init__(self, linear: nn.Linear, seen: Tensor, options: dict[str, int], seed: int = 0) -> None:
        super().__init__()
        self.options = options
        self.form = ProductLinear.empty(linear, **options)
        self.weight = nn.Parameter(linear.weight.detach().clone())
        bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach().clone()
        self.bias = nn.Parameter(bias)
        rows = seen[:MOST_VECTORS]
        self.register_buffer("scale", self._scale_of(rows))
        vectors = self._parts(rows)
        centres = prototypes_of(vectors, self.form.count, seed)
        self.prototypes = nn.Parameter(centres)
        # A vector at the typical distance from its prototype is assigned to it with a weight of about two thirds.
        nearest = squared_distances(vectors[:, :512], centres).topk(2, dim=2, largest=False).values
        gap = (nearest[..., 1] - nearest[..., 0]).mean(1)
        self.sharpness = nn.Parameter(-gap.clamp(min=1e-6).log())

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`: the final layer's output, with the gradient of the mixture."""
        vectors = self._parts(input.float())
        shares = torch.softmax(-self.sharpness.exp()[:, None, None] * squared_distances(vectors, self.prototypes), 2)
        mixed = shares.transpose(0, 1).flatten(1) @ self._table(self.prototypes).flatten(0, 1) + self.bias
        with torch.no_grad():
            hard = self.finished()(input.float())
        return _Forward.apply(mixed, hard)

    @torch.no_grad()
    def finished(self) -> ProductLinear:
        """Return the trained layer in its form for scoring."""
        level = self.form.level
        codes = (self.prototypes * level).round().clamp(-level, level)
        table = self._table(codes / level)
        table[0] += self.bias
        return self.form.fill(self.scale * level, codes, table)

    def finished_copy(self) -> ProductLinear:
        """Return a copy of the layer for scoring that further training does not change."""
        made = ProductLinear(self.form.inputs, self.form.outputs, **self.options)
        made.load_state_dict(self.finished().state_dict())
        return made

    def _table(self, prototypes: Tensor) -> Tensor:
        """Return the products of prototypes with the weights, without the bias: `[parts, prototypes, outputs]`."""
        turned = (self.weight / self.scale).t()
        padded = nn.functional.pad(turned, (0, 0, 0, self.form.parts * self.form.length - self.form.inputs))
        return torch.bmm(prototypes, padded.view(self.form.parts, self.form.length, -1))

    def _parts(self, rows: Tensor) -> Tensor:
        """Multiply inputs `[rows, inputs]` by their factors, and cut them into sub-vectors `[parts, rows, length]`."""
        form = self.form
        padded = nn.functional.pad(rows * self.scale, (0, form.parts * form.length - form.inputs))
        return padded.view(len(rows), form.parts, form.length).transpose(0, 1)

    def _scale_of(self, rows: Tensor) -> Tensor:
        """Return a factor per input: the norm of its weights, scaled so that each sub-vector's largest value is 1."""
        norm = self.weight.detach().norm(dim=0)
        norm = norm.clamp(min=LEAST_WEIGHT * float(norm.mean()) + SMALLEST)
        largest = (rows.abs() * norm).amax(0).clamp(min=SMALLEST)
        form = self.form
        padded = nn.functional.pad(largest, (0, form.parts * form.length - form.inputs))
        of_part = padded.view(form.parts, form.length).amax(1).repeat_interleave(form.length)[: form.inputs]
        return norm / of_part


def learned_products(module: nn.Module) -> dict[str, LearnedProduct]:
    """Return the trainable lookup-table layers inside a module, by their path in the module."""
    return {path: one for path, one in module.named_modules() if isinstance(one, LearnedProduct)}


def groups_of(layers: nn.Module, rate: float, sharpness_rate: float) -> list[dict[str, Any]]:
    """Return two parameter groups for an optimiser: the layers' temperatures have their own learning rate."""
    sharp = [one.sharpness for one in learned_products(layers).values()]
    known = {id(one) for one in sharp}
    others = [one for one in layers.parameters() if id(one) not in known]
    return [{"params": others, "lr": rate}, {"params": sharp, "lr": sharpness_rate}]


@torch.no_grad()
def prototypes_of(parts: Tensor, count: int, seed: int = 0, rounds: int = ROUNDS) -> Tensor:
    """Return cluster centres (k-means++: Arthur and Vassilvitskii, SODA 2007; then Lloyd's iterations).

    A centre without vectors restarts at the vector with the largest distance from its own centre.

    Args:
        parts: Vectors of each part, `[parts, vectors, length]`.
        count: Number of clusters.
        seed: Seed of the first centres.
        rounds: Number of Lloyd's iterations.

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
    """Map vectors `[parts, vectors, length]` and centres `[parts, count, length]` to `[parts, vectors, count]`."""
    cross = torch.bmm(vectors, centres.transpose(1, 2))
    found = vectors.square().sum(2, keepdim=True) - 2 * cross + centres.square().sum(2).unsqueeze(1)
    return found.clamp(min=0)


def _first_centres(parts: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Sample the first centres, with probability proportional to the squared distance from centres sampled before."""
    everywhere, vectors = torch.arange(len(parts)), parts.shape[1]
    centres = [parts[everywhere, torch.randint(vectors, (len(parts),), generator=generator)]]
    least = squared_distances(parts, centres[0].unsqueeze(1)).squeeze(2)
    while len(centres) < count:
        chances = least + 1e-12 * least.amax(1, keepdim=True) + 1e-30  # if all vectors are equal, sample any
        drawn = torch.multinomial(chances, 1, generator=generator).squeeze(1)
        centres.append(parts[everywhere, drawn])
        least = torch.minimum(least, squared_distances(parts, centres[-1].unsqueeze(1)).squeeze(2))
    return torch.stack(centres, dim=1)
