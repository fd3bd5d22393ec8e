"""Gradients that are averaged while the backward pass goes on are the means of all processes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from shunter.extensions.distributed.training.gradients import GradientBuckets
from tests.extensions.distributed.training.ranks import run

RANKS, LAYERS, WIDTH = 2, 4, 5


class Some(nn.Module):
    """Linear layers of which some steps leave out the second."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, inputs: Tensor, *, every: bool) -> Tensor:
        for number, layer in enumerate(self.layers):
            inputs = layer(inputs) if every or number != 1 else inputs
        return inputs.square().sum()


def inputs_of(rank: int) -> Tensor:
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(rank))


def gradients(*, every: bool, bucket_bytes: int) -> dict[str, Any]:
    """Those of two steps, the mean that was sent beside them, and what was sent before the first layer's came."""
    model = Some()
    buckets = GradientBuckets(model.parameters(), RANKS, bucket_bytes)
    sent: list[int] = []
    next(model.parameters()).register_hook(lambda _: sent.append(len(buckets._sent)))
    found = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        beside = torch.tensor(float(dist.get_rank()))
        loss = model(inputs_of(dist.get_rank()), every=every)
        buckets.begin([beside])
        loss.backward()
        buckets.finish()
        found.append((beside, [None if p.grad is None else p.grad.clone() for p in model.parameters()]))
    return {"found": found, "sent": sent}


def cases() -> dict[tuple[bool, int], dict[str, Any]]:
    return {(every, size): gradients(every=every, bucket_bytes=size) for every in (True, False) for size in (1, 10**9)}


def test_gradients_are_means_and_leave_before_the_backward_pass_ends(tmp_path: Path) -> None:
    results = run(RANKS, tmp_path, cases)
    for every in (True, False):
        model = Some()
        torch.stack([model(inputs_of(rank), every=every) for rank in range(RANKS)]).mean().backward()
        expected = [parameter.grad for parameter in model.parameters()]
        for result in results:
            for size in (1, 10**9):
                for beside, found in result[every, size]["found"]:
                    assert beside == (RANKS - 1) / 2
                    assert [one is None for one in found] == [one is None for one in expected]
                    for one, other in zip(found, expected, strict=True):
                        if one is not None:
                            torch.testing.assert_close(one, other)
            assert result[every, 10**9]["sent"] == [0, 0]
            # A layer that is not used is waited for, and with it those that come after.
            assert min(result[every, 1]["sent"]) >= (2 * LAYERS - 3 if every else 2 * (LAYERS - 2))
