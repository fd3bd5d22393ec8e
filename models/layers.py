"""Layers that several model families share."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shunter.models.dropout import Dropout
from shunter.models.native import pairs as pairs_of
from shunter.models.number_bins import NumberBins
from shunter.models.output_layer import OutputLayer, full_precision
from shunter.models.spec import DropoutKind, Features, ModelSpec
from shunter.models.structured_dropout import StructuredDropout, StructuredMlp

ALIGNMENT = 8  # float32 numbers of an AVX register
LEAST_ALIGNED_WIDTH, LEAST_ALIGNED_BATCH = 64, 2048  # smaller sizes gain too little


class AlignedLinear(nn.Linear):
    """Linear layer that pads its input with a few zeros for large float32 batches.

    On CPUs, MKL takes up to a fifth less time for the matrix products of forward and backward if rows begin at
    multiples of 32 bytes. In bf16 nothing is gained, and in small batches the gain is below the cost of padding the
    weights. The stored weights keep their shape; the zeros change results only by rounding.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`."""
        if len(input) < LEAST_ALIGNED_BATCH or input.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        zeros = (0, -self.in_features % ALIGNMENT)
        return nn.functional.linear(nn.functional.pad(input, zeros), nn.functional.pad(self.weight, zeros), self.bias)


def normal_parameter(*shape: int, deviation: float) -> nn.Parameter:
    """Draw a parameter from a normal distribution around zero.

    Parameters on the meta device have no values; drawing them would load torch's compiler, which takes over a second.

    Args:
        shape: Size of each dimension.
        deviation: Standard deviation.
    """
    room = torch.empty(shape)
    return nn.Parameter(room if room.is_meta else deviation * torch.randn(shape))


def hidden_layer(inputs: int, outputs: int) -> nn.Linear:
    """Build a linear layer: `AlignedLinear` for a wide input whose rows are not aligned, else `nn.Linear`."""
    kind = AlignedLinear if inputs % ALIGNMENT and inputs >= LEAST_ALIGNED_WIDTH else nn.Linear
    return kind(inputs, outputs)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation (Ioffe and Szegedy, 2015) that accepts a batch of one sample.

    The last batch of an epoch may be one sample, which has no variance: it is normalised as in evaluation mode.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, features]` to the same shape."""
        if self.training and len(input) == 1:
            return nn.functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


class PairwiseProducts(torch.autograd.Function):
    """Dot product of each pair of a sample's vectors, each pair once.

    The backward pass is written by hand: the matrix of all products is symmetric, so one matrix product with its
    symmetric gradient suffices. Autograd would need a scatter and two products, and is much slower.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, pairs: Tensor, position: Tensor, has_kernel: bool) -> Tensor:
        """Map `[batch, vectors, dim]` to `[batch, pairs]`; see `DotInteraction` for the two index tensors.

        Args:
            ctx: Context of autograd.
            vectors: Vectors of the samples.
            pairs: Indices of the pairs.
            position: Inverse of `pairs`.
            has_kernel: Whether the compiled kernel may be called (`shunter.models.native.pairs.is_built`).
        """
        ctx.save_for_backward(vectors, position)
        ctx.has_kernel = has_kernel
        if has_kernel and pairs_of.suits(vectors):
            return torch.ops.shunter.pairwise_products(vectors)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient of the loss by the vectors, given its gradient by the products."""
        vectors, position = ctx.saved_tensors
        if ctx.has_kernel and pairs_of.suits(gradients[0]):
            return torch.ops.shunter.pairwise_gradient(vectors, gradients[0]), None, None, None
        count = vectors.shape[1]
        symmetric = nn.functional.pad(gradients[0], (0, 1)).index_select(1, position).view(-1, count, count)
        return torch.bmm(symmetric, vectors), None, None, None


class DotInteraction(nn.Module):
    """Interaction of DLRM: the dot product of each pair of a sample's vectors, each pair once.

    Args:
        vectors: Number of vectors of a sample.

    Attributes:
        count: Number of pairs.
        pairs: `[pairs]`, index of the pair (i, j), i > j, in the flattened matrix of all products.
        position: `[vectors * vectors]`, number of the pair at each place of the flattened matrix, equal for (i, j) and
            (j, i); `count` on the diagonal, which is no pair.
    """

    pairs: Tensor
    position: Tensor

    def __init__(self, vectors: int) -> None:
        super().__init__()
        # Computed by numpy: on fake tensors, with which models are counted, torch takes a quarter of a second for this.
        left, right = np.tril_indices(vectors, -1)
        self.count = len(left)
        position = np.full((vectors, vectors), len(left))
        position[left, right] = position[right, left] = np.arange(len(left))
        self.register_buffer("pairs", torch.tensor(left * vectors + right), persistent=False)
        self.register_buffer("position", torch.tensor(position.ravel()), persistent=False)
        self._has_kernel = pairs_of.is_built()  # torch.compile cannot trace the load of a library

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, vectors, dim]` to `[batch, pairs]` in float32."""
        # In float32 even under autocast: the products are too short to gain from casts.
        with full_precision(vectors):
            return PairwiseProducts.apply(vectors, self.pairs, self.position, self._has_kernel)  # pyright: ignore[reportReturnType]


class CrossNetwork(nn.Module):
    """Cross layers of DCN-V2: `x_{l+1} = x_0 * (W_l x_l + b_l) + x_l`, elementwise product.

    After n layers the output has all interactions of the input up to degree n + 1. At low rank each
    matrix is a product `W_l = U_l V_l^T`, which costs 2 * width * rank instead of width^2.

    Args:
        width: Width of input and output.
        layers: Number of cross layers.
        rank: Rank of the matrices; None is full rank.
    """

    def __init__(self, width: int, layers: int, rank: int | None = None) -> None:
        super().__init__()
        self.cross = nn.ModuleList(
            nn.Linear(width, width)
            if rank is None
            else nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width))
            for _ in range(layers)
        )

    def forward(self, first: Tensor) -> Tensor:
        """Map `[batch, width]` to the same shape."""
        crossed = first
        for layer in self.cross:
            crossed = torch.addcmul(crossed, first, layer(crossed).float())
        return crossed


class FieldVectors(nn.Module):
    """All features of a sample as vectors of one width: those of the dense features first, then one for each table.

    The bottom MLP turns the dense features into one vector, as in DLRM. Alternatively each dense feature has its own
    vector, `x_i v_i`, as in AutoInt (Song et al., CIKM 2019, equation 3). With `numeric_bins`, the encoding of
    `NumberBins` is a further input of the MLP. Without MLP, the share of each bin times a learned vector, initially
    zero, is added to the feature's vector.

    Args:
        spec: `embedding_dim`, `bottom_widths`, `numeric_embedding` and `numeric_bins`.
        features: Input features.

    Attributes:
        count: Number of vectors of a sample.
        first_table: Number of vectors of dense features, which come first.
        width: Width of the concatenated vectors.
    """

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        dense, dim = len(features.dense), spec.embedding_dim
        is_each = bool(dense) and spec.numeric_embedding == "vector"
        self.numbers = normal_parameter(dense, dim, deviation=dim**-0.5) if is_each else None
        self.bins = NumberBins(dense, spec.numeric_bins) if is_each and spec.numeric_bins else None
        self.bin_vectors = nn.Parameter(torch.zeros(dense, spec.numeric_bins, dim)) if self.bins else None
        self.bottom = bottom_mlp(spec, dense, dim) if dense and not is_each else None
        self.first_table = dense if is_each else min(dense, 1)
        self.count = self.first_table + len(features.categorical)
        self.width = self.count * dim

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, fields, dim]` to `[batch, vectors, dim]` in float32."""
        if self.numbers is not None:
            vectors = dense.float().unsqueeze(2) * self.numbers
            if self.bins is not None:
                vectors = vectors + torch.einsum("sfb,fbd->sfd", self.bins.shares(dense), self.bin_vectors)
            return torch.cat([vectors, pooled], dim=1)
        if self.bottom is None:
            return pooled
        return torch.cat([self.bottom(dense).float().unsqueeze(1), pooled], dim=1)


def bottom_mlp(spec: ModelSpec, numbers: int, width: int) -> nn.Sequential:
    """Build the MLP that turns all dense features, with their bins if any, into one vector.

    Args:
        spec: `bottom_widths` and `numeric_bins`.
        numbers: Number of dense features.
        width: Width of the vector.
    """
    hidden = mlp((numbers * (1 + spec.numeric_bins), *spec.bottom_widths, width), last_relu=True)
    return nn.Sequential(NumberBins(numbers, spec.numeric_bins), *hidden) if spec.numeric_bins else hidden


def mlp(
    widths: Sequence[int],
    *,
    dropout: float = 0.0,
    dropout_kind: DropoutKind = "random",
    batch_norm: bool = False,
    last_relu: bool = False,
) -> nn.Sequential:
    """Build linear layers with ReLU between them, and with regularisation.

    Args:
        widths: Widths of the input, the hidden layers and the output.
        dropout: Dropout share of the hidden activations in training.
        dropout_kind: Whether each sample drops its own activations, or all samples of a batch the same
            (`shunter.models.structured_dropout`).
        batch_norm: Whether the hidden layers are normalised before their ReLU.
        last_relu: Whether the output is a hidden layer of a larger network; if not, it is a score in float32.
    """
    layers: list[nn.Module] = []
    for position, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        if position == len(widths) - 1 and not last_relu:
            layers.append(OutputLayer(inputs, outputs))
            continue
        layers.append(hidden_layer(inputs, outputs))
        if batch_norm:
            layers.append(BatchNorm(outputs))
        layers.append(nn.ReLU())
        if dropout:
            layers.append(Dropout(dropout) if dropout_kind == "random" else StructuredDropout(dropout))
    return nn.Sequential(*layers) if dropout_kind == "random" else StructuredMlp(*layers)


def regularisation(spec: ModelSpec) -> dict[str, Any]:
    """Return the regularisation options of the main MLPs, as arguments of `mlp`."""
    return {"dropout": spec.dropout, "dropout_kind": spec.dropout_kind, "batch_norm": spec.batch_norm}


def hidden_layers(spec: ModelSpec, inputs: int, widths: Sequence[int]) -> nn.Sequential:
    """Build the hidden layers of one of the main MLPs with the spec's regularisation; empty without widths."""
    return mlp((inputs, *widths), **regularisation(spec), last_relu=True)


def scoring_mlp(spec: ModelSpec, inputs: int, tasks: int = 1) -> nn.Sequential:
    """Build the main MLP with its last layer, which has one logit for each task; see `task_heads` for several tasks."""
    if spec.task_tower_width is None:
        return mlp((inputs, *spec.top_widths, tasks), **regularisation(spec))
    hidden = hidden_layers(spec, inputs, spec.top_widths)
    return hidden.append(task_heads(spec, spec.top_widths[-1] if spec.top_widths else inputs, tasks))


def task_heads(spec: ModelSpec, inputs: int, tasks: int) -> nn.Module:
    """Build the last layer of a model: `[batch, inputs]` to `[batch, tasks]` logits in float32.

    All tasks share the body below, up to its last hidden representation (hard parameter sharing; Caruana, Machine
    Learning 28, 1997). Above it each task has a linear layer, or with `task_tower_width` a small MLP.
    """
    return OutputLayer(inputs, tasks) if spec.task_tower_width is None else TaskTowers(spec, inputs, tasks)


class TaskTowers(nn.Module):
    """A small MLP for each task over the same input.

    Args:
        spec: `task_tower_width`, and regularisation.
        inputs: Width of the input.
        tasks: Number of tasks.
    """

    def __init__(self, spec: ModelSpec, inputs: int, tasks: int) -> None:
        super().__init__()
        assert spec.task_tower_width is not None, "without a width there are no towers"
        widths = (inputs, spec.task_tower_width, 1)
        self.towers = nn.ModuleList(mlp(widths, **regularisation(spec)) for _ in range(tasks))

    def forward(self, shared: Tensor) -> Tensor:
        """Map `[batch, inputs]` to `[batch, tasks]` logits in float32."""
        return torch.cat([tower(shared) for tower in self.towers], dim=1)


class SelfInitialised(nn.Module, ABC):
    """Module that draws its own initial weights, after all linear layers of a model are drawn."""

    @abstractmethod
    def initialise(self) -> None:
        """Draw the weights in place."""


@torch.no_grad()
def initialise_linear(weight: Tensor, bias: Tensor | None) -> None:
    """Draw normal weights of variance 2 / (inputs + outputs) and biases of 1 / outputs, as in facebookresearch/dlrm.

    Args:
        weight: Weights, `[outputs, inputs]`, drawn in place.
        bias: Biases, `[outputs]`, drawn in place.
    """
    nn.init.xavier_normal_(weight)
    if bias is not None:
        nn.init.normal_(bias, std=len(bias) ** -0.5)


def after_relu(layers: nn.Module) -> Iterator[str]:
    """Yield the paths of the linear layers whose input is the output of a ReLU, and thus never negative."""
    for name, module in layers.named_modules():
        if not isinstance(module, nn.Sequential):
            continue
        is_positive = False
        for child_name, child in module.named_children():
            if isinstance(child, nn.Linear):
                if is_positive:
                    yield f"{name}.{child_name}" if name else child_name
                is_positive = False
            elif isinstance(child, nn.ReLU):
                is_positive = True
            elif not isinstance(child, nn.Dropout | StructuredDropout):
                is_positive = False
