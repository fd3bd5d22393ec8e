"""Dead units left out of products: the same values and gradients, and only where nothing is lost by it."""

import copy

import torch
from torch import Tensor, nn

from shunter.extensions.rewriting.lean_steps import Compaction


def layers() -> nn.Sequential:
    """Two hidden layers in float64; the first 16 of 32 units of the first let nothing through."""
    torch.manual_seed(0)
    first = biased(nn.Linear(6, 32), -100.0, units=16)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 1, bias=False)).double()


def biased(layer: nn.Linear, bias: float, *, units: int) -> nn.Linear:
    """A layer whose first units have this bias."""
    with torch.no_grad():
        layer.bias[:units] = bias
    return layer


def gradients(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    """Of the input and of all weights."""
    inputs.grad = None
    model(inputs).square().sum().backward()
    assert inputs.grad is not None
    return [inputs.grad, *(weight.grad for weight in model.parameters() if weight.grad is not None)]


def test_values_and_gradients_are_those_of_all_units() -> None:
    one = layers()
    other = copy.deepcopy(one)
    inputs = torch.randn(50, 6, dtype=torch.float64, requires_grad=True)
    expected = gradients(one, inputs)
    with Compaction() as compaction:
        torch.testing.assert_close(other(inputs), one(inputs))
        found = gradients(other, inputs)
    assert len(found) == len(expected) == 6
    for gradient, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, exact)
    assert len(compaction.spared_share) >= 2
    assert compaction.spared_share[0] >= 0.5


def test_zeros_of_an_input_keep_their_gradient() -> None:
    model = nn.Linear(6, 1).double()
    inputs = torch.zeros(10, 6, dtype=torch.float64, requires_grad=True)
    with Compaction() as compaction:
        model(inputs).sum().backward()
    assert compaction.spared_share == []
    assert inputs.grad is not None
    torch.testing.assert_close(inputs.grad, model.weight.expand(10, 6))


def test_a_layer_whose_units_are_all_alive_is_left_alone() -> None:
    model = nn.Sequential(biased(nn.Linear(2, 4), 100.0, units=4), nn.ReLU(), nn.Linear(4, 1))
    with Compaction() as compaction:
        model(torch.randn(20, 2))
    assert compaction.spared_share == []


def test_where_all_units_are_dead_the_bias_alone_is_left() -> None:
    last = nn.Linear(4, 3)
    model = nn.Sequential(biased(nn.Linear(2, 4), -100.0, units=4), nn.ReLU(), last)
    with Compaction() as compaction:
        torch.testing.assert_close(model(torch.randn(5, 2)), last.bias.expand(5, 3))
    assert compaction.spared_share == [1.0]
