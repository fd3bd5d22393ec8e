"""Multiplications that count, against a count one by one, and against gradients computed from them alone."""

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

from shunter.engine.config import Execution
from shunter.extensions.stalls.useful_share import layer_share, useful_share, watched
from shunter.models.registry import model_spec
from tests.engine.synthetic import write_dataset

BATCH = 6


@pytest.fixture
def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 1))


def test_shares_are_those_counted_one_by_one_and_the_others_change_nothing(layers: nn.Sequential) -> None:
    inputs = torch.randn(BATCH, 4, requires_grad=True)
    kept: list[torch.Tensor] = []
    with watched(layers) as seen:
        value = inputs
        for module in layers:
            value = module(value)
            value.retain_grad()
            kept.append(value)
        value.square().sum().backward()
    middle, activation, gradient = layers[2], kept[1], kept[2].grad
    assert isinstance(middle, nn.Linear)
    assert gradient is not None
    assert activation.grad is not None
    forward = backward = 0
    of_inputs, of_weights = torch.zeros_like(activation), torch.zeros_like(middle.weight)
    for row, out, column in product(range(BATCH), range(3), range(5)):
        is_active, has_gradient = bool(activation[row, column] != 0), bool(gradient[row, out] != 0)
        forward += is_active
        if has_gradient and is_active:  # behind the ReLU a gradient is needed where it let something through
            backward += 2
            of_inputs[row, column] += gradient[row, out] * middle.weight[out, column].detach()
            of_weights[out, column] += gradient[row, out] * activation[row, column].detach()
    share = layer_share("2", seen["2"], BATCH)
    assert share.forward == forward / (BATCH * 15)
    assert share.backward == backward / (2 * BATCH * 15)
    assert share.multiplications == 30
    torch.testing.assert_close(of_weights, middle.weight.grad)
    torch.testing.assert_close(of_inputs * (activation > 0), activation.grad * (activation > 0))


def test_a_layer_whose_input_needs_no_gradient_has_one_product(layers: nn.Sequential) -> None:
    with watched(layers) as seen:
        layers(torch.randn(BATCH, 4)).sum().backward()
    assert layer_share("0", seen["0"], BATCH).multiplications == 20
    assert layer_share("0", seen["0"], BATCH).forward == 1


@pytest.mark.parametrize("family", ["dlrm", "dhen"])
def test_a_model_on_its_data(tmp_path: Path, family: str) -> None:
    dataset = write_dataset(tmp_path, rows=400)
    spec = model_spec(family=family, embedding_dim=4, bottom_widths=(8,), top_widths=(12,))
    found = useful_share(dataset, spec, Execution(batch_size=32), steps=6)
    assert found is not None, "it has linear layers"
    assert 0.2 < found.backward < 1
    assert found.speedup("both") >= max(found.speedup("inputs"), found.speedup("outputs")) >= 1
    assert found.metrics["sparsity.useful_backward_share"] == found.backward
    assert len(found.rows()) == len(found.layers) + 1


def test_of_a_model_without_linear_layers_nothing_is_told(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=300)
    assert useful_share(dataset, model_spec("lr"), Execution(batch_size=32), steps=6) is None
