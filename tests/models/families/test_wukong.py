"""Wukong against a slow computation of the formulas of its paper from the weights alone."""

import numpy as np
import pytest
import torch

from shunter.errors import RequestError
from shunter.models.families.wukong import MachineBlock, WukongLayer, WukongLayers, WukongSpec
from shunter.models.registry import build_model, model_spec
from tests.models.families.test_dlrm import features_of


def normalised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, keepdims=True) + 1e-5)


def layer_slowly(weights: dict[str, np.ndarray], vectors: np.ndarray, spec: WukongSpec) -> np.ndarray:
    """One sample: every product of a pair by itself, and then what the projections make of them."""
    count = len(vectors)
    pairs = np.array([[sum(a * b for a, b in zip(one, other, strict=True)) for other in vectors] for one in vectors])
    machine = np.array(
        [
            sum(pairs[row, other] * weights["machine.projections"][other, k] for other in range(count))
            for row in range(count)
            for k in range(spec.machine_rank)
        ]
    )
    hidden = normalised(machine)
    matrices = [name for name in weights if name.startswith("machine.network") and name.endswith("weight")]
    for place, name in enumerate(matrices):
        hidden = weights[name] @ hidden + weights[name.replace("weight", "bias")]
        hidden = hidden if place == len(matrices) - 1 else np.maximum(hidden, 0)
    together = np.concatenate([hidden.reshape(spec.machine_vectors, -1), weights["linear.weight"] @ vectors])
    return normalised(together + weights.get("shortcut.weight", np.eye(count)) @ vectors)


@pytest.mark.parametrize("vectors", [5, 4])  # with a map for the shortcut, and without
def test_a_layer_is_what_the_paper_writes(vectors: int) -> None:
    torch.manual_seed(0)
    spec = WukongSpec(embedding_dim=6, machine_vectors=3, linear_vectors=1, machine_rank=2, machine_widths=(7,))
    layer, given = WukongLayer(spec, vectors), torch.randn(3, vectors, 6)
    weights = {name: one.detach().numpy().astype(float) for name, one in layer.named_parameters()}
    found = layer(given).detach().numpy()
    for sample, of_layer in zip(given.numpy().astype(float), found, strict=True):
        np.testing.assert_allclose(of_layer, layer_slowly(weights, sample, spec), rtol=1e-4, atol=1e-5)


def test_layers_are_stacked_below_the_mlp_and_raise_the_order() -> None:
    spec = model_spec("wukong", embedding_dim=4, interaction_layers=3, machine_vectors=2, linear_vectors=3)
    layers = build_model(spec, features_of(2, 3), seed=2).layers.eval()
    assert isinstance(layers, WukongLayers)
    dense, pooled = torch.randn(4, 2), torch.randn(4, 3, 4)
    vectors = layers.vectors(dense, pooled)
    for layer in layers.stack:
        vectors = layer(vectors)
        assert vectors.shape == (4, 5, 4)
    torch.testing.assert_close(layers(dense, pooled), layers.top(vectors.flatten(1)).squeeze(1))
    doubled = MachineBlock(WukongSpec(embedding_dim=4, machine_widths=()), 3)
    doubled.norm = torch.nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    torch.nn.init.zeros_(doubled.network[0].bias)  # pyright: ignore[reportArgumentType]
    one, two = doubled(pooled), doubled(2 * pooled)
    torch.testing.assert_close(two, 4 * one)  # X stands twice in X (X^T Y)


@pytest.mark.parametrize("option", ["interaction_layers", "machine_vectors", "linear_vectors", "machine_rank"])
def test_a_layer_of_nothing_is_refused(option: str) -> None:
    with pytest.raises(RequestError, match=f"The option {option} of the model wukong is 0: use at least 1"):
        build_model(model_spec("wukong", **{option: 0}), features_of(0, 3), seed=0)
