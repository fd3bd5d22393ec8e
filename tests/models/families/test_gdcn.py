"""GDCN against equation 3 of its paper, and against the cross network it gates."""

import numpy as np
import torch
from torch import nn

from shunter.models.families.dcnv2 import CrossedLayers, GatedCrossNetwork
from shunter.models.layers import CrossNetwork
from shunter.models.registry import build_model, model_spec
from tests.models.families.test_dlrm import features_of


def test_each_layer_adds_what_its_gate_lets_pass() -> None:
    torch.manual_seed(0)
    network, first = GatedCrossNetwork(6, layers=3), torch.randn(4, 6)
    weights = {name: one.detach().numpy().astype(float) for name, one in network.named_parameters()}
    for sample, found in zip(first.numpy().astype(float), network(first).detach().numpy(), strict=True):
        crossed = sample
        for layer in range(3):
            gate = 1 / (1 + np.exp(-weights[f"gates.{layer}.weight"] @ crossed))
            cross = weights[f"cross.{layer}.weight"] @ crossed + weights[f"cross.{layer}.bias"]
            crossed = np.array([sample[i] * cross[i] * gate[i] + crossed[i] for i in range(6)])
        np.testing.assert_allclose(found, crossed, rtol=1e-4, atol=1e-6)


def test_gates_that_are_half_open_halve_what_a_cross_network_adds() -> None:
    gated, plain, first = GatedCrossNetwork(5, layers=1), CrossNetwork(5, 1), torch.randn(3, 5)
    nn.init.zeros_(next(gated.gates.parameters()))
    plain.cross.load_state_dict(gated.cross.state_dict())
    torch.testing.assert_close(gated(first) - first, (plain(first) - first) / 2)


def test_the_deep_network_is_beside_the_cross_layers_or_on_top_of_them() -> None:
    pooled = torch.randn(4, 3, 4)
    for structure in ("parallel", "stacked"):
        spec = model_spec("gdcn", embedding_dim=4, cross_structure=structure, top_widths=(5,))
        layers = build_model(spec, features_of(0, 3), seed=2).layers.eval()
        assert isinstance(layers, CrossedLayers)
        crossed = layers.cross(pooled.flatten(1))
        hidden = layers.deep(crossed if structure == "stacked" else pooled.flatten(1))
        hidden = hidden if structure == "stacked" else torch.cat([crossed, hidden], dim=1)
        torch.testing.assert_close(layers(torch.zeros(4, 0), pooled), layers.output(hidden).squeeze(1))
