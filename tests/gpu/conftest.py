"""Each test of this folder runs on the processor too, so that its body is known to work before a GPU is at hand."""

import pytest
import torch

from tests.gpu.devices import GPU, ON_GPU


@pytest.fixture(params=["cpu", pytest.param(GPU, marks=ON_GPU)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The processor, and a GPU where there is one."""
    return torch.device(request.param)
