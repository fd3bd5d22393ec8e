"""MaskNet: hidden layers whose input is multiplied by a mask of the sample (Wang et al., DLP-KDD 2021, 2102.07619)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, mlp, scoring_mlp
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class MasknetSpec(ModelSpec):
    """Configuration of MaskNet; `top_widths` are those of the MLP above the blocks; the paper has it for parallel ones.

    Attributes:
        mask_blocks: Number of mask blocks.
        mask_block_width: Output width of a block.
        mask_expansion: Width of the hidden layer that computes a mask, as a multiple of the mask's width.
        mask_structure: Whether all blocks read the embeddings, or each block reads the block below.
        mask_field_norm: Whether each embedding is normalised separately before the blocks, as in the paper.
    """

    family: ClassVar[str] = "masknet"

    mask_blocks: int = 3
    mask_block_width: int = 64
    mask_expansion: float = 1.0
    mask_structure: Literal["parallel", "serial"] = "parallel"
    mask_field_norm: bool = True


class FieldNorm(nn.Module):
    """Layer normalisation of each vector separately, with its own gain and bias (equation 8).

    Args:
        vectors: Number of vectors of a sample.
        dim: Width of the vectors.
    """

    def __init__(self, vectors: int, dim: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(vectors, dim))
        self.bias = nn.Parameter(torch.zeros(vectors, dim))

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, vectors, dim]` to the same shape in float32."""
        return nn.functional.layer_norm(vectors.float(), vectors.shape[2:]) * self.gain + self.bias


class MaskBlock(nn.Module):
    """`relu(LayerNorm(W (mask * x)))` with a mask from the embeddings of the sample (equations 4, 11, 12).

    `mask = D_2 relu(D_1 v + d_1) + d_2` for the embeddings v, independent of x.

    Args:
        embeddings: Width of the concatenated embeddings.
        inputs: Width of x and of the mask.
        outputs: Output width.
        expansion: Width of the mask's hidden layer as a multiple of the mask's width.
    """

    def __init__(self, embeddings: int, inputs: int, outputs: int, expansion: float) -> None:
        super().__init__()
        hidden = max(1, round(expansion * inputs))
        self.mask = nn.Sequential(mlp((embeddings, hidden), last_relu=True), nn.Linear(hidden, inputs))
        self.hidden = nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, embeddings: Tensor, inputs: Tensor) -> Tensor:
        """Map `[batch, embeddings]` and `[batch, inputs]` to `[batch, outputs]` in float32."""
        return self.norm(self.hidden(self.mask(embeddings) * inputs).float()).relu()


class MasknetLayers(nn.Module):
    """All layers of MaskNet above the tables: the blocks, and an MLP above them.

    Raises:
        RequestError: There is no block, its width or expansion is not positive, or the structure is unknown.
    """

    def __init__(self, spec: MasknetSpec, features: Features) -> None:
        super().__init__()
        _check(spec)
        self.vectors = FieldVectors(spec, features)
        self.norm = FieldNorm(self.vectors.count, spec.embedding_dim) if spec.mask_field_norm else nn.Identity()
        self.is_serial = spec.mask_structure == "serial"
        width, block = self.vectors.width, spec.mask_block_width
        inputs = [block if self.is_serial and number else width for number in range(spec.mask_blocks)]
        self.blocks = nn.ModuleList(MaskBlock(width, one, block, spec.mask_expansion) for one in inputs)
        self.top = scoring_mlp(spec, block if self.is_serial else block * spec.mask_blocks, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        vectors = self.vectors(dense, pooled)
        embeddings, hidden = vectors.flatten(1), self.norm(vectors).flatten(1)
        if not self.is_serial:
            return self.top(torch.cat([block(embeddings, hidden) for block in self.blocks], dim=1)).squeeze(1)
        for block in self.blocks:
            hidden = block(embeddings, hidden)
        return self.top(hidden).squeeze(1)


def _check(spec: MasknetSpec) -> None:
    if spec.mask_structure not in ("parallel", "serial"):
        raise RequestError(f"Unknown mask_structure {spec.mask_structure!r}: use parallel or serial.")
    for option in ("mask_blocks", "mask_block_width"):
        if getattr(spec, option) < 1:
            raise RequestError(
                f"A model masknet with {option} = {getattr(spec, option)} has no blocks: use at least 1."
            )
    if spec.mask_expansion <= 0:
        raise RequestError(
            f"The factor on the mask's hidden width, mask_expansion, is {spec.mask_expansion}: use a number above 0."
        )


MASKNET = Family(
    spec=MasknetSpec,
    layers=MasknetLayers,
    ranges={
        "mask_blocks": (1, 2, 3, 5),
        "mask_block_width": (32, 64, 128),
        "mask_expansion": (0.5, 1.0, 2.0),
        "mask_structure": ("parallel", "serial"),
        "mask_field_norm": (True, False),
    },
)
