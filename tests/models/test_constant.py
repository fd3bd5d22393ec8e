"""What a step needs besides its batch lies on the device since the first one, so that the host does not wait."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from shunter.models.constant import Constant
from shunter.models.embeddings.torch_kernel import TorchEmbeddings
from shunter.models.positions import Positions
from shunter.models.spec import CategoricalFeature, Features

FEATURES = Features(
    dense=(),
    categorical=(
        CategoricalFeature(name="item", rows=9),
        CategoricalFeature(name="seen", rows=9, multi_valued=True, length=3),
    ),
)
VALUES, OFFSETS = torch.tensor([1, 2, 3, 3, 4]), torch.tensor([0, 1, 2, 4, 5])
DEVICES = [
    "cpu",
    pytest.param(
        "cuda:0",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]


def positions(device: torch.device) -> Callable[[Tensor, Tensor], object]:
    return Positions(FEATURES)


def weight_decay(device: torch.device) -> Callable[[Tensor, Tensor], object]:
    tables = TorchEmbeddings([9, 9], 4, 0.1, device)
    tables.l2 = 0.1
    return tables


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("build", [positions, weight_decay])
def test_a_second_batch_copies_no_numbers_of_ours_to_the_device(
    build: Callable[[torch.device], Callable[[Tensor, Tensor], object]], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = build(torch.device(device))
    values, offsets = VALUES.to(device), OFFSETS.to(device)
    step(values, offsets)

    copied: list[object] = []
    make = torch.tensor

    def recorded(numbers: object, **options: Any) -> Tensor:
        copied.append(numbers)
        return make(numbers, **options)

    monkeypatch.setattr(torch, "tensor", recorded)
    if device.startswith("cuda"):
        torch.cuda.set_sync_debug_mode("error")
    try:
        step(values, offsets)
    finally:
        if device.startswith("cuda"):
            torch.cuda.set_sync_debug_mode("default")
    assert copied == []


def test_numbers_of_a_trace_are_not_kept() -> None:
    constant = Constant([3, 1])
    with FakeTensorMode():
        assert constant.on(torch.device("cpu")).shape == (2,)
    assert constant.on(torch.device("cpu")).tolist() == [3, 1]
    assert constant.on(torch.device("cpu")) is constant.on(torch.device("cpu"))
