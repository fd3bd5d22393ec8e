"""Structured dropout: what is computed of the kept units alone is what masking gives, in values and gradients."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shunter.models import structured_dropout
from shunter.models.families.sequence import LAYERS
from shunter.models.layers import mlp
from shunter.models.output_layer import OutputLayer
from shunter.models.structured_dropout import StructuredDropout, draw_kept, units_kept

BATCH = 6


def steps(work: Callable[[], Tensor], parts: Sequence[Tensor]) -> list[Tensor]:
    """Values and gradients of one step with the same random numbers each time it is called."""
    torch.manual_seed(7)
    for part in parts:
        part.grad = None
    value = work()
    (value * torch.arange(value.numel()).view(value.shape).cos()).sum().backward()
    return [value.detach(), *(torch.zeros_like(part) if part.grad is None else part.grad.clone() for part in parts)]


def both_ways(work: Callable[[], Tensor], parts: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """A step that computes the kept units alone, and one that masks the others."""
    found = []
    for is_compact in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            for place in (structured_dropout, "shunter.models.families.sequence"):
                where = place if isinstance(place, str) else place.__name__
                patch.setattr(f"{where}.is_compact", lambda *_, answer=is_compact: answer)
            found.append(steps(work, parts))
    return found[0], found[1]


@settings(max_examples=15, deadline=None)
@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    share=st.sampled_from([0.1, 0.5, 0.9]),
    is_hidden=st.booleans(),
)
def test_an_mlp_of_kept_units_is_the_masked_one(widths: list[int], share: float, is_hidden: bool) -> None:
    torch.manual_seed(len(widths))
    layers = mlp(widths, dropout=share, dropout_kind="structured", last_relu=is_hidden).double()
    for layer in layers:
        if isinstance(layer, OutputLayer):
            layer.float()
    inputs = torch.randn(BATCH, widths[0], dtype=torch.float64, requires_grad=True)
    if len(widths) == 2 and not is_hidden:
        layers = layers.double()
        inputs = inputs.detach().float().double().requires_grad_()
        layers[0] = nn.Linear(widths[0], widths[1]).double()
    compact, masks = both_ways(lambda: layers(inputs), [inputs, *layers.parameters()])
    for one, other in zip(compact, masks, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_batch_normalisation_moves_the_statistics_of_kept_units_alone() -> None:
    torch.manual_seed(2)
    layers = mlp((4, 6, 5), dropout=0.5, dropout_kind="structured", batch_norm=True, last_relu=True).double()
    inputs = torch.randn(32, 4, dtype=torch.float64, requires_grad=True)
    norms = [layer for layer in layers if isinstance(layer, nn.BatchNorm1d)]
    compact, masks = both_ways(lambda: layers(inputs), [*layers[0].parameters(), *norms[0].parameters()])
    torch.testing.assert_close(compact, masks, rtol=1e-5, atol=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structured_dropout, "is_compact", lambda *_: True)
        mean = norms[0].running_mean
        assert mean is not None
        before = mean.clone()
        layers(inputs)
    assert int((mean != before).sum()) == units_kept(6, 0.5)
    assert norms[0].num_batches_tracked == 3


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_recurrent_layer_of_kept_units_is_the_masked_one(kind: str, share: float) -> None:
    torch.manual_seed(1)
    layer = LAYERS[kind](5, 7, share, "structured")
    positions = torch.randn(BATCH, 4, 5, requires_grad=True)
    compact, masks = both_ways(lambda: layer(positions), [positions, *layer.parameters()])
    for one, other in zip(compact, masks, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    layer.eval()
    assert torch.equal(layer(positions), layer(positions))


def test_each_unit_is_dropped_as_often_as_said_and_the_mean_stays() -> None:
    torch.manual_seed(0)
    kept = torch.zeros(10)
    for _ in range(4_000):
        kept[draw_kept(10, 0.3, torch.device("cpu"))] += 1
    # Of 4,000 draws at .7 a standard deviation is .0072; the seed is fixed.
    torch.testing.assert_close(kept / 4_000, torch.full((10,), 0.7), rtol=0, atol=0.037)
    dropout = StructuredDropout(0.3)
    torch.testing.assert_close(dropout.factor(10) * 0.7, 1.0)
    rows = dropout(torch.ones(5, 10))
    assert torch.equal(rows, rows[:1].expand(5, 10)), "all samples drop the same units"
    assert torch.equal(dropout.eval()(rows), rows)


def test_large_layers_leave_products_out_and_small_ones_do_not() -> None:
    assert structured_dropout.is_compact(256, 256)
    assert not structured_dropout.is_compact(256, 8)


def test_the_products_are_really_smaller() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    layers = mlp((128, 128, 128, 128), dropout=0.5, dropout_kind="structured", last_relu=True)
    inputs = torch.randn(256, 128, requires_grad=True)
    found = {}
    for name in ("train", "eval"):
        getattr(layers, name)()
        with FlopCounterMode(display=False) as counter:
            layers(inputs).sum().backward()
        found[name] = counter.get_total_flops()
    assert found["train"] / found["eval"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 4) / 3)
