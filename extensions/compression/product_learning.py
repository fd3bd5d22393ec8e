"""Layers of tables that learn: prototypes by k-means, then together with the weights through a soft assignment.

LUT-NN (Tang et al., MobiCom 2023, arXiv 2302.03213): the forward pass is the finished layer's, with the nearest
prototype and rounded tables; gradients are those of a mixture of all prototypes, weighed by a softmax over distances
whose temperature is learned too.
"""

from typing import Any

import torch
from torch import Tensor, nn

from shunter.extensions.compression.product import ProductLinear

MOST_VECTORS = 4_096  # of each part that k-means sees
LEAST_WEIGHT = 1e-3  # of an input in its part's distances, relative to the mean, so that none is divided by zero
SMALLEST = 1e-12

ROUNDS = 12


class _Forward(torch.autograd.Function):
    """The second of two tensors, whose gradient goes to the first."""

    @staticmethod
    def forward(ctx: Any, mixed: Tensor, hard: Tensor) -> Tensor:
        """`hard`."""
        return hard.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """All of it to `mixed`."""
        return gradients[0], None


class LearnedProduct(nn.Module):
    """A linear layer on its way to a `ProductLinear`.

    An input counts in the distances of its sub-vector as much as its weights are large, for that is what an error in it
    does to the outputs. The prototypes are learned as shares of the grid's largest number.

    Args:
        linear: The layer.
        seen: What it sees of some rows, `[rows, inputs]`.
        options: `length`, `prototypes` and `bits`.
        seed: Of the first prototypes.
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
        # So that a vector at the usual distance from its prototype is given to it by about two thirds.
        nearest = squared_distances(vectors[:, :512], centres).topk(2, dim=2, largest=False).values
        gap = (nearest[..., 1] - nearest[..., 0]).mean(1)
        self.sharpness = nn.Parameter(-gap.clamp(min=1e-6).log())

    def forward(self, input: Tensor) -> Tensor:
        """`[batch, inputs]` to `[batch, outputs]`: the finished layer's output, with the gradient of the mixture."""
        vectors = self._parts(input.float())
        shares = torch.softmax(-self.sharpness.exp()[:, None, None] * squared_distances(vectors, self.prototypes), 2)
        mixed = shares.transpose(0, 1).flatten(1) @ self._table(self.prototypes).flatten(0, 1) + self.bias
        with torch.no_grad():
            hard = self.finished()(input.float())
        return _Forward.apply(mixed, hard)

    @torch.no_grad()
    def finished(self) -> ProductLinear:
        """The layer as it is scored with."""
        level = self.form.level
        codes = (self.prototypes * level).round().clamp(-level, level)
        table = self._table(codes / level)
        table[0] += self.bias
        return self.form.fill(self.scale * level, codes, table)

    def finished_copy(self) -> ProductLinear:
        """The same as a layer of its own, which learning on does not change."""
        made = ProductLinear(self.form.inputs, self.form.outputs, **self.options)
        made.load_state_dict(self.finished().state_dict())
        return made

    def _table(self, prototypes: Tensor) -> Tensor:
        """What prototypes give for all outputs, without the bias: `[parts, prototypes, outputs]`."""
        turned = (self.weight / self.scale).t()
        padded = nn.functional.pad(turned, (0, 0, 0, self.form.parts * self.form.length - self.form.inputs))
        return torch.bmm(prototypes, padded.view(self.form.parts, self.form.length, -1))

    def _parts(self, rows: Tensor) -> Tensor:
        """`[rows, inputs]` to `[parts, rows, length]` on the grid, as shares of its largest number."""
        form = self.form
        padded = nn.functional.pad(rows * self.scale, (0, form.parts * form.length - form.inputs))
        return padded.view(len(rows), form.parts, form.length).transpose(0, 1)

    def _scale_of(self, rows: Tensor) -> Tensor:
        """What inputs are multiplied by: by their weights within a part, so that the largest of the part becomes 1."""
        norm = self.weight.detach().norm(dim=0)
        norm = norm.clamp(min=LEAST_WEIGHT * float(norm.mean()) + SMALLEST)
        largest = (rows.abs() * norm).amax(0).clamp(min=SMALLEST)
        form = self.form
        padded = nn.functional.pad(largest, (0, form.parts * form.length - form.inputs))
        of_part = padded.view(form.parts, form.length).amax(1).repeat_interleave(form.length)[: form.inputs]
        return norm / of_part


def learned_products(module: nn.Module) -> dict[str, LearnedProduct]:
    """The layers of tables that learn, by their paths."""
    return {path: one for path, one in module.named_modules() if isinstance(one, LearnedProduct)}


def groups_of(layers: nn.Module, rate: float, sharpness_rate: float) -> list[dict[str, Any]]:
    """Parameters as an optimiser takes them: temperatures have a rate of their own."""
    sharp = [one.sharpness for one in learned_products(layers).values()]
    known = {id(one) for one in sharp}
    others = [one for one in layers.parameters() if id(one) not in known]
    return [{"params": others, "lr": rate}, {"params": sharp, "lr": sharpness_rate}]


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
