"""Fine-tuning of models with compressed layers by distillation from the original, and trainable lookup-table layers.

The prototypes of lookup-table layers are found by k-means, then trained jointly with the weights by a soft assignment.
LUT-NN (Tang et al., MobiCom 2023, arXiv 2302.03213): the forward pass is that of the final layer, with the nearest
prototype and rounded tables. Gradients are those of a mixture of all prototypes, weighted by a softmax over distances
with a learned temperature.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied
from shunter.extensions.compression.compressed_linear import ProductLinear
from shunter.models.registry import Model

MOST_VECTORS = 4_096  # of each part, for k-means
LEAST_WEIGHT = 1e-3  # smallest relative weight of an input in its part's distances, against division by zero
SMALLEST = 1e-12
ROUNDS = 12  # of Lloyd's iterations


@dataclass(frozen=True)
class FineTuning:
    """Settings of the fine-tuning.

    Attributes:
        rows: Number of training rows.
        batch_rows: Rows per step.
        learning_rate: Initial rate of weights and prototypes; falls to 0 with a cosine schedule.
        sharpness_rate: Learning rate of the softmax temperatures of lookup-table layers.
        seed: Seed of the order of the rows.
    """

    rows: int = 65_536
    batch_rows: int = 512
    learning_rate: float = 5e-4
    sharpness_rate: float = 1e-2
    seed: int = 0


def fine_tune(layers: nn.Module, teacher: Model, dataset: Dataset, execution: Execution, how: FineTuning) -> None:
    """Train layers to predict what a model predicts (Hinton et al., arXiv 1503.02531), from its own embeddings.

    Labels are not used, because a click model overfits rows that it sees again.

    Args:
        layers: Layers to train, on the CPU, which replace the teacher's layers.
        teacher: Original model, in evaluation mode.
        dataset: Data set of the model.
        execution: Execution that gives the threads.
        how: Settings of the fine-tuning.

    Raises:
        DataError: An array cannot be read.
    """
    layers.eval()  # no dropout, and fixed statistics of batch normalisation
    size = min(how.batch_rows, dataset.splits["train"].rows)
    loader = BatchLoader(dataset, "train", size, shuffle=True, seed=how.seed)
    steps = max(1, how.rows // size)
    sharp = [one.sharpness for one in learned_products(layers).values()]
    others = [one for one in layers.parameters() if all(one is not other for other in sharp)]
    groups = [{"params": others, "lr": how.learning_rate}, {"params": sharp, "lr": how.sharpness_rate}]
    optimizer = torch.optim.Adam(groups)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    step, epoch = 0, 0
    with applied(execution), torch.enable_grad():
        while step < steps:
            for batch in loader.batches(epoch=epoch):
                with torch.no_grad():
                    inputs = teacher.layer_inputs(*batch.inputs)
                    said = teacher.layers(*inputs).float()
                optimizer.zero_grad(set_to_none=True)
                learned = layers(*inputs).float()
                if teacher.features.number is None:
                    loss = nn.functional.binary_cross_entropy_with_logits(learned, said.sigmoid())
                else:
                    loss = nn.functional.mse_loss(learned, said)
                loss.backward()
                optimizer.step()
                rate.step()
                step += 1
                if step >= steps:
                    break
            epoch += 1


@torch.no_grad()
def divergence(layers: nn.Module, teacher: Model, inputs: tuple[torch.Tensor, ...]) -> float:
    """Return the mean divergence of the predictions of compressed layers from those of the original model.

    It is the Kullback-Leibler divergence of clicks in nats, or the squared difference of the outputs for numbers.

    Args:
        layers: Compressed layers.
        teacher: Original model.
        inputs: Inputs of the layers for a sample of rows (`Recommender.layer_inputs`).
    """
    said, other = (one(*inputs).double() for one in (teacher.layers, layers))
    if teacher.features.number is not None:
        return float(nn.functional.mse_loss(other, said))
    log = nn.functional.logsigmoid
    found = said.sigmoid() * (log(said) - log(other)) + (-said).sigmoid() * (log(-said) - log(-other))
    return float(found.mean())


class _Forward(torch.autograd.Function):
    """Autograd function that returns the second of two tensors, and passes its gradient to the first."""

    @staticmethod
    def forward(ctx: Any, mixed: Tensor, hard: Tensor) -> Tensor:
        return hard.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class LearnedProduct(nn.Module):
    """Product-quantised linear layer (`ProductLinear`) with trainable prototypes.

    The weight of an input in the distances of its sub-vector is the size of its linear weights, because that scales the
    error of the outputs. Prototypes are stored as shares of the largest grid value.

    Args:
        linear: Linear layer to replace.
        seen: Inputs of the layer for a sample of rows, `[rows, inputs]`.
        options: `length`, `prototypes` and `bits`.
    """

    scale: Tensor

    def __init__(self, linear: nn.Linear, seen: Tensor, options: dict[str, int]) -> None:
        super().__init__()
        self.options = options
        self.form = ProductLinear.empty(linear, **options)
        self.weight = nn.Parameter(linear.weight.detach().clone())
        bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach().clone()
        self.bias = nn.Parameter(bias)
        rows = seen[:MOST_VECTORS]
        # The norm of an input's weights, scaled so that the largest value of each sub-vector is 1.
        norm = self.weight.detach().norm(dim=0)
        norm = norm.clamp(min=LEAST_WEIGHT * float(norm.mean()) + SMALLEST)
        largest = (rows.abs() * norm).amax(0).clamp(min=SMALLEST)
        of_part = self._padded(largest).view(self.form.parts, -1).amax(1).repeat_interleave(self.form.length)
        self.register_buffer("scale", norm / of_part[: self.form.inputs])
        vectors = self._parts(rows)
        centres = prototypes_of(vectors, self.form.count)
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
        padded = self._padded(self.weight / self.scale).t().contiguous()
        return torch.bmm(prototypes, padded.view(self.form.parts, self.form.length, -1))

    def _parts(self, rows: Tensor) -> Tensor:
        """Multiply inputs `[rows, inputs]` by their factors, and cut them into sub-vectors `[parts, rows, length]`."""
        return self._padded(rows * self.scale).view(len(rows), self.form.parts, self.form.length).transpose(0, 1)

    def _padded(self, values: Tensor) -> Tensor:
        """Pad the last axis, `[..., inputs]`, with zeros to whole sub-vectors."""
        return nn.functional.pad(values, (0, self.form.parts * self.form.length - self.form.inputs))


def learned_products(module: nn.Module) -> dict[str, LearnedProduct]:
    """Return the trainable lookup-table layers inside a module, by their path in the module."""
    return {path: one for path, one in module.named_modules() if isinstance(one, LearnedProduct)}


@torch.no_grad()
def prototypes_of(parts: Tensor, count: int) -> Tensor:
    """Return cluster centres (k-means++: Arthur and Vassilvitskii, SODA 2007; then Lloyd's iterations).

    A centre without vectors restarts at the vector with the largest distance from its own centre.

    Args:
        parts: Vectors of each part, `[parts, vectors, length]`.
        count: Number of clusters.

    Returns:
        `[parts, count, length]`.
    """
    generator = torch.Generator().manual_seed(0)
    centres = _first_centres(parts, count, generator)
    for _ in range(ROUNDS):
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
