"""MMoE, PLE and ESMM against the formulas of their papers, sample by sample from their weights."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shunter.models.families.several_labels import EsmmLayers, MmoeLayers, PleLayers, both
from shunter.models.registry import build_model, model_spec
from tests.models.families.test_dlrm import features_of

FEATURES = replace(features_of(0, 3), tasks=("click", "conversion", "like"))
POOLED = torch.randn(4, 3, 4, generator=torch.Generator().manual_seed(0))


def values(module: nn.Module) -> list[np.ndarray]:
    return [one.detach().numpy().astype(float) for one in module.parameters()]


def perceptron(module: nn.Module, inputs: np.ndarray, *, last_relu: bool) -> np.ndarray:
    weights = values(module)
    for place in range(0, len(weights), 2):
        inputs = weights[place] @ inputs + weights[place + 1]
        if last_relu or place + 2 < len(weights):
            inputs = np.maximum(inputs, 0)
    return inputs


def mixed(gate: nn.Module, inputs: np.ndarray, experts: Sequence[np.ndarray]) -> np.ndarray:
    weight, bias = values(gate)
    shares = np.exp(weight @ inputs + bias)
    return sum(share * expert for share, expert in zip(shares / shares.sum(), experts, strict=True))  # type: ignore[return-value]


def check(logits: Tensor, expected: Sequence[Sequence[np.ndarray]]) -> None:
    np.testing.assert_allclose(logits.detach().numpy(), np.array(expected, dtype=float).reshape(4, 3), rtol=1e-4)


@pytest.mark.parametrize("tower", [None, 5])
def test_mmoe_weighs_shared_experts_for_each_label(tower: int | None) -> None:
    spec = model_spec("mmoe", embedding_dim=4, experts=3, top_widths=(6, 5), task_tower_width=tower)
    layers = build_model(spec, FEATURES, seed=1).layers.eval()
    assert isinstance(layers, MmoeLayers)
    expected = []
    for sample in POOLED.flatten(1).numpy().astype(float):
        experts = [perceptron(expert, sample, last_relu=True) for expert in layers.experts]
        pairs = zip(layers.gates, layers.heads.heads, strict=True)
        expected.append([perceptron(head, mixed(gate, sample, experts), last_relu=False) for gate, head in pairs])
    check(layers(torch.zeros(4, 0), POOLED), expected)


@pytest.mark.parametrize("levels", [1, 2])
def test_ple_mixes_own_and_shared_experts_level_by_level(levels: int) -> None:
    options = {"extraction_levels": levels, "label_experts": 2, "shared_experts": 1}
    spec = model_spec("ple", embedding_dim=4, top_widths=(6,), **options)
    layers = build_model(spec, FEATURES, seed=1).layers.eval()
    assert isinstance(layers, PleLayers)
    expected = []
    for sample in POOLED.flatten(1).numpy().astype(float):
        states = [sample] * 4
        for number, level in enumerate(layers.levels):
            shared = [perceptron(expert, states[3], last_relu=True) for expert in level.shared]  # type: ignore[union-attr]
            own = [
                [perceptron(expert, states[label], last_relu=True) for expert in level.own[label]]  # type: ignore[index,union-attr]
                for label in range(3)
            ]
            following = [mixed(level.gates[label], states[label], [*own[label], *shared]) for label in range(3)]  # type: ignore[index]
            if number < levels - 1:
                following.append(mixed(level.shared_gate, states[3], [*own[0], *own[1], *own[2], *shared]))  # type: ignore[arg-type]
            states = following
        expected.append([perceptron(head, states[k], last_relu=False) for k, head in enumerate(layers.heads.heads)])
    check(layers(torch.zeros(4, 0), POOLED), expected)


def test_esmm_multiplies_the_probabilities_of_the_steps() -> None:
    layers = build_model(model_spec("esmm", embedding_dim=4, top_widths=(6,)), FEATURES, seed=1).layers.eval()
    assert isinstance(layers, EsmmLayers)
    expected = []
    for sample in POOLED.flatten(1).numpy().astype(float):
        steps = [1 / (1 + np.exp(-perceptron(step, sample, last_relu=False)[0])) for step in layers.steps]
        together = np.cumprod(steps)
        expected.append(np.log(together / (1 - together)))
    check(layers(torch.zeros(4, 0), POOLED), expected)


def test_odds_of_two_events_stay_finite_with_their_gradients() -> None:
    extremes = torch.tensor([-200.0, -40.0, 0.0, 40.0, 200.0])
    first, second = (grid.flatten().requires_grad_() for grid in torch.meshgrid(extremes, extremes, indexing="ij"))
    found = both(first, second)
    gradients = torch.autograd.grad(found.sum(), (first, second))
    assert all(part.isfinite().all() for part in (found, *gradients))
    torch.testing.assert_close(both(torch.zeros(1), torch.full((1,), 200.0)), torch.zeros(1))
    assert float(both(torch.full((1,), 40.0), torch.full((1,), 40.0))) > 35
