"""TF32 is for products on a GPU, while they are asked for."""

from contextlib import suppress

import pytest
import torch

from shunter.hardware.probes.tf32 import products_in_tf32


def state() -> tuple[bool, str]:
    """Of the GPU, and of the processor."""
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_gpu_uses_it_within_and_as_before_afterwards(before: bool, wanted: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = before
    own, of_processor = state()
    with suppress(ValueError), products_in_tf32(torch.device("cuda:0"), wanted=wanted):
        assert state() == (wanted, of_processor)
        raise ValueError
    assert state() == (own, of_processor)
    torch.backends.cuda.matmul.allow_tf32 = False


def test_a_processor_never_does() -> None:
    before = state()
    with products_in_tf32(torch.device("cpu")):
        assert state() == before
