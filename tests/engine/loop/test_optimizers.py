"""The optimisers give the bits of torch's, and keep what these keep; Adam on its short way too."""

from typing import Any

import pytest
import torch
from torch import nn

from shunter.engine.loop import optimizers
from shunter.engine.loop.optimizers import FusedAdam
from shunter.hardware.uncompiled import SGD, Adagrad


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


def groups(network: nn.Module) -> list[dict[str, Any]]:
    parameters = list(network.parameters())
    return [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": 0.1},
        {"params": [each for each in parameters if each.ndim == 1]},
    ]


def take_steps(network: nn.Module, optimizer: torch.optim.Optimizer, count: int, *, without: int | None = None) -> None:
    """Some steps at a rate that changes; `without` names a parameter that gets no gradient in the second of them."""
    generator = torch.Generator().manual_seed(1)
    for number in range(count):
        optimizer.zero_grad(set_to_none=True)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (number + 1)
        network(torch.randn(4, 5, generator=generator)).square().sum().backward()
        if without is not None and number == 1:
            list(network.parameters())[without].grad = None
        optimizer.step()


def assert_same(one: tuple[nn.Module, torch.optim.Optimizer], other: tuple[nn.Module, torch.optim.Optimizer]) -> None:
    for mine, theirs in zip(one[0].parameters(), other[0].parameters(), strict=True):
        assert torch.equal(mine, theirs)
    mine, theirs = one[1].state_dict()["state"], other[1].state_dict()["state"]
    assert mine.keys() == theirs.keys()
    for key, state in theirs.items():
        assert state.keys() == mine[key].keys()
        assert all(torch.equal(mine[key][name], value) for name, value in state.items())


@pytest.mark.parametrize("without", [None, 0, 3])
def test_steps_are_those_of_torch_bit_by_bit(without: int | None) -> None:
    mine, theirs = layers(), layers()
    fused, adam = FusedAdam(groups(mine), lr=0.01), torch.optim.Adam(groups(theirs), lr=0.01, fused=True)
    for network, optimizer in ((mine, fused), (theirs, adam)):
        take_steps(network, optimizer, 5, without=without)
    assert_same((mine, fused), (theirs, adam))


def test_it_goes_on_from_a_state_of_torch_and_torch_from_its_own() -> None:
    mine, theirs = layers(), layers()
    fused, adam = FusedAdam(mine.parameters(), lr=0.01), torch.optim.Adam(theirs.parameters(), lr=0.01, fused=True)
    take_steps(mine, fused, 3)
    take_steps(theirs, adam, 3)
    exchanged = FusedAdam(theirs.parameters(), lr=0.01), torch.optim.Adam(mine.parameters(), lr=0.01, fused=True)
    exchanged[0].load_state_dict(adam.state_dict())
    exchanged[1].load_state_dict(fused.state_dict())
    take_steps(theirs, exchanged[0], 3)
    take_steps(mine, exchanged[1], 3)
    assert_same((theirs, exchanged[0]), (mine, exchanged[1]))


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_others_are_those_of_torch_bit_by_bit(name: str) -> None:
    ours, torchs = {"SGD": SGD, "Adagrad": Adagrad}[name], getattr(torch.optim, name)
    mine, theirs = layers(), layers()
    one, other = ours(groups(mine), lr=0.01, fused=True), torchs(groups(theirs), lr=0.01, fused=True)
    for network, optimizer in ((mine, one), (theirs, other)):
        take_steps(network, optimizer, 5, without=1)
    assert_same((mine, one), (theirs, other))
    again = ours(groups(theirs), lr=0.01, fused=True)
    again.load_state_dict(other.state_dict())
    for network, optimizer in ((mine, one), (theirs, again)):
        take_steps(network, optimizer, 2)
    assert_same((mine, one), (theirs, again))


def test_a_step_with_every_gradient_goes_straight_to_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary: list[int] = []
    original = optimizers._step_of_torch
    monkeypatch.setattr(optimizers, "_step_of_torch", lambda self, closure: ordinary.append(1) or original(self))
    network = layers()
    take_steps(network, FusedAdam(network.parameters(), lr=0.01), 4)
    assert len(ordinary) == 1
    ordinary.clear()
    network = layers()
    take_steps(network, FusedAdam(network.parameters(), lr=0.01), 4, without=1)
    assert len(ordinary) == 2
