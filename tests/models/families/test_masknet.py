"""MaskNet against the equations of its paper, sample by sample."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from shunter.models.families.masknet import MaskBlock, MasknetLayers
from shunter.models.registry import build_model, model_spec
from tests.models.families.test_dlrm import features_of


def values(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: one.detach().numpy().astype(float) for name, one in module.named_parameters()}


def normalised(numbers: np.ndarray) -> np.ndarray:
    return (numbers - numbers.mean()) / np.sqrt(numbers.var() + 1e-5)


def masked(block: nn.Module, embeddings: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Equations 4, 11 and 12 for one sample."""
    assert isinstance(block, MaskBlock)
    (first, last), own = [values(layer) for layer in (block.mask[0], block.mask[1])], values(block)
    aggregated = np.maximum(first["0.weight"] @ embeddings + first["0.bias"], 0)
    mask = last["weight"] @ aggregated + last["bias"]
    hidden = normalised(own["hidden.weight"] @ (mask * inputs))
    return np.maximum(hidden * own["norm.weight"] + own["norm.bias"], 0)


@pytest.mark.parametrize("structure", ["parallel", "serial"])
def test_blocks_read_the_embeddings_side_by_side_or_each_the_one_below(structure: str) -> None:
    options: dict[str, Any] = {"embedding_dim": 4, "mask_blocks": 3, "mask_block_width": 5, "mask_expansion": 1.5}
    spec = model_spec("masknet", **options, mask_structure=structure, top_widths=(6,))
    layers = build_model(spec, features_of(0, 3), seed=2).layers.eval()
    assert isinstance(layers, MasknetLayers)
    assert layers.blocks[0].mask[0][0].out_features == 18  # pyright: ignore
    for parameter in layers.norm.parameters():
        nn.init.normal_(parameter)
    norm, pooled = values(layers.norm), torch.randn(4, 3, 4)
    for sample, logit in zip(pooled, layers(torch.zeros(4, 0), pooled), strict=True):
        vectors = sample.numpy().astype(float)
        fields = zip(vectors, norm["gain"], norm["bias"], strict=True)
        hidden = np.concatenate([normalised(vector) * gain + bias for vector, gain, bias in fields])
        if structure == "parallel":
            hidden = np.concatenate([masked(block, vectors.ravel(), hidden) for block in layers.blocks])
        else:
            for block in layers.blocks:
                hidden = masked(block, vectors.ravel(), hidden)
        torch.testing.assert_close(logit, layers.top(torch.tensor(hidden).float())[0], rtol=1e-3, atol=1e-4)


def test_blocks_read_the_embeddings_as_they_are_without_their_normalisation() -> None:
    spec = model_spec("masknet", embedding_dim=4, mask_blocks=1, mask_block_width=5, mask_field_norm=False)
    layers = build_model(spec, features_of(0, 3), seed=2).layers.eval()
    assert isinstance(layers, MasknetLayers)
    assert not values(layers.norm)
    pooled = torch.randn(4, 3, 4)
    for sample, logit in zip(pooled, layers(torch.zeros(4, 0), pooled), strict=True):
        vector = sample.flatten().numpy().astype(float)
        hidden = masked(layers.blocks[0], vector, vector)
        torch.testing.assert_close(logit, layers.top(torch.tensor(hidden).float())[0], rtol=1e-3, atol=1e-4)
