"""Layers that are computed in another shape give what the plain ones do."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from shunter.models.layers import LEAST_ALIGNED_BATCH, AlignedLinear, hidden_layer


class Products(TorchDispatchMode):
    """Notes the shapes of the matrices that are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() in ("aten::mm", "aten::addmm"):
            self.widths |= {size for matrix in args[-2:] for size in matrix.shape}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("outputs", [1, 24])
def test_an_aligned_layer_learns_what_a_plain_one_does(outputs: int) -> None:
    torch.manual_seed(0)
    aligned, plain = AlignedLinear(67, outputs), nn.Linear(67, outputs)
    plain.load_state_dict(aligned.state_dict())  # one that was kept before there were aligned ones is read
    given = torch.randn(LEAST_ALIGNED_BATCH, 67)
    found = []
    for layer in (aligned, plain):
        taken = given.clone().requires_grad_()
        scored = layer(taken)
        (scored.sigmoid().sum() / 100).backward()
        found.append((scored, taken.grad, layer.weight.grad, layer.bias.grad))
    for mine, theirs in zip(*found, strict=True):
        assert mine.shape == theirs.shape
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_only_large_batches_of_float32_are_padded() -> None:
    layer = hidden_layer(67, 32)
    for rows, precision, widths in (
        (LEAST_ALIGNED_BATCH, torch.float32, {72}),
        (LEAST_ALIGNED_BATCH - 1, torch.float32, {67}),
        (LEAST_ALIGNED_BATCH, torch.bfloat16, {67}),
    ):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == torch.bfloat16), Products() as products:
            layer(torch.randn(rows, 67))
        assert products.widths & {67, 72} == widths


@pytest.mark.parametrize(("inputs", "kind"), [(367, AlignedLinear), (368, nn.Linear), (13, nn.Linear)])
def test_only_wide_layers_of_crooked_input_are_aligned(inputs: int, kind: type[nn.Linear]) -> None:
    assert type(hidden_layer(inputs, 8)) is kind
